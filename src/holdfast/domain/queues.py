"""What operators see of a queue."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

import msgspec

_PATTERN: Final = re.compile(r"[*?]|\A[^\[]*+\[.+\]")  # from the first bracket on: linear


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that has live jobs, or that an operator paused or capped.

    `ready` jobs are due and waiting; `parked` ones wait for an open breaker. `running_max` is the
    queue's cap: how many of its jobs may run at once, across all workers.
    """

    name: str
    ready: int = 0
    scheduled: int = 0
    parked: int = 0
    running: int = 0
    oldest_ready_seconds: float | None = None
    paused_at: datetime | None = None
    paused_by: str | None = None
    paused_because: str | None = None
    running_max: int | None = None

    @property
    def paused(self) -> bool:
        """Whether an operator has stopped it."""
        return self.paused_at is not None

    @property
    def waiting(self) -> int:
        """How many jobs have not started: ready, scheduled and parked ones."""
        return self.ready + self.scheduled + self.parked


def is_pattern(queue: str) -> bool:
    """Whether somebody who writes this probably means several queues."""
    return _PATTERN.search(queue) is not None
