"""Settings that the systems read from the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from holdfast import ConfigurationError

T = TypeVar("T")


def number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name)
    return converted(name, float, text) if text else default


def converted(name: str, convert: Callable[[str], T], text: str) -> T:
    try:
        return convert(text)
    except ValueError:
        raise ConfigurationError(f"{name} must be a number, not {text!r}") from None


def is_set(environment: Mapping[str, str], name: str) -> bool:
    return environment.get(name, "").lower() in ("1", "true", "yes", "on")
