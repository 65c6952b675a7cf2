"""Check parameters, and make texts and names storable in every database."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final

from holdfast.domain.errors import BadArguments, ConfigurationError, HoldfastError, JobError
from holdfast.domain.limits import (
    ERROR_FRAMES_MAX,
    ERROR_TEXT_CHARS_MAX,
    KEY_BYTES_MAX,
    KEY_CHARS_MAX,
    NAME_CHARS_MAX,
    REPR_CHARS_MAX,
    TAG_CHARS_MAX,
)
from holdfast.domain.secrets import masked

WITHHELD: Final = "withheld: the job is encrypted"
UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_UNNAMEABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# Bypasses a metaclass, which may define another `__name__`, or raise.
_TYPE_NAME: Final = type.__dict__["__name__"].__get__

_NAME_LIMITS: Final = {"idempotency_key": KEY_CHARS_MAX, "tag": TAG_CHARS_MAX}
_NAMES_OF_CODE: Final = frozenset({"app_version", "job name", "preset", "queue"})


def storable_text(text: object, chars_max: int) -> str:
    """Replace characters that a database rejects, and truncate to `chars_max`."""
    whole = text if type(text) is str else _words(text, str)
    cut = whole if len(whole) <= chars_max else whole[: chars_max - 1] + "…"
    return UNSTORABLE.sub("\ufffd", cut)


def pasted(name: str) -> str:
    """Quote a name at the end of a command to paste, so that it is not taken for an option."""
    quoted = shlex.quote(name)
    return f"-- {quoted}" if name.startswith("-") else quoted


def times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def shown(value: object, form: Callable[[object], str] = repr) -> str:
    """The object's repr or str, truncated."""
    return storable_text(_words(value, form), REPR_CHARS_MAX)


def type_name(value: object) -> str:
    """The name of the object's type, without running any code of that type."""
    return str.__str__(_TYPE_NAME(type(value)))


def error_text(error: BaseException) -> str:
    """Describe an error: type, message, the innermost frames of the user's code, and notes.

    Errors of Holdfast need no type: they are stored with a code and have a message for people.
    """
    message = _masked(_words(error, str), ERROR_TEXT_CHARS_MAX * 3 // 4)
    name = type_name(error)
    words = [message] if message and isinstance(error, BadArguments | JobError) else [name, message]
    first = ": ".join(filter(None, words))
    text = "\n".join([first, *frames(error.__traceback__), *_notes(error)])
    return storable_text(text, ERROR_TEXT_CHARS_MAX)


def withheld_text(error: BaseException, parameters: Sequence[str] = ()) -> str:
    """Describe an error of an encrypted job: its message and notes may quote the arguments. If it
    is about one of the handler's parameters, that is named."""
    if isinstance(error, BadArguments) and error.path and error.path[0] in parameters:
        first = f"argument {error.path[0]}: {WITHHELD}"
    elif isinstance(error, BadArguments | JobError):
        first = WITHHELD
    else:
        first = f"{type_name(error)}: {WITHHELD}"
    text = "\n".join([first, *frames(error.__traceback__)])
    return storable_text(text, ERROR_TEXT_CHARS_MAX)


def _masked(text: str, chars_max: int) -> str:
    """Hide secrets in a foreign text, even one that is cut off."""
    cut = masked(text) if len(text) <= chars_max else masked(text, chars_max - 1) + "…"
    return storable_text(cut, chars_max)


def check_name(kind: str, value: str) -> None:
    """Reject a name (a job name, queue, tenant, idempotency_key, tag, ...) that can't be stored."""
    chars_max = _NAME_LIMITS.get(kind, NAME_CHARS_MAX)
    if not isinstance(value, str):
        problem = f"must be a str, not {type(value).__name__}"
    elif not value:
        problem = "must not be empty"
    elif len(value) > chars_max:
        problem = f"has {len(value)} characters; the maximum is {chars_max}"
    elif match := _UNNAMEABLE.search(value):
        problem = f"{value!r} contains the character {match.group()!r}, which is not allowed"
    elif kind == "idempotency_key" and (size := len(value.encode())) > KEY_BYTES_MAX:
        problem = f"has {size} bytes in UTF-8; the maximum is {KEY_BYTES_MAX}"
    else:
        return
    error = ConfigurationError if kind in _NAMES_OF_CODE else BadArguments
    raise error(f"the {kind} {problem}")


def check_range(
    name: str,
    value: object,
    least: float,
    most: float,
    kind: Any = int | float,
    error: type[HoldfastError] = BadArguments,
) -> None:
    if not isinstance(value, kind) or not least <= value <= most:
        raise error(f"{name} must be {least} to {most}, not {value!r}")


def check_text(kind: str, value: str | None) -> None:
    """Reject a search text that no database can store, before one of them does."""
    if value is not None and not isinstance(value, str):
        raise BadArguments(f"{kind} must be a str, not {type(value).__name__}")
    if value is not None and (match := UNSTORABLE.search(value)):
        raise BadArguments(f"{kind} contains {match.group()!r}, which no job can have")


def _words(value: object, form: Callable[[object], str]) -> str:
    try:
        return str.__str__(form(value))
    except BaseException:
        # Even SystemExit and CancelledError: whatever it raises concerns only this object.
        return f"<{type_name(value)} without a readable text>"


def _notes(error: BaseException) -> list[str]:
    try:
        notes = [note for note in error.__notes__ if type(note) is str]
    except BaseException:
        return []  # it has none, or none that can be read
    return [_masked(note, ERROR_TEXT_CHARS_MAX // 4) for note in notes]


def frames(traceback: TracebackType | None) -> list[str]:
    """The innermost frames outside this package, without variables: they may hold secrets."""
    lines: list[str] = []
    while traceback is not None:
        frame = traceback.tb_frame
        if not str(frame.f_globals.get("__name__")).startswith("holdfast."):
            code = frame.f_code
            lines.append(f"  {code.co_filename}:{traceback.tb_lineno} in {code.co_qualname}")
            del lines[:-ERROR_FRAMES_MAX]
        traceback = traceback.tb_next
    return lines
