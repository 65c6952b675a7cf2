"""What a handler knows about its job, and what it can report while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from uuid import UUID

from holdfast.domain import codec
from holdfast.domain.errors import LeaseLost, NotInThisStore
from holdfast.domain.job import Claimed, Settlement
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import ProgressNotes, Transactions, capability, require
from holdfast.transactions.completion import Completing, is_on_loop

current_context: ContextVar[Context | None] = ContextVar("holdfast_context", default=None)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the contexts of a worker's jobs share."""

    store: object  # the worker's, or its stand-in in a child process
    resources: Mapping[str, Any]
    results: codec.Results
    seam: Seam
    loop: asyncio.AbstractEventLoop


def _of_job(name: str) -> Any:
    return property(attrgetter(f"_job.{name}"))


class Context:
    """One attempt of a job, as its handler sees it."""

    __slots__ = ("_around", "_completing", "_job", "_noticed_stop", "_result", "_stop")

    def __init__(self, job: Claimed, around: Surroundings) -> None:
        self._job = job
        self._around = around
        self._stop: threading.Event | None = None
        self._completing: Completing | None = None
        self._noticed_stop = False
        self._result: Any = None

    job_id: UUID = _of_job("id")
    name: str = _of_job("name")
    queue: str = _of_job("queue")
    tenant: str | None = _of_job("tenant")
    attempt: int = _of_job("attempt")
    max_attempts: int = _of_job("max_attempts")

    @property
    def resources(self) -> Mapping[str, Any]:
        """What the functions decorated with `@hf.resource` returned, by name."""
        return self._around.resources

    @property
    def correlation_id(self) -> str:
        """The id that all jobs of one request share; by default, the id of the first job."""
        return self._job.correlation_id or str(self._job.id)

    @property
    def fence(self) -> int:
        """A number that rises with every lease of the job. Pass it to systems that the handler
        writes to, so that they can reject an attempt that lost its lease."""
        return self._job.fence

    @property
    def canceled(self) -> bool:
        """Whether the handler should stop. Check it in plain functions; async ones are canceled."""
        return self.wait_canceled(0)

    def wait_canceled(self, seconds: float) -> bool:
        """Sleep, but return True as soon as the handler should stop. For plain functions."""
        if self._stop is None or not self._stop.wait(seconds):
            return False
        self._noticed_stop = True
        return True

    async def progress(self, value: Any) -> None:
        """Record how far the job is, as any JSON value. Raises LeaseLost if the lease is lost."""
        if not await self._record_progress(self._around.results.encode_progress(value)):
            raise LeaseLost(self._job.id, self._job.fence)

    async def _record_progress(self, data: bytes) -> bool:
        notes = require(self._around.store, ProgressNotes, "record progress")
        return await notes.progress(self._job.lease, data)

    def progress_sync(self, value: Any) -> None:
        """`progress` for plain functions."""
        if is_on_loop(self._around.loop):
            raise RuntimeError(
                "progress_sync blocks the event loop; in an async handler, await ctx.progress(...)"
            )
        asyncio.run_coroutine_threadsafe(self.progress(value), self._around.loop).result()

    def completing(self, connection: Any = None) -> AbstractAsyncContextManager[Any]:
        """Commit your writes together with the job's success: both happen exactly once, or neither.

        The block receives a connection to the database of the jobs. Or pass `connection`, your own
        to that database, without an open transaction. The end of the block settles the job as
        succeeded and commits; if the lease is lost, it raises LeaseLost and writes nothing. An
        error inside the block rolls back and fails the attempt. Set the job's result with
        `set_result`: what the handler returns is ignored.
        """
        return self._completer().block(connection)

    def completing_sync(self, connection: Any = None) -> AbstractContextManager[Any]:
        """`completing` for plain functions."""
        return self._completer().block_sync(connection)

    def set_result(self, value: Any) -> None:
        """Set the job's result: what `completing` records, or what the handler would return.

        Without `completing`, a value that the handler returns replaces it, unless that is None.
        """
        self._result = value
        if self._completing is not None:
            self._completing.result = value

    def _result_or(self, returned: Any) -> Any:
        """The job's result, of a handler that returned this."""
        return self._result if returned is None and self._completed is None else returned

    @property
    def _completed(self) -> Settlement | None:
        return None if self._completing is None else self._completing.settled

    @property
    def _settles_itself(self) -> bool:
        """Whether `completing` is committing the job's success, or has committed it."""
        completing = self._completing
        return completing is not None and (completing.is_settling or completing.settled is not None)

    def _completer(self) -> Completing:
        if self._completing is None:
            around = self._around
            store = capability(around.store, Transactions)
            if store is None:
                raise NotInThisStore(
                    "ctx.completing needs a store with transactions, and does not work in child"
                    " processes"
                )
            self._completing = Completing(
                self._job, store, around.results, around.loop, around.seam
            )
            self._completing.result = self._result
        return self._completing

    def _enable_stop(self) -> None:
        """Make `canceled` work; only handlers in threads need it."""
        self._stop = threading.Event()

    def _request_stop(self) -> None:
        if self._stop is not None:
            self._stop.set()

    def _give_up(self) -> None:
        """Stop waiting for a commit in progress: the worker is exiting."""
        if self._completing is not None:
            self._completing.give_up()
