"""One attempt of one job, while this worker has it."""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import Any

from holdfast.context import Context
from holdfast.domain.job import Claimed, Settlement


class Stop(Enum):
    """Why a handler is told to stop before it ended by itself."""

    LOST = auto()  # the lease is no longer ours: nothing that follows may be written
    TIMEOUT = auto()
    SHUTDOWN = auto()


class Run:
    __slots__ = (
        "context",
        "ended_monotonic",
        "job",
        "lease",
        "settlement",
        "started_monotonic",
        "stop",
        "task",
        "thread",
    )

    def __init__(self, job: Claimed, context: Context, started_monotonic: float) -> None:
        self.job = job
        self.lease = job.lease
        self.context = context
        self.started_monotonic = started_monotonic
        self.ended_monotonic = started_monotonic
        self.stop: Stop | None = None
        self.settlement: Settlement | None = None
        self.task: asyncio.Task[Any] | None = None
        self.thread: asyncio.Future[Any] | None = None

    @property
    def duration_ms(self) -> float:
        return (self.ended_monotonic - self.started_monotonic) * 1000

    def tell_to_stop(self, why: Stop) -> None:
        """Cancel the handler. The first reason stands, except that a lost lease is final."""
        if self.stop is None or why is Stop.LOST:
            self.stop = why
        self.context.tell_to_stop()
        if self.task is not None:
            self.task.cancel()
