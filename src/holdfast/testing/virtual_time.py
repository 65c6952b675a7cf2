"""A clock that stands still until it is told to go on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.runtime.seam import Seam


class VirtualTime(Seam):
    """The real machine, except that jobs become due, expire and lose leases by this clock.

    It is the clock of an SQLite store; PostgreSQL keeps its own. No processes are started, which
    would have another clock.
    """

    starts_processes = False

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        super().__init__()
        self._now = start

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"time can't go back: {seconds:g} s")
        self._now += timedelta(seconds=seconds)
