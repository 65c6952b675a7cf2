"""What a handler's error means for its job."""

from __future__ import annotations

import asyncio
import math

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
from holdfast.domain.outcomes import Failed, HandedBack, Outcome, Released, Snoozed
from holdfast.domain.signature import OtherArguments
from holdfast.job_function import Definition
from holdfast.worker.run import Run, Stop

GROUPS_DEPTH_MAX = 100  # a group of a handler's own may say that it holds itself


def classify(definition: Definition, run: Run, error: BaseException) -> Outcome | None:
    """Say what the error comes to; None means that the lease is lost.

    To look at the error may run code of its class, which may raise anything: that is part of how
    this job failed, and of no other.
    """
    if run.stop is Stop.LOST:
        return None
    try:
        return _classify(definition, run, error)
    except BaseException as another:
        if run.stop is Stop.SHUTDOWN:
            return Released()
        return unreadable(error, another)


def unreadable(error: BaseException, another: BaseException) -> Failed:
    """Settle for the types of both: nothing else of them can be trusted."""
    name = codec.type_name(error)
    text = f"{name}: can't be read: inspecting it raised {codec.type_name(another)}"
    return Failed(codec.storable_text(name, ERROR_CODE_CHARS_MAX), _cut(text))


def _classify(definition: Definition, run: Run, error: BaseException) -> Outcome | None:
    error = _only_one(error)
    match error:
        case LeaseLost() if error.job_id == run.job.id:
            return None
        case Snooze() if (seconds := _seconds(error)) is not None:
            return Snoozed(seconds, _cut(codec.error_text(error)))
        case Snooze():
            text = f"snoozed without a number of seconds: {codec.error_text(error)}"
            return Failed(_code(error), _cut(text))
        case RetryAfter():
            seconds = _seconds(error)
            return _failed(definition, error, permanent=False, retry_after_seconds=seconds)
        case OtherArguments():
            return HandedBack(_cut(codec.error_text(error)))
        case BadArguments():
            return Failed(_code(error), _cut(codec.error_text(error)), permanent=True)
        case JobError():
            return _failed(definition, error, permanent=_is_permanent(definition, error))
        case _ if run.stop is Stop.SHUTDOWN:
            # Whatever a handler makes of being told to stop: a deploy is no failure.
            return Released()
        case _ if run.stop is Stop.TIMEOUT and isinstance(error, asyncio.CancelledError):
            return timed_out(definition)
        case _ if run.stop is Stop.TIMEOUT:
            return timed_out(definition, f"; told to stop, it raised {codec.error_text(error)}")
        case _:
            return _failed(definition, error, permanent=_is_permanent(definition, error))


def timed_out(definition: Definition, what_followed: str = "") -> Failed:
    error = JobTimeout(f"took longer than {definition.timeout_seconds:g} s{what_followed}")
    return _failed(definition, error, permanent=_listed(definition, error) is True)


def _only_one(error: BaseException) -> BaseException:
    """Take out what a task group raised if it is one error: a Permanent stays a Permanent."""
    for _ in range(GROUPS_DEPTH_MAX):
        if not isinstance(error, BaseExceptionGroup) or len(error.exceptions) != 1:
            break
        error = error.exceptions[0]
    return error


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
    definition: Definition,
    error: BaseException,
    *,
    permanent: bool,
    retry_after_seconds: float | None = None,
) -> Failed:
    code = _code(error)
    breaker = definition.breaker
    return Failed(
        code=code,
        text=_cut(codec.error_text(error)),
        permanent=permanent,
        retry_after_seconds=retry_after_seconds,
        dependency_failed=None
        if breaker is None
        else not permanent and breaker.counts(error, code),
    )


def _seconds(error: Snooze | RetryAfter) -> float | None:
    """How long to wait; None if that is no number. A handler can set it to anything, and a class
    of its own can leave it out."""
    try:
        seconds = float(error.seconds)
    except BaseException:
        return None
    return None if math.isnan(seconds) else seconds


def _code(error: BaseException) -> str:
    """The error's own `code` if it is one, as on JobError, otherwise the name of its type."""
    try:
        code = getattr(error, "code", None)
    except BaseException:
        code = None
    if isinstance(error, BadArguments):
        code = "BAD_ARGUMENTS"
    if not isinstance(code, str) or not code:
        code = codec.type_name(error)
    return codec.storable_text(code, ERROR_CODE_CHARS_MAX)


def _cut(text: str) -> str:
    return codec.storable_text(text, ERROR_TEXT_CHARS_MAX)
