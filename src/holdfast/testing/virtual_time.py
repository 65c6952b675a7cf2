"""A clock that stands still until a test advances it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.runtime.seam import Seam


class VirtualTime(Seam):
    """The real machine with a virtual clock, by which jobs become due and leases expire.

    SQLite stores follow it; PostgreSQL has its own clock. No child processes are started, because
    they would have another clock.
    """

    starts_processes = False

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        super().__init__()
        self._now = start

    def now(self) -> datetime:
        """Return the virtual time."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        if seconds < 0:
            raise ValueError(f"time can't go backward: {seconds:g} s")
        self._now += timedelta(seconds=seconds)
