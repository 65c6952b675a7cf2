"""Breakers: what is known of the things that jobs depend on, and which jobs wait for them.

A breaker opens when what it guards has failed too often within its window. Then the jobs of its key
stay queued and lose no attempt; one of them is sent ahead at intervals, and when that succeeds the
breaker closes and the others follow.
"""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec


class Strike(NamedTuple):
    """A failure that counts against a breaker: the `failures_max`-th within the window opens it."""

    key: str
    failures_max: int
    window_seconds: float
    probe_seconds: float
    because: str


class Holding(NamedTuple):
    """What a step of holding jobs and letting them go came to.

    `moved` jobs were held or let go. `probe_in_seconds` is when the next job is to be sent ahead;
    None if no breaker waits for that.
    """

    moved: int
    probe_in_seconds: float | None


class BreakerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker of which something is known. `failures` are those within its window; `opened_by`
    names who opened it by hand, and `opened_because` says why it is, or was last, open.

    One that is `letting_go` is closed, and the jobs that it held are on their way.
    """

    key: str
    failures: int
    opened_at: datetime | None
    opened_by: str | None
    opened_because: str | None
    next_probe_at: datetime | None
    letting_go: bool
    times_opened: int
    held: int  # at most HELD_COUNTED_MAX

    @property
    def is_open(self) -> bool:
        return self.opened_at is not None

    @property
    def by_hand(self) -> bool:
        """Somebody opened it, and no job is sent ahead until somebody closes it."""
        return self.is_open and self.next_probe_at is None
