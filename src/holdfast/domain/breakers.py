"""Breakers: park jobs while what they depend on is down.

A breaker opens after too many failures within its window. Then the jobs of its key stay queued and
lose no attempt. One of them is sent as a probe at intervals; when a probe succeeds, the breaker
closes and the others follow.

Successes count too: an input that fails while other jobs succeed is not an outage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

import msgspec

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.limits import BREAKER_FAILURES_MAX, DELAY_SECONDS_MAX
from holdfast.domain.texts import check_name, check_range, storable_text

BECAUSE_CHARS_MAX: Final = 300
_SECONDS_MIN: Final = 0.001


@dataclass(frozen=True, slots=True)
class Breaker:
    """What a job depends on, and when to stop trying it: `@hf.job(breaker=Breaker("gateway"))`.

    Jobs with the same `key` share a breaker. The key can be a function of the handler's arguments
    that returns a key, or None for a job that depends on nothing. The breaker opens after
    `failures` within `window_seconds`, or four times as many if other jobs succeed in between.
    While it is open, one job is sent as a probe every `probe_seconds`.

    Failures that will be retried count. With `errors` (exception types and error codes), only
    those do.
    """

    key: str | Callable[..., str | None]
    failures: int = 5
    window_seconds: float = 30.0
    probe_seconds: float = 10.0
    errors: Sequence[type[BaseException] | str] = ()

    def __post_init__(self) -> None:
        if not callable(self.key):
            check_name("breaker's key", self.key)
        check = partial(check_range, error=ConfigurationError)
        check("a breaker's failures", self.failures, 1, BREAKER_FAILURES_MAX, int)
        for name in ("window_seconds", "probe_seconds"):
            check(f"a breaker's {name}", getattr(self, name), _SECONDS_MIN, DELAY_SECONDS_MAX)
        # A string is not a list of its letters.
        if not isinstance(self.errors, list | tuple | set | frozenset) or not all(
            _names_errors(each) for each in self.errors
        ):
            raise ConfigurationError(
                "a breaker's errors must be a list of exception types and error codes, not"
                f" {self.errors!r}"
            )
        object.__setattr__(self, "errors", tuple(self.errors))

    def counts(self, error: BaseException, code: str) -> bool:
        """Whether this error, if it is not permanent, counts against the breaker."""
        return not self.errors or any(
            each == code if isinstance(each, str) else isinstance(error, each)
            for each in self.errors
        )

    def strike(self, key: str, code: str, text: str) -> Strike:
        """What a failure with this error counts as."""
        first = text.partition("\n")[0]
        # The text of an error that has no code begins with its type, which stands for the code.
        because = first if first.startswith(code) else f"{code}: {first}"
        return Strike(
            key=key,
            failures_max=self.failures,
            window_seconds=self.window_seconds,
            probe_seconds=self.probe_seconds,
            because=storable_text(because, BECAUSE_CHARS_MAX),
        )


def _names_errors(entry: object) -> bool:
    return isinstance(entry, str) or (isinstance(entry, type) and issubclass(entry, BaseException))


class Strike(NamedTuple):
    """A failure that counts against a breaker, and the last success that the worker knows of.

    The breaker opens at `failures_max` strikes within the window, or at BREAKER_DOUBT_FACTOR times
    as many if a job has succeeded since the first of them.
    """

    key: str
    failures_max: int
    window_seconds: float
    probe_seconds: float
    because: str
    failed_seconds_ago: float = 0.0
    worked_seconds_ago: float | None = None


class Parking(NamedTuple):
    """The result of one step: `moved` jobs were parked or unparked. The next probe is due in
    `probe_in_seconds`, or never if that is None."""

    moved: int
    probe_in_seconds: float | None


class BreakerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker that has counted a failure or was opened.

    `failures` are those within its window. `opened_by` names the operator who opened it, and
    `opened_because` says why it opened last. While it is `unparking`, it is closed and workers are
    releasing the jobs it had parked.
    """

    key: str
    failures: int
    opened_at: datetime | None
    opened_by: str | None
    opened_because: str | None
    next_probe_at: datetime | None
    unparking: bool
    times_opened: int
    parked: int  # at most PARKED_COUNTED_MAX

    @property
    def is_open(self) -> bool:
        """Whether jobs wait for it."""
        return self.opened_at is not None

    @property
    def by_hand(self) -> bool:
        """An operator opened it: it sends no probe until an operator closes it."""
        return self.is_open and self.next_probe_at is None
