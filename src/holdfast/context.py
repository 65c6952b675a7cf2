"""What a handler knows about its job, and what it can report while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from holdfast.domain import codec
from holdfast.domain.errors import ConfigurationError, LeaseLost, NotInThisStore
from holdfast.domain.job import Claimed
from holdfast.domain.limits import DELAY_SECONDS_MAX, INTEGER_MAX
from holdfast.domain.outcomes import Judgment, Verdict
from holdfast.domain.texts import check_range
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import ProgressNotes, Transactions, capability, require
from holdfast.transactions.completion import Completing, Judge, check_exception, is_on_loop

R = TypeVar("R")

current_context: ContextVar[Context | None] = ContextVar("holdfast_context", default=None)


def in_encrypted_job() -> bool:
    """Whether this runs in the handler of an encrypted job: its errors may quote the arguments."""
    context = current_context.get()
    return context is not None and context._encrypted


class CallLimits(NamedTuple):
    """The options of `run_in_process`."""

    timeout_seconds: float | None
    memory_bytes_max: int | None
    clean_environment: bool


class Processes(Protocol):
    """Runs functions in child processes."""

    async def call(
        self,
        function: Callable[..., R],
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        limits: CallLimits,
    ) -> R: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the contexts of a worker's jobs share."""

    store: object  # the worker's, or its stand-in in a child process
    resources: Mapping[str, Any]
    results: codec.Results
    seam: Seam
    loop: asyncio.AbstractEventLoop
    processes: Processes | None = None  # the worker's, except in a child process
    judge: Judge | None = None  # the worker, except in a child process


def _of_job(name: str) -> Any:
    return property(attrgetter(f"_job.{name}"))


class Context:
    """One attempt of a job, as its handler sees it."""

    __slots__ = (
        "_around", "_calls", "_completing", "_encrypted", "_job", "_noticed_stop", "_result",
        "_results", "_stop",
    )  # fmt: skip

    def __init__(self, job: Claimed, around: Surroundings) -> None:
        self._job = job
        self._around = around
        self._stop: threading.Event | None = None
        self._calls: set[asyncio.Task[Any]] | None = None
        self._completing: Completing | None = None
        self._noticed_stop = False
        self._result: Any = None
        self._results = around.results
        self._encrypted = False

    job_id: UUID = _of_job("id")
    name: str = _of_job("name")
    queue: str = _of_job("queue")
    tenant: str = _of_job("tenant")
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
        if (encrypt := self._results.encrypt) is not None:
            data = encrypt("progress", data)
        return await notes.progress(self._job.lease, data)

    def progress_sync(self, value: Any) -> None:
        """`progress` for plain functions."""
        self._refuse_on_loop("progress")
        asyncio.run_coroutine_threadsafe(self.progress(value), self._around.loop).result()

    def _refuse_on_loop(self, method: str) -> None:
        if is_on_loop(self._around.loop):
            raise RuntimeError(
                f"{method}_sync blocks the event loop; in an async handler, await ctx.{method}(...)"
            )

    async def run_in_process(
        self,
        function: Callable[..., R],
        /,
        *args: Any,
        timeout_seconds: float | None = None,
        memory_bytes_max: int | None = None,
        clean_environment: bool = False,
        **kwargs: Any,
    ) -> R:
        """Run a plain function in a child process; return what it returns, raise what it raises.

        The function must be importable: a global of a module. Arguments and result are pickled. If
        the handler has to stop, or after `timeout_seconds`, the process is killed; a timeout raises
        ProcessTimeout. If the process dies, this raises ProcessCrashed. With `clean_environment`,
        the function sees only environment variables like PATH and HOME, and so no secrets.
        """
        processes = self._around.processes
        if processes is None:
            raise ConfigurationError(
                "run_in_process does not work in a child process; call the function instead"
            )
        if timeout_seconds is not None:
            check_range("timeout_seconds", timeout_seconds, 0, DELAY_SECONDS_MAX)
        if memory_bytes_max is not None:
            check_range("memory_bytes_max", memory_bytes_max, 1, INTEGER_MAX, int)
        if self.canceled:
            raise asyncio.CancelledError
        limits = CallLimits(timeout_seconds, memory_bytes_max, clean_environment)
        # A task, so that it can be stopped when the handler can't be.
        call = asyncio.create_task(processes.call(function, args, kwargs, limits))
        if self._calls is None:
            self._calls = set()
        self._calls.add(call)
        try:
            return await call
        finally:
            self._calls.discard(call)

    def run_in_process_sync(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """`run_in_process` for plain functions. If the handler has to stop, it raises
        `asyncio.CancelledError`."""
        self._refuse_on_loop("run_in_process")
        work = self.run_in_process(function, *args, **kwargs)
        try:
            return asyncio.run_coroutine_threadsafe(work, self._around.loop).result()
        except CancelledError:
            self._noticed_stop = True
            raise asyncio.CancelledError from None

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

    def failing(
        self, error: BaseException, connection: Any = None
    ) -> AbstractAsyncContextManager[Any]:
        """Commit your writes together with the failure of this attempt: both, or neither.

        Like `completing`, but the end of the block settles the attempt as this error would if it
        left the handler: the job is retried, or it ends as failed or dead. After the block, the
        handler can raise or return; that makes no difference. If the block itself fails, the
        attempt is not settled, and what the handler does next counts.
        """
        check_exception(error)
        return self._completer().block(connection, error)

    def failing_sync(
        self, error: BaseException, connection: Any = None
    ) -> AbstractContextManager[Any]:
        """`failing` for plain functions."""
        check_exception(error)
        return self._completer().block_sync(connection, error)

    def judge(self, error: BaseException) -> Judgment:
        """Return what this error would do to the job, for the rows that a block writes.

        Inside `failing`, this is what the block will record. Before it, an open breaker may still
        change it: the job is then parked, and gets its attempt back.
        """
        written = self._completer().judge(error).settlement
        return Judgment(
            written.error_code, written.error_text, written.state, written.delay_seconds
        )

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
    def _completed(self) -> Verdict | None:
        """How `completing` or `failing` ended the attempt, once that is committed."""
        return None if self._completing is None else self._completing.settled

    @property
    def _failed_with(self) -> BaseException | None:
        """The error that `failing` ended the attempt with."""
        return None if self._completing is None else self._completing.failed_with

    @property
    def _succeeded_with(self) -> Any:
        """The result that `completing` ended the attempt with."""
        return None if self._completing is None else self._completing.succeeded_with

    @property
    def _found_open(self) -> bool | None:
        """What the breaker answered when `failing` counted the failure; None if it did not."""
        return None if self._completing is None else self._completing.found_open

    @property
    def _settles_itself(self) -> bool:
        """Whether a block is committing the end of the attempt, or has committed it."""
        completing = self._completing
        return completing is not None and (completing.is_settling or completing.settled is not None)

    def _completer(self) -> Completing:
        if self._completing is None:
            around = self._around
            store = capability(around.store, Transactions)
            if store is None or around.judge is None:
                raise NotInThisStore(
                    "ctx.completing, ctx.failing and ctx.judge need a store with transactions, and"
                    " do not work in child processes"
                )
            self._completing = Completing(
                self._job, store, self._results, around.loop, around.seam, around.judge
            )
            self._completing.result = self._result
        return self._completing

    def _enable_stop(self) -> None:
        """Make `canceled` work; only handlers in threads need it."""
        self._stop = threading.Event()

    def _request_stop(self) -> None:
        if self._stop is not None:
            self._stop.set()
        for call in self._calls or ():
            call.cancel()

    def _give_up(self) -> None:
        """Stop waiting for a commit in progress: the worker is exiting."""
        if self._completing is not None:
            self._completing.give_up()
