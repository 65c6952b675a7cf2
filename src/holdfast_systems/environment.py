"""Settings that the systems read from the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast import ConfigurationError
from holdfast.messengers import Messenger

ON: Final = ("1", "true", "yes", "on")
OFF: Final = ("", "0", "false", "no", "off")

# The setting that a variable sets, and the function that reads its text.
Variables = Mapping[str, tuple[str, Callable[[str], Any]]]


def read_variables(environment: Mapping[str, str], variables: Variables) -> dict[str, Any]:
    """Read the variables that are set and not empty."""
    found = {}
    for variable, (name, convert) in variables.items():
        if text := environment.get(variable):
            try:
                found[name] = convert(text)
            except ValueError:
                raise ConfigurationError(f"{variable} must be a number, not {text!r}") from None
    return found


def milliseconds(text: str) -> float:
    """Convert milliseconds to seconds."""
    return float(text) / 1000


def is_set(environment: Mapping[str, str], name: str) -> bool:
    """Whether a switch is on. What is neither on nor off is refused."""
    text = environment.get(name, "").lower()
    if text not in ON + OFF:
        raise ConfigurationError(f"{name} must be true or false, not {environment[name]!r}")
    return text in ON


def messengers_with(
    environment: Mapping[str, str], *messengers: Messenger
) -> list[str | Messenger]:
    """These messengers beside those of the engine's own setting."""
    return [*environment.get("HOLDFAST_MESSENGERS", "").split(), *messengers]


def refuse_without(environment: Mapping[str, str], needed: str, *names: str) -> None:
    """Refuse the first of these variables that is set, although the one that it needs is not."""
    for name in names:
        if environment.get(name) and not environment.get(needed):
            raise ConfigurationError(
                f"{name} is set, but has no effect without {needed}: set that, too, or remove it"
            )


def refuse_in_favor(environment: Mapping[str, str], names: Mapping[str, str]) -> None:
    """Refuse variables in whose place this system has its own."""
    for name, own in names.items():
        if environment.get(name):
            raise ConfigurationError(f"{name} is set, but has no effect here: set {own} instead")


def without_given(environment: Mapping[str, str], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """This system's defaults, less those that the engine's own variables change."""
    return {
        name: value
        for name, value in defaults.items()
        if not environment.get(f"HOLDFAST_{name.upper()}")
    }
