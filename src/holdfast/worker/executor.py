"""Run a claimed job: resolve, validate, run, classify. The answer is an outcome, never an error."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from holdfast.context import current_context
from holdfast.definition import Definition
from holdfast.domain import codec
from holdfast.domain.errors import (
    BadArguments,
    JobError,
    JobTimeout,
    LeaseLost,
    Permanent,
    RetryAfter,
    Snooze,
    Transient,
)
from holdfast.domain.limits import ERROR_CODE_CHARS_MAX, ERROR_TEXT_CHARS_MAX
from holdfast.domain.outcomes import Expired, Failed, Outcome, Released, Snoozed, Succeeded
from holdfast.seam import Threads
from holdfast.settings import Settings
from holdfast.worker.run import Run, Stop


class Executor:
    def __init__(
        self, definitions: Mapping[str, Definition], settings: Settings, threads: Threads
    ) -> None:
        self._definitions = definitions
        self._settings = settings
        self._threads = threads

    async def execute(self, run: Run) -> Outcome | None:
        """Perform the attempt; None means that the lease is lost and nothing may be written."""
        job = run.job
        if job.expired:
            return Expired()
        definition = self._definitions.get(job.name)
        if definition is None:
            return Released()
        try:
            values = definition.signature.load(job.arguments)
            value = await self._call(definition, run, values)
            if run.context.noticed_stop:
                # It looked at ctx.cancelled, saw that it should stop, and returned: not done.
                raise asyncio.CancelledError
            result = codec.encode_result(value, bytes_max=self._settings.result_bytes_max)
        except BaseException as error:
            # Even SystemExit and the like belong to one job here, not to the worker.
            return _classify(definition, run, _only_one(error))
        return None if run.stop is Stop.LOST else Succeeded(result)

    async def _call(self, definition: Definition, run: Run, values: dict[str, Any]) -> Any:
        if definition.signature.takes_context:
            call = partial(definition.function, run.context, **values)
        else:
            call = partial(definition.function, **values)
        current_context.set(run.context)
        deadline = None
        if definition.timeout_seconds is not None:
            loop = asyncio.get_running_loop()
            deadline = loop.call_later(definition.timeout_seconds, run.tell_to_stop, Stop.TIMEOUT)
        try:
            if definition.signature.is_async:
                return await call()
            value = await self._call_in_thread(call, run)
            # A plain function around an async one gives a coroutine: nothing has run yet.
            return await value if inspect.isawaitable(value) else value
        finally:
            if deadline is not None:
                deadline.cancel()

    async def _call_in_thread(self, call: partial[Any], run: Run) -> Any:
        """Run in a thread, which can't be cancelled: it is told, and then waited for a while."""
        run.context.enable_stop()
        context = contextvars.copy_context()
        future = self._threads.submit(partial(context.run, _call_for_future, call))
        run.thread = asyncio.wrap_future(future)
        try:
            return await asyncio.shield(run.thread)
        except asyncio.CancelledError:
            if run.stop is Stop.TIMEOUT:
                await asyncio.wait([run.thread], timeout=self._settings.timeout_grace_seconds)
            elif run.stop is Stop.SHUTDOWN:
                # The worker gives it a while, and then says that the lease is lost.
                await asyncio.wait([run.thread])
            if run.stop is not None and run.thread.done():
                return run.thread.result()
            raise


def _call_for_future(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (StopIteration, GeneratorExit) as error:
        # No future can carry them: the waiting task would never wake up, or be closed.
        raise RuntimeError(f"the handler raised {type(error).__name__}") from error


def _only_one(error: BaseException) -> BaseException:
    """Take out what a task group raised if it is one error: a Permanent stays a Permanent."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _classify(definition: Definition, run: Run, error: BaseException) -> Outcome | None:
    match error:
        case _ if run.stop is Stop.LOST:
            return None
        case LeaseLost() if error.job_id == run.job.id:
            return None
        case Snooze(seconds=seconds):
            return Snoozed(seconds, _cut(codec.error_text(error)))
        case RetryAfter(seconds=seconds):
            return _failed(error, permanent=False, retry_after_seconds=seconds)
        case BadArguments():
            return _failed(error, permanent=True)
        case JobError():
            return _failed(error, permanent=_is_permanent(definition, error))
        case _ if run.stop is Stop.SHUTDOWN:
            # Whatever a handler makes of being told to stop: a deploy is no failure.
            return Released()
        case _ if run.stop is Stop.TIMEOUT:
            timeout = _timeout(definition, error)
            return _failed(timeout, permanent=_listed(definition, timeout) is True)
        case _:
            return _failed(error, permanent=_is_permanent(definition, error))


def _timeout(definition: Definition, error: BaseException) -> JobTimeout:
    text = f"took longer than {definition.timeout_seconds:g} s"
    if not isinstance(error, asyncio.CancelledError):
        text = f"{text}; told to stop, it raised {codec.error_text(error)}"
    return JobTimeout(text)


def _is_permanent(definition: Definition, error: BaseException) -> bool:
    """What the handler said wins; then the job's own lists; anything else is tried again."""
    if isinstance(error, Permanent | Transient):
        return isinstance(error, Permanent)
    return _listed(definition, error) is True


def _listed(definition: Definition, error: BaseException) -> bool | None:
    """Do the job's lists call it permanent? Transient comes first; None if they don't name it."""
    code = _code(error)
    for listed, answer in ((definition.transient, False), (definition.permanent, True)):
        for entry in listed:
            if entry == code if isinstance(entry, str) else isinstance(error, entry):
                return answer
    return None


def _failed(
    error: BaseException, *, permanent: bool, retry_after_seconds: float | None = None
) -> Failed:
    return Failed(
        code=_code(error),
        text=_cut(codec.error_text(error)),
        permanent=permanent,
        retry_after_seconds=retry_after_seconds,
    )


def _code(error: BaseException) -> str:
    """The error's own `code` if it is one, as on JobError, otherwise the name of its type."""
    try:
        code = getattr(error, "code", None)
    except Exception:
        code = None
    if isinstance(error, BadArguments):
        code = "BAD_ARGUMENTS"
    if not isinstance(code, str) or not code:
        code = type(error).__name__
    return codec.storable_text(code, ERROR_CODE_CHARS_MAX)


def _cut(text: str) -> str:
    return codec.storable_text(text, ERROR_TEXT_CHARS_MAX)
