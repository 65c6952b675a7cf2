"""Load what other packages register by entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.domain.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def load_plugin(entry: EntryPoint, what: str) -> Any:
    """Load the function that an entry point refers to. `what` names its purpose."""
    try:
        function = entry.load()
        if not callable(function):
            raise TypeError(f"it is of type {type(function).__name__}, not a function")
    except Exception as error:  # whatever the import of another package raises
        package = "an unknown package" if entry.dist is None else entry.dist.name
        raise ConfigurationError(
            f"{what} can't be loaded: the entry point {entry.value} of {package} failed with"
            f" {type(error).__name__}: {error}; fix, upgrade or uninstall that package"
        ) from error
    return function
