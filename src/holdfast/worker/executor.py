"""Run a claimed job: resolve, validate, run, classify. The result is an outcome, never an error."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.context import current_context
from holdfast.domain.encrypted_jobs import CANNOT_DECRYPT, ENCRYPTED
from holdfast.domain.errors import CannotDecrypt, ConfigurationError
from holdfast.domain.outcomes import (
    Crashed,
    Expired,
    Failed,
    HandedBack,
    Outcome,
    Released,
    Succeeded,
)
from holdfast.job_function import Definition
from holdfast.observability import logs
from holdfast.runtime.seam import Seam, Threads
from holdfast.settings import Settings
from holdfast.worker.classify import classify, timed_out
from holdfast.worker.run import Run, Stop
from holdfast.worker.work import Work


class Executor:
    """`give_up` is called with the outcome of a handler that should have stopped but did not. Its
    run is `given_up` then, and what `execute` returns later no longer counts."""

    def __init__(
        self,
        work: Work,
        settings: Settings,
        seam: Seam,
        threads: Threads,
        give_up: Callable[[Run, Outcome | None], None],
    ) -> None:
        self._definitions = work.definitions
        self._results = settings.results
        self._grace_seconds = settings.timeout_grace_seconds
        self._log_errors = settings.log_errors
        self._seam = seam
        self._threads = threads
        self._children = work.children
        self._around = work.around
        self._cipher = work.cipher
        self._give_up = give_up
        self._telling: set[asyncio.Task[None]] = set()

    async def execute(self, run: Run) -> Outcome | None:
        """Run the attempt. None means that the lease is lost and nothing may be written."""
        job = run.job
        if run.stop is not None:  # before its first step
            return None if run.is_lost else Released()
        if job.expired:
            return Expired()
        definition = self._definitions.get(job.name)
        if definition is None:
            return Released()
        arguments = job.arguments
        if definition.encrypted or arguments.startswith(ENCRYPTED):
            try:
                arguments = self._decrypted(run)
            except (CannotDecrypt, ConfigurationError) as error:
                return HandedBack(str(error), CANNOT_DECRYPT)
        current_context.set(run.context)
        try:
            if definition.executor == "process" and self._seam.starts_processes:
                return await self._perform_in_child(definition, run, arguments)
            values = definition.signature.load(arguments)
            run.context._results = definition.signature.typed(run.context._results)
            value = run.context._result_or(await self._call(definition, run, values))
            result = run.context._results.encode(value)
        except BaseException as error:
            # Even SystemExit belongs to one job here, not to the worker.
            outcome = classify(definition, run, error)
            await self._tell(run, outcome, error=error)
            return outcome
        outcome = None if run.is_lost else Succeeded(result)
        if self._around is not None:
            await self._tell(run, outcome, value)
        return outcome

    def _decrypted(self, run: Run) -> bytes:
        """Return the arguments in plaintext, and have the result and the progress encrypted."""
        context, job = run.context, run.job
        context._encrypted = True
        run.arguments = self._cipher.decrypted(job).arguments
        encrypt = self._cipher.encryptor(job.tenant, job.name)
        context._results = replace(self._results, encrypt=encrypt)
        return run.arguments

    async def _perform_in_child(
        self, definition: Definition, run: Run, arguments: bytes
    ) -> Outcome | None:
        # Checked here, because a job that is released takes a new child process.
        definition.signature.check_names(arguments)
        outcome = await self._children.perform(definition, run)
        encrypt = run.context._results.encrypt
        if encrypt is not None and isinstance(outcome, Succeeded):
            outcome = Succeeded(encrypt("result", outcome.result))
        # A child runs the hooks itself, unless it was killed or died.
        if not run.told_in_child:
            await self._tell(run, outcome)
        return outcome

    async def _tell(
        self,
        run: Run,
        outcome: Outcome | None,
        value: Any = None,
        error: BaseException | None = None,
    ) -> None:
        """Tell the hooks and the log what the attempt came to, unless they were told before."""
        if not run.given_up:
            await self._tell_now(run, outcome, value, error)

    async def _tell_now(
        self,
        run: Run,
        outcome: Outcome | None,
        value: Any = None,
        error: BaseException | None = None,
    ) -> None:
        context = run.context
        if (own := context._completed) is not None:
            # Nothing that the handler did after its block counts.
            outcome, value, error = own.outcome, context._succeeded_with, context._failed_with
        if self._log_errors and error is not None and isinstance(outcome, Failed):
            run.traceback = logs.formatted(error, withheld=run.encrypted)
        if self._around is None:
            return
        if isinstance(outcome, Succeeded):
            await self._around.succeeded(run, value)
        elif isinstance(outcome, Failed | Crashed):
            await self._around.failed(run, outcome, error)

    async def _call(self, definition: Definition, run: Run, values: dict[str, Any]) -> Any:
        run.on_stop = self._start_grace
        deadline = None
        if definition.timeout_seconds is not None:
            now = self._seam.monotonic()
            deadline = run.set_deadline(definition.timeout_seconds, self._grace_seconds, now)
        try:
            if self._around is None:
                return await self._call_handler(definition, run, values)
            call = partial(self._call_handler, definition, run, values)
            return await self._around.call(run, call)
        finally:
            run.on_stop = None
            if deadline is not None:
                deadline.cancel()

    def _call_handler(
        self, definition: Definition, run: Run, values: dict[str, Any]
    ) -> Awaitable[Any]:
        context = (run.context,) if definition.signature.takes_context else ()
        if definition.signature.is_async:
            called: Awaitable[Any] = definition.function(*context, **values)
            return called
        return self._call_in_thread(partial(definition.function, *context, **values), run)

    async def _call_in_thread(self, call: partial[Any], run: Run) -> Any:
        """Run in a thread. A thread can't be canceled: it sees ctx.canceled, and we wait for it."""
        run.context._enable_stop()
        context = contextvars.copy_context()
        future = self._threads.submit(partial(context.run, _call_for_future, call))
        thread = asyncio.wrap_future(future)
        was_lost = False
        while not thread.done():
            try:
                await asyncio.wait([thread])
            except asyncio.CancelledError:
                # The worker is exiting, and nobody waits any longer.
                if run.stop is None or run.settlement is not None or was_lost:
                    raise
                was_lost = run.is_lost
        value = thread.result()
        if inspect.isawaitable(value):
            # A plain function that wraps an async one returns a coroutine: nothing has run yet.
            value = await value
        if run.context._noticed_stop:
            # It saw ctx.canceled and returned early: it is not done.
            raise asyncio.CancelledError
        return value

    def _start_grace(self, run: Run) -> None:
        """Give the handler time to stop. In a shutdown, the worker limits that time itself."""
        if run.stop is not Stop.SHUTDOWN and run.settlement is None:
            loop = asyncio.get_running_loop()
            loop.call_later(self._grace_seconds, self._end_grace, run)

    def _end_grace(self, run: Run) -> None:
        has_ended = run.on_stop is None
        if has_ended or run.settlement is not None or run.given_up:
            return
        if run.is_committing:
            self._start_grace(run)
            return
        run.given_up = True
        grace = f" and did not stop within another {self._grace_seconds:g} s"
        outcome = None if run.is_lost else timed_out(self._definitions[run.job.name], grace)
        self._give_up(run, outcome)
        if self._around is not None:
            # The job's own task still waits for the handler.
            telling = asyncio.create_task(self._tell_now(run, outcome))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)


def _call_for_future(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (StopIteration, GeneratorExit) as error:
        # A future can't carry them: the waiting task would never wake up, or be closed.
        raise RuntimeError(f"the handler raised {type(error).__name__}") from error
