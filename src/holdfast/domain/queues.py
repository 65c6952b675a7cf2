"""Queues, as operators see and steer them."""

from __future__ import annotations

from datetime import datetime

import msgspec


class QueueSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that has live jobs, or of which an operator has said something.

    `ready` are the jobs that are due and wait, `held` those that a breaker holds. A queue with a
    `running_max` runs at most so many jobs at a time, on all workers together.
    """

    name: str
    ready: int = 0
    scheduled: int = 0
    held: int = 0
    running: int = 0
    oldest_ready_seconds: float | None = None
    paused_at: datetime | None = None
    paused_by: str | None = None
    paused_because: str | None = None
    running_max: int | None = None

    @property
    def paused(self) -> bool:
        return self.paused_at is not None

    @property
    def waiting(self) -> int:
        return self.ready + self.scheduled + self.held
