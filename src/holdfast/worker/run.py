"""One attempt of one job, while this worker has it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.context import Context
from holdfast.domain.breakers import Strike
from holdfast.domain.job import Claimed, Lease, Settlement
from holdfast.observability import tracing

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Stop(Enum):
    """Why a handler is told to stop before it ended by itself."""

    LOST = "lost"  # the lease is no longer ours: nothing that follows may be written
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"


class Counted(NamedTuple):
    """A failure that counts against a breaker, and how it ends if that is open already."""

    strike: Strike
    held: Settlement


class Run:
    """`given_up` says that the handler did not stop: its job is settled without it, and its slot is
    free when it is done. `gives_up_at` (monotonic) is when that happens, for jobs with a timeout.
    """

    __slots__ = (
        "context",
        "counted",
        "ended_monotonic",
        "given_up",
        "gives_up_at",
        "job",
        "settlement",
        "span",
        "started_monotonic",
        "stop",
        "task",
        "told_to_stop",
    )

    def __init__(self, job: Claimed, context: Context, started_monotonic: float) -> None:
        self.job = job
        self.context = context
        self.started_monotonic = started_monotonic
        self.ended_monotonic = started_monotonic
        self.stop: Stop | None = None
        self.settlement: Settlement | None = None
        self.counted: Counted | None = None
        self.task: asyncio.Task[Any] | None = None
        self.told_to_stop: Callable[[Run], None] | None = None
        self.gives_up_at: float | None = None
        self.given_up = False
        self.span: Span | None = None

    @property
    def lease(self) -> Lease:
        return self.job.lease

    @property
    def is_lost(self) -> bool:
        return self.stop is Stop.LOST

    @property
    def duration_ms(self) -> float:
        return (self.ended_monotonic - self.started_monotonic) * 1000

    @property
    def traced_job(self) -> Claimed:
        """The job as another process gets it: what it does there belongs to this attempt."""
        if self.span is None:
            return self.job
        return msgspec.structs.replace(self.job, trace=tracing.written(self.span))

    @property
    def is_committing(self) -> bool:
        """Is its own transaction just being committed? Only the database knows how that ends."""
        return self.context.settles_itself and self.context.completed is None

    def set_deadline(
        self, timeout_seconds: float, grace_seconds: float, now: float
    ) -> asyncio.TimerHandle:
        """Have it told to stop in time; answer what to cancel if it ends before."""
        self.gives_up_at = now + timeout_seconds + grace_seconds
        loop = asyncio.get_running_loop()
        return loop.call_later(timeout_seconds, self.tell_to_stop, Stop.TIMEOUT)

    def tell_to_stop(self, why: Stop) -> None:
        """Cancel the handler. The first reason stands, except that a lost lease is final."""
        if self.stop is Stop.LOST and why is Stop.TIMEOUT:
            return  # it knows already, and is waited for
        if self.stop is None or why is Stop.LOST:
            self.stop = why
        self.context.tell_to_stop()
        if self.told_to_stop is not None:
            self.told_to_stop(self)
        if self.task is not None and _has_begun(self.task):
            self.task.cancel()


def _has_begun(task: asyncio.Task[Any]) -> bool:
    """One that is canceled before its first step runs nothing at all, not even its clean-up."""
    return inspect.getcoroutinestate(task.get_coro()) != inspect.CORO_CREATED  # type: ignore[arg-type]
