"""One attempt of one job, while this worker has it."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.context import Context
from holdfast.domain.job import Claimed, Lease, Settlement
from holdfast.domain.outcomes import Counted
from holdfast.observability import tracing

if TYPE_CHECKING:
    from opentelemetry.trace import Span


class Stop(Enum):
    """Why a handler has to stop early."""

    LOST = "lost"  # the lease is gone: write nothing more for the job
    TIMEOUT = "timeout"
    SHUTDOWN = "shutdown"


@dataclass(slots=True, eq=False)
class Run:
    """`started_monotonic` is when the job was claimed, until it starts. `given_up` means that the
    handler did not stop: its job is settled without it, and its slot is free when it returns. For
    jobs with a timeout, `gives_up_at` (monotonic) is when that happens. `on_stop` is called when
    the handler has to stop. `told_in_child` means that the hooks for its end ran in its child
    process. `variables` are the context variables of the handler, if something runs around it.
    `arguments` are those of an encrypted job, in plaintext."""

    job: Claimed
    context: Context
    started_monotonic: float
    ended_monotonic: float = 0.0
    stop: Stop | None = None
    settlement: Settlement | None = None
    counted: Counted | None = None
    task: asyncio.Task[Any] | None = None
    on_stop: Callable[[Run], None] | None = None
    gives_up_at: float | None = None
    given_up: bool = False
    told_in_child: bool = False
    variables: contextvars.Context | None = None
    traceback: str | None = None
    span: Span | None = None
    arguments: bytes | None = None

    @property
    def lease(self) -> Lease:
        return self.job.lease

    @property
    def has_started(self) -> bool:
        return self.task is not None

    @property
    def is_lost(self) -> bool:
        return self.stop is Stop.LOST

    @property
    def duration_ms(self) -> float:
        return (self.ended_monotonic - self.started_monotonic) * 1000

    @property
    def encrypted(self) -> bool:
        return self.context._encrypted

    @property
    def sent_job(self) -> Claimed:
        """The job for another process, whose spans become children of this attempt's."""
        job = self.job
        if self.arguments is not None:
            job = msgspec.structs.replace(job, arguments=self.arguments)
        if self.span is None:
            return job
        return msgspec.structs.replace(job, trace=tracing.traceparent(self.span))

    @property
    def is_committing(self) -> bool:
        """Is its own transaction being committed? Only the database knows how that ends."""
        return self.context._settles_itself and self.context._completed is None

    def set_deadline(
        self, timeout_seconds: float, grace_seconds: float, now: float
    ) -> asyncio.TimerHandle:
        """Schedule the timeout. Cancel the returned timer if the handler ends before."""
        self.gives_up_at = now + timeout_seconds + grace_seconds
        loop = asyncio.get_running_loop()
        return loop.call_later(timeout_seconds, self.request_stop, Stop.TIMEOUT)

    def request_stop(self, why: Stop) -> None:
        """Cancel the handler. The first reason stands, except that a lost lease is final."""
        if self.is_lost and why is Stop.TIMEOUT:
            return  # it is stopping already
        if self.stop is None or why is Stop.LOST:
            self.stop = why
        self.context._request_stop()
        if self.on_stop is not None:
            self.on_stop(self)
        if self.task is not None and _has_begun(self.task):
            self.task.cancel()


def _has_begun(task: asyncio.Task[Any]) -> bool:
    """A task that is canceled before its first step runs nothing, not even its clean-up."""
    return inspect.getcoroutinestate(task.get_coro()) != inspect.CORO_CREATED  # type: ignore[arg-type]
