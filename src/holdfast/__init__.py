"""Durable, lease-based job processing for Python, on the database that you already have."""

from importlib import import_module

TYPE_CHECKING = False  # type checkers know the name; typing would take half of the time

if TYPE_CHECKING:
    from holdfast.public import *  # noqa: F403
    from holdfast.public import __all__ as __all__
else:

    def __getattr__(name: str) -> object:
        """Load the public names when the first of them is used: importing them takes a third of
        a second, and the command has to be ready for Ctrl-C before that."""
        public = import_module("holdfast.public")
        names = {each: getattr(public, each) for each in ("__all__", *public.__all__)}
        globals().update(names)
        if name in names:
            return names[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
