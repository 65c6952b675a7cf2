"""The handlers of an app in a child process, and what runs around them."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from functools import partial
from typing import Any

# A handler may pass a connection at any time, even after an upgrade has replaced the files.
import holdfast.transactions.drivers.ways  # noqa: F401
from holdfast.context import current_context
from holdfast.domain.codec import Results
from holdfast.domain.outcomes import Failed, Outcome, Succeeded
from holdfast.job_function import Definition
from holdfast.observability import logs, tracing
from holdfast.worker.classify import classify
from holdfast.worker.middleware import Around
from holdfast.worker.processes import calls, memory
from holdfast.worker.processes.messages import Ended
from holdfast.worker.run import Run

Tried = tuple[Any, BaseException | None]


class Handlers:
    """Runs handlers on the main thread. Middleware and hooks run on the event loop of that thread,
    which rests while the handler runs: a plain function may start a loop of its own."""

    def __init__(
        self,
        definitions: Mapping[str, Definition],
        around: Around | None,
        results: Results,
        loop: asyncio.AbstractEventLoop,
        *,
        log_errors: bool,
    ) -> None:
        self._definitions = definitions
        self._around = around
        self._results = results
        self._loop = loop
        self._log_errors = log_errors

    def perform(self, run: Run, memory_bytes_max: int | None) -> Ended:
        definition = self._definitions.get(run.job.name)
        if definition is None:
            text = "is not defined when its module is imported; define it at module level"
            failed = Failed("CHILD_FAILED", f"the job {run.job.name} {text}")
            return Ended.of(failed, memory.used_bytes())
        context = contextvars.copy_context()
        context.run(_enter, run)
        traceback = None
        outcome: Outcome | None
        try:
            values = definition.signature.load(run.job.arguments)
            run.context._results = definition.signature.typed(self._results)
            call = partial(_call, definition, run, values, memory_bytes_max)
            value = run.context._result_or(self._call(context, run, call))
            result = run.context._results.encode(value)
        except BaseException as error:
            outcome = classify(definition, run, error)
            if isinstance(outcome, Failed):
                if self._log_errors:
                    traceback = logs.formatted(error, withheld=run.encrypted)
                if self._around is not None:
                    self._run(context, self._around.failed(run, outcome, error))
        else:
            outcome = None if run.is_lost else Succeeded(result)
            if outcome is not None and self._around is not None:
                self._run(context, self._around.succeeded(run, value))
        return Ended.of(outcome, memory.used_bytes(), traceback)

    def _call(self, context: Context, run: Run, call: Callable[[], Any]) -> Any:
        if self._around is None:
            return context.run(call)
        wanted: asyncio.Future[tuple[Context, asyncio.Future[Tried]]] = self._loop.create_future()

        async def call_handler() -> Any:
            ended: asyncio.Future[Tried] = self._loop.create_future()
            wanted.set_result((contextvars.copy_context(), ended))
            return _result(await ended)

        surrounding = _tried_async(self._around.call(run, call_handler))
        chain = self._loop.create_task(surrounding, context=context)
        either: set[asyncio.Future[Any]] = {chain, wanted}
        first = asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        self._loop.run_until_complete(first)
        if wanted.done():
            inner, ended = wanted.result()
            ended.set_result(inner.run(_tried, call))
        return _result(self._loop.run_until_complete(chain))

    def _run(self, context: Context, work: Awaitable[None]) -> None:
        task = self._loop.create_task(_tried_async(work), context=context)
        self._loop.run_until_complete(task)


def _enter(run: Run) -> None:
    current_context.set(run.context)
    tracing.continue_trace(run.job.trace)


def _call(
    definition: Definition, run: Run, values: dict[str, Any], memory_bytes_max: int | None
) -> Any:
    arguments = (run.context,) if definition.signature.takes_context else ()
    with memory.limited(memory_bytes_max):
        value = calls.plain(definition.function(*arguments, **values))
    if run.context._noticed_stop:
        # It saw ctx.canceled and returned early: it is not done.
        raise asyncio.CancelledError
    return value


# A task that raises SystemExit or KeyboardInterrupt would end the loop, and the child with it.


def _tried(call: Callable[[], Any]) -> Tried:
    try:
        return call(), None
    except BaseException as error:
        return None, error


async def _tried_async(work: Awaitable[Any]) -> Tried:
    try:
        return await work, None
    except BaseException as error:
        return None, error


def _result(tried: Tried) -> Any:
    value, error = tried
    if error is not None:
        raise error
    return value
