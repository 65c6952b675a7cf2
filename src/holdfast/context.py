"""What a handler gets to know of its job, and may say while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
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
    """What the contexts of all jobs of a worker share."""

    store: object  # of a worker, or what stands for it in a child process
    resources: Mapping[str, Any]
    results: codec.Results
    seam: Seam
    loop: asyncio.AbstractEventLoop


class Context:
    """One attempt of one job, as its handler sees it."""

    __slots__ = ("_around", "_completing", "_job", "_stop", "noticed_stop")

    def __init__(self, job: Claimed, around: Surroundings) -> None:
        self._job = job
        self._around = around
        self._stop: threading.Event | None = None
        self._completing: Completing | None = None
        self.noticed_stop = False

    @property
    def resources(self) -> Mapping[str, Any]:
        """What the worker's resources have opened, by their names."""
        return self._around.resources

    @property
    def job_id(self) -> UUID:
        return self._job.id

    @property
    def name(self) -> str:
        return self._job.name

    @property
    def queue(self) -> str:
        return self._job.queue

    @property
    def tenant(self) -> str | None:
        return self._job.tenant

    @property
    def correlation_id(self) -> str:
        """The id that ties together all jobs of one request; the first job's own id by default."""
        return self._job.correlation_id or str(self._job.id)

    @property
    def attempt(self) -> int:
        return self._job.attempt

    @property
    def max_attempts(self) -> int:
        return self._job.max_attempts

    @property
    def fence(self) -> int:
        """A number that rises with every lease of the job: give it to what the handler writes to,
        so that an attempt which lost its lease can be told from the one that holds it."""
        return self._job.fence

    @property
    def canceled(self) -> bool:
        """Should the handler stop? Handlers in threads look here; async ones are canceled."""
        return self.wait_canceled(0)

    def wait_canceled(self, seconds: float) -> bool:
        """Wait in a thread, but no longer than until the handler should stop."""
        if self._stop is None or not self._stop.wait(seconds):
            return False
        self.noticed_stop = True
        return True

    async def progress(self, value: Any) -> None:
        """Record how far the job is; any JSON value. LeaseLost if the job is no longer ours."""
        if not await self.record_progress(self._around.results.encode_progress(value)):
            raise LeaseLost(self._job.id, self._job.fence)

    async def record_progress(self, data: bytes) -> bool:
        """Record it as it is; answer whether the job is still ours."""
        notes = require(self._around.store, ProgressNotes, "record progress")
        return await notes.progress(self._job.lease, data)

    def progress_sync(self, value: Any) -> None:
        """`progress` for handlers that run in a thread."""
        if is_on_loop(self._around.loop):
            raise RuntimeError("progress_sync would wait for itself here: await ctx.progress(...)")
        asyncio.run_coroutine_threadsafe(self.progress(value), self._around.loop).result()

    def completing(self, connection: Any = None) -> AbstractAsyncContextManager[Any]:
        """Write in the transaction that ends the job: all of it happens exactly once, or nothing.

        The block gets a connection to the job's own database, or works on `connection`: one of the
        caller's own to that database, which is in no transaction block yet. At its end the job is
        settled as succeeded and both are committed together; LeaseLost, and nothing is written, if
        the job is no longer ours. An error inside the block rolls back, and counts as the
        handler's. What the handler returns afterwards is not recorded: see `set_result`.
        """
        return self._completer().block(connection)

    def completing_sync(self, connection: Any = None) -> AbstractContextManager[Any]:
        """`completing` for handlers that run in a thread."""
        return self._completer().block_sync(connection)

    def set_result(self, value: Any) -> None:
        """Say what `completing` records as the job's result."""
        self._completer().result = value

    @property
    def completed(self) -> Settlement | None:
        """The settlement that `completing` has committed."""
        return None if self._completing is None else self._completing.settled

    @property
    def settles_itself(self) -> bool:
        """Is `completing` just committing the job's success, or has it done so?"""
        return self._completing is not None and (
            self._completing.is_settling or self._completing.settled is not None
        )

    def _completer(self) -> Completing:
        if self._completing is None:
            around = self._around
            store = capability(around.store, Transactions)
            if store is None:
                raise NotInThisStore(
                    "ctx.completing is not available in child processes,"
                    " nor in a store without transactions"
                )
            self._completing = Completing(
                self._job, store, around.results, around.loop, around.seam
            )
        return self._completing

    def enable_stop(self) -> None:
        """Get ready to be told to stop: only handlers in threads need it."""
        self._stop = threading.Event()

    def tell_to_stop(self) -> None:
        if self._stop is not None:
            self._stop.set()

    def give_up(self) -> None:
        """Let a commit that is under way end as it may: the worker ends now."""
        if self._completing is not None:
            self._completing.give_up()
