"""Hostile errors and results: their code raises what ends a task, an event loop or a process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast import Retry, RetryAfter, Snooze

ENDS: dict[str, type[BaseException]] = {
    "exit": SystemExit,
    "interrupt": KeyboardInterrupt,
    "canceled": asyncio.CancelledError,
    "generator exit": GeneratorExit,
}


def raising(end: type[BaseException]) -> Callable[..., Any]:
    def raise_it(*_: object) -> Any:
        raise end

    return raise_it


def make_error(place: str, end: type[BaseException]) -> BaseException:
    """Make an error that raises when this attribute is read: its text, code, class or traceback."""
    looked_at = raising(end)
    member = looked_at if place in ("__str__", "__repr__") else property(looked_at)
    kind: type[BaseException] = type("Hostile", (Exception,), {place: member})
    return kind("not to be looked at")


class Nameless(type):
    """Makes classes whose name can't be read."""

    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise SystemExit


class OfNoClass(Exception, metaclass=Nameless):
    pass


class UnpreparedSnooze(Snooze):
    def __init__(self) -> None:
        pass


class UnpreparedRetryAfter(RetryAfter):
    def __init__(self) -> None:
        pass


def with_seconds(error: Any, seconds: Any) -> BaseException:
    error.seconds = seconds
    made: BaseException = error
    return made


class EndlessGroup(ExceptionGroup[Exception]):
    """A group that contains only itself."""

    @property
    def exceptions(self) -> Any:
        return (self,)


ERRORS: dict[str, BaseException] = {
    f"{how} in the {place} of an error": make_error(place, end)
    for how, end in ENDS.items()
    for place in ("__str__", "code", "__class__", "__traceback__")
} | {
    "nameless class": OfNoClass("nobody knows it"),
    "endless group": EndlessGroup("again", [ValueError("and again")]),
    "snooze until a text": with_seconds(Snooze(1), "soon"),
    "snooze for not a number": with_seconds(Snooze(1), float("nan")),
    "snooze without seconds": UnpreparedSnooze(),
    "retry after a text": with_seconds(RetryAfter(1), "soon"),
    "retry after not a number": with_seconds(RetryAfter(1), float("nan")),
    "retry after a huge number": with_seconds(RetryAfter(1), 10**400),
    "retry after without seconds": UnpreparedRetryAfter(),
}


def make_result(end: type[BaseException]) -> list[Any]:
    looked_at = raising(end)
    members = {"__repr__": looked_at, "__str__": looked_at, "__eq__": looked_at}
    silent = type("Silent", (), members | {"__hash__": object.__hash__})
    secret: Any = dataclass(type("Secret", (), {"__annotations__": {"value": int}, "value": 1}))
    secret.value = property(looked_at)
    return [silent(), {"key": silent(), silent(): 1}, object.__new__(secret)]


RESULTS: dict[str, Any] = {f"{how} in a result": make_result(end) for how, end in ENDS.items()}


class HostileRetry(Retry):
    """A policy that ends its caller."""

    def limit_for(self, code: str) -> int | None:
        raise SystemExit
