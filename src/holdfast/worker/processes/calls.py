"""Calls of functions in child processes. Arguments and results travel as pickles."""

from __future__ import annotations

import copyreg
import inspect
import io
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FunctionType
from typing import Any

from holdfast.domain import texts
from holdfast.domain.errors import BadArguments, JobError, PayloadTooLarge
from holdfast.domain.limits import PICKLE_BYTES_MAX
from holdfast.worker.processes import memory
from holdfast.worker.processes.messages import Call, Returned
from holdfast.worker.processes.origin import MAIN, MAIN_AGAIN, load


def pack_arguments(name: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> bytes:
    return _dump(f"the arguments of {name}", (arguments, keywords))


def perform(call: Call) -> Returned:
    """Import the function and call it, in a child."""
    try:
        with memory.limited(call.memory_bytes_max):
            function = load(call.origin)
            returned = answer(call.origin.name, function, call.arguments)
    except BaseException as error:
        returned = _raised(call.origin.name, error)
    returned.bytes_used = memory.used_bytes()
    return returned


def answer(name: str, function: Callable[..., Any], arguments: bytes) -> Returned:
    try:
        args, keywords = pickle.loads(arguments)
        return Returned(_dump(f"the result of {name}", plain(function(*args, **keywords))))
    except BaseException as error:
        return _raised(name, error)


def plain(value: Any) -> Any:
    """Refuse what an async function returns: a child runs no event loop."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError("an async function can't run in a child process; use a plain one")
    return value


def result_of(name: str, returned: Returned) -> Any:
    """Return what the function returned, or raise what it raised."""
    # Children know the main program by this name, as those of multiprocessing do.
    sys.modules.setdefault(MAIN_AGAIN, sys.modules[MAIN])
    try:
        value = pickle.loads(returned.pickle)
    except BaseException as error:
        kind = texts.type_name(error)
        raise BadArguments(f"what {name} returned or raised can't be unpickled: {kind}") from error
    if returned.raised:
        raise value
    return value


def _raised(name: str, error: BaseException) -> Returned:
    """An error of the function as itself or, if that can't be pickled or is no `Exception`, as a
    JobError that tells its type and text. Reading it may run code of its class."""
    lacked_memory = issubclass(type(error), MemoryError)
    if issubclass(type(error), Exception):
        with suppress(BaseException):
            if frames := texts.frames(error.__traceback__):
                error.add_note("\n".join(["in its process:", *frames]))
            data = _dump("the error", error)
            pickle.loads(data)
            return Returned(data, raised=True, lacked_memory=lacked_memory)
    kind = text = texts.type_name(error)
    with suppress(BaseException):
        text = texts.error_text(error)
    described = JobError(f"{name} raised {text}", code=kind)
    return Returned(_dump("the error", described), raised=True, lacked_memory=lacked_memory)


def _dump(what: str, value: object) -> bytes:
    file = io.BytesIO()
    try:
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(value)
    except MemoryError:
        raise
    except Exception as error:
        reason = f"{texts.type_name(error)}: {texts.shown(error, str)}"
        raise BadArguments(f"{what} can't be pickled: {reason}") from error
    if file.tell() > PICKLE_BYTES_MAX:
        raise PayloadTooLarge(
            f"the pickle of {what} is {file.tell():,} bytes; the limit is {PICKLE_BYTES_MAX:,}."
            " Pass the path of a file instead"
        )
    return file.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Restore an error without its `__init__`, whose arguments are not kept."""
        kind: Any = type(value)
        if (
            isinstance(value, BaseException)
            and isinstance(kind.__init__, FunctionType)
            and kind.__reduce__ is BaseException.__reduce__
            and kind.__reduce_ex__ is object.__reduce_ex__
        ):
            return copyreg.__newobj__, (kind, *value.args), value.__dict__  # type: ignore[attr-defined]
        return NotImplemented
