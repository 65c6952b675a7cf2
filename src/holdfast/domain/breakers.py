"""Breakers: what is known of the things that jobs depend on, and which jobs wait for them.

A breaker opens when what it guards has failed too often within its window. Then the jobs of its key
stay queued and lose no attempt; one of them is sent ahead at intervals, and when that succeeds the
breaker closes and the others follow.

Successes count as well: an input that fails while other jobs succeed is no outage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.limits import BREAKER_FAILURES_MAX, DELAY_SECONDS_MAX
from holdfast.domain.texts import check_name, storable_text

BECAUSE_CHARS_MAX: Final = 300
_SECONDS_MIN: Final = 0.001


@dataclass(frozen=True, slots=True)
class Breaker:
    """What a job depends on, and when that is taken to be down: after so many `failures` within
    `window_seconds`, or four times as many in a row if other jobs succeed in between. Then one job
    is sent ahead every `probe_seconds`.

    `key` names it, for all jobs that depend on the same thing. It may be a function of the
    handler's arguments, which answers a key, or None for a job that depends on nothing.

    Failures that will be tried again count; with `errors`, exception types and error codes, only
    these.
    """

    key: str | Callable[..., str | None]
    failures: int = 5
    window_seconds: float = 30.0
    probe_seconds: float = 10.0
    errors: Sequence[type[BaseException] | str] = ()

    def __post_init__(self) -> None:
        if not callable(self.key):
            check_name("breaker's key", self.key)
        _check_range("failures", self.failures, 1, BREAKER_FAILURES_MAX, int)
        _check_range("window_seconds", self.window_seconds, _SECONDS_MIN, DELAY_SECONDS_MAX)
        _check_range("probe_seconds", self.probe_seconds, _SECONDS_MIN, DELAY_SECONDS_MAX)
        # A lone string would be taken for a list of its letters.
        if not isinstance(self.errors, list | tuple | set | frozenset) or not all(
            _names_errors(each) for each in self.errors
        ):
            raise ConfigurationError(
                "a breaker's errors must be a list of exception types and error codes, not"
                f" {self.errors!r}"
            )
        object.__setattr__(self, "errors", tuple(self.errors))

    def counts(self, error: BaseException, code: str) -> bool:
        """Does this error, if it is not permanent, speak against what the job depends on?"""
        return not self.errors or any(
            each == code if isinstance(each, str) else isinstance(error, each)
            for each in self.errors
        )

    def strike(self, key: str, code: str, text: str) -> Strike:
        """A failure of a job with this key."""
        said = text.partition("\n")[0]
        # The text of an error without a code of its own begins with its type.
        because = said if said.startswith(code) else f"{code}: {said}"
        return Strike(
            key=key,
            failures_max=self.failures,
            window_seconds=self.window_seconds,
            probe_seconds=self.probe_seconds,
            because=storable_text(because, BECAUSE_CHARS_MAX),
        )


def _check_range(
    name: str, value: object, least: float, most: float, kind: Any = int | float
) -> None:
    if not isinstance(value, kind) or not least <= value <= most:
        raise ConfigurationError(f"a breaker's {name} must be {least} to {most}, not {value!r}")


def _names_errors(entry: object) -> bool:
    return isinstance(entry, str) or (isinstance(entry, type) and issubclass(entry, BaseException))


class Strike(NamedTuple):
    """A failure that counts against a breaker, and what the worker knows of its successes.

    The `failures_max`-th in a row within the window opens it; if a job has succeeded since the
    first failure in the window, BREAKER_DOUBT_FACTOR times as many do.
    """

    key: str
    failures_max: int
    window_seconds: float
    probe_seconds: float
    because: str
    failed_seconds_ago: float = 0.0
    worked_seconds_ago: float | None = None  # None: not that this worker knows


class Parking(NamedTuple):
    """What a step of parking and unparking jobs came to.

    `moved` jobs were parked or unparked. `probe_in_seconds` is when the next probe is due; None if
    no breaker waits for one.
    """

    moved: int
    probe_in_seconds: float | None


class BreakerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker of which something is known. `failures` are those within its window; `opened_by`
    names who opened it by hand, and `opened_because` says why it is, or was last, open.

    One that is `unparking` is closed, and workers are releasing the jobs it had parked.
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
        return self.opened_at is not None

    @property
    def by_hand(self) -> bool:
        """Somebody opened it, and no job is sent ahead until somebody closes it."""
        return self.is_open and self.next_probe_at is None
