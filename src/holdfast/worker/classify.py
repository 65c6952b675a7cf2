"""What a handler's error means for its job."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial

from holdfast.domain import texts
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
from holdfast.domain.outcomes import Failed, HandedBack, Outcome, Released, Snoozed
from holdfast.domain.signature import OtherArguments
from holdfast.job_function import Definition
from holdfast.worker.run import Run, Stop

Describe = Callable[[BaseException], str]

GROUPS_DEPTH_MAX = 100  # an exception group of the handler may contain itself


def classify(definition: Definition, run: Run, error: BaseException) -> Outcome | None:
    """Turn an error into an outcome; None means that the lease is lost.

    Reading the error may run code of its class, which may raise anything. Only this job fails then.
    """
    if run.is_lost:
        return None
    try:
        return _classify(definition, run, error)
    except BaseException as another:
        if run.stop is Stop.SHUTDOWN:
            return Released()
        return _unreadable(error, another)


def _unreadable(error: BaseException, another: BaseException) -> Failed:
    """Use only the types of both errors: nothing else of them can be trusted."""
    name = texts.type_name(error)
    text = f"{name}: can't be read: inspecting it raised {texts.type_name(another)}"
    return Failed(texts.storable_text(name, ERROR_CODE_CHARS_MAX), _cut(text))


def _classify(definition: Definition, run: Run, error: BaseException) -> Outcome | None:
    error = _only_one(error)
    describe = describer(run.encrypted, definition.signature.parameters)
    match error:
        case LeaseLost() if error.job_id == run.job.id:
            return None
        case Snooze() if (seconds := _seconds(error)) is not None:
            return Snoozed(seconds, _cut(describe(error)))
        case Snooze():
            text = f"snoozed without a number of seconds: {describe(error)}"
            return Failed(_code(error), _cut(text))
        case RetryAfter():
            return failed(definition, error, describe, False, _seconds(error))
        case OtherArguments():
            return HandedBack(_cut(texts.error_text(error)))
        case BadArguments():
            return Failed(_code(error), _cut(describe(error)), permanent=True)
        case JobError():
            return failed(definition, error, describe, is_permanent(definition, error))
        case _ if run.stop is Stop.SHUTDOWN:
            # Whatever the handler raises when it has to stop: a deploy is no failure.
            return Released()
        case _ if run.stop is Stop.TIMEOUT and isinstance(error, asyncio.CancelledError):
            return timed_out(definition)
        case _ if run.stop is Stop.TIMEOUT:
            return timed_out(definition, f"; while stopping, it raised {describe(error)}")
        case _:
            return failed(definition, error, describe, is_permanent(definition, error))


def timed_out(definition: Definition, what_followed: str = "") -> Failed:
    error = JobTimeout(f"took longer than {definition.timeout_seconds:g} s{what_followed}")
    return failed(
        definition, error, texts.error_text, permanent=_is_listed_permanent(definition, error)
    )


def _only_one(error: BaseException) -> BaseException:
    """Unwrap a task group's error if it is a single one, so that a Permanent stays Permanent."""
    for _ in range(GROUPS_DEPTH_MAX):
        if not isinstance(error, BaseExceptionGroup) or len(error.exceptions) != 1:
            break
        error = error.exceptions[0]
    return error


def is_permanent(definition: Definition, error: BaseException) -> bool:
    """The handler's own error class wins, then the job's lists. Anything else is retried."""
    if isinstance(error, Permanent | Transient):
        return isinstance(error, Permanent)
    return _is_listed_permanent(definition, error)


def _is_listed_permanent(definition: Definition, error: BaseException) -> bool:
    code = _code(error)
    for listed, answer in ((definition.transient, False), (definition.permanent, True)):
        for entry in listed:
            if entry == code if isinstance(entry, str) else isinstance(error, entry):
                return answer
    return False


def failed(
    definition: Definition,
    error: BaseException,
    describe: Describe,
    permanent: bool,
    retry_after_seconds: float | None = None,
) -> Failed:
    code = _code(error)
    breaker = definition.breaker
    return Failed(
        code=code,
        text=_cut(describe(error)),
        permanent=permanent,
        retry_after_seconds=retry_after_seconds,
        dependency_failed=None
        if breaker is None
        else not permanent and breaker.counts(error, code),
    )


def describer(encrypted: bool, parameters: Sequence[str] = ()) -> Describe:
    """What makes the text of an error. That of an encrypted job is withheld."""
    return partial(texts.withheld_text, parameters=parameters) if encrypted else texts.error_text


def _seconds(error: Snooze | RetryAfter) -> float | None:
    """How long to wait; None if that is not a number. A handler can set it to anything, and a
    subclass can leave it out."""
    try:
        seconds = float(error.seconds)
    except BaseException:
        return None
    return None if math.isnan(seconds) else seconds


def _code(error: BaseException) -> str:
    """The error's own `code` if it has a valid one, otherwise the name of its type."""
    try:
        # That of a SystemExit can be a message.
        code = None if isinstance(error, SystemExit) else getattr(error, "code", None)
    except BaseException:
        code = None
    if isinstance(error, BadArguments):
        code = "BAD_ARGUMENTS"
    if not isinstance(code, str) or not code:
        code = texts.type_name(error)
    return texts.storable_text(code, ERROR_CODE_CHARS_MAX)


def _cut(text: str) -> str:
    return texts.storable_text(text, ERROR_TEXT_CHARS_MAX)
