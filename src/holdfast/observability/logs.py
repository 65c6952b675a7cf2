"""Structured events on the standard library's logger "holdfast".

An event has a name, a message and fields from a fixed list, which keeps arguments, results and
secrets out. The library configures no logging: `configure` is for our own processes, like
`holdfast worker`. Every record stays on its line, and passwords in it are masked.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from traceback import FrameSummary, StackSummary, TracebackException, extract_tb
from typing import Any, Final, Literal, TextIO, TypedDict, Unpack
from uuid import UUID

from holdfast.domain.secrets import masked
from holdfast.domain.texts import WITHHELD, error_text, type_name

Format = Literal["json", "text", "auto"]

VALUE_CHARS_MAX: Final = 1000
MESSAGE_CHARS_MAX: Final = 8000
TRACEBACK_CHARS_MAX: Final = 32_000
ERRORS_CHAINED_MAX: Final = 50

_logger = logging.getLogger("holdfast")


class Fields(TypedDict, total=False):
    """What an event can contain besides its name and message."""

    job_id: UUID | str | None
    name: str | None
    queue: str | None
    state: str | None
    tenant: str | None
    attempt: int | None
    max_attempts: int | None
    fence: int | None
    worker_id: str | None
    duration_ms: float | None
    delay_seconds: float | None
    error_code: str | None
    error_text: str | None
    correlation_id: str | None
    count: int | None
    concurrency: int | None
    queues: str | None
    database: str | None
    process_id: int | None
    breaker: str | None
    version: str | None
    app_version: str | None
    jobs: str | None
    messenger: str | None
    address: str | None
    direction: str | None


ALLOWED: Final = tuple(Fields.__annotations__)


class Event:
    """The message of a log record. The formatters here take it apart."""

    __slots__ = ("fields", "message", "name", "traceback")

    def __init__(
        self, name: str, message: str, fields: dict[str, Any], traceback: str | None = None
    ) -> None:
        self.name = name
        self.message = message
        self.fields = fields
        self.traceback = traceback

    def __str__(self) -> str:
        words = [_shown(self.name, VALUE_CHARS_MAX), _shown(self.message, MESSAGE_CHARS_MAX)]
        words += [f"{key}={_shown_value(value)}" for key, value in self.fields.items()]
        line = " ".join(word for word in words if word)
        # As the formatters of others show the traceback of any record.
        return line if self.traceback is None else f"{line}\n{self.traceback}"


def event(
    level: int,
    event_name: str,
    message: str = "",
    /,
    *,
    exception: BaseException | None = None,
    traceback: str | None = None,
    **fields: Unpack[Fields],
) -> None:
    """Log an event, like `event(logging.INFO, "job.succeeded", job_id=job.id)`. A `traceback` was
    formatted before, maybe in another process."""
    if not _logger.isEnabledFor(level):
        return
    known: dict[str, Any] = fields  # type: ignore[assignment]
    given = {key: known[key] for key in ALLOWED if known.get(key) is not None}
    # The application's log handlers may raise; that must not keep a job from ending.
    with suppress(Exception):
        told = Event(event_name, message, given, traceback)
        _logger.log(level, told, exc_info=exception, stacklevel=2)


def enabled(level: int) -> bool:
    """Whether events of this level are logged, for callers that gather fields."""
    return _logger.isEnabledFor(level)


def configure(
    format: Format = "auto",
    level: int | str = logging.INFO,
    job_filter: logging.Filter | None = None,
) -> None:
    """Log to stderr: JSON lines, or readable lines in a terminal. `job_filter` adds to a record the
    job whose handler logs it."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _StderrHandler)]:
        root.removeHandler(handler)
    handler = _StderrHandler(sys.stderr)
    readable = format == "text" or (format == "auto" and sys.stderr.isatty())
    handler.setFormatter(_TextFormatter(_colored(sys.stderr)) if readable else _JsonFormatter())
    if job_filter is not None:
        handler.addFilter(job_filter)
    root.addHandler(handler)
    root.setLevel(level.upper() if isinstance(level, str) else level)


def configuration() -> tuple[Format, int] | None:
    """The format and level that `configure` set, to pass on to a child process; None if unset."""
    root = logging.getLogger()
    for handler in root.handlers:
        if isinstance(handler, _StderrHandler):
            readable = isinstance(handler.formatter, _TextFormatter)
            return "text" if readable else "json", root.level
    return None


def configured() -> bool:
    """Whether somebody (the user's module, say) has set up logging in this process."""
    return bool(logging.getLogger().handlers)


class _StderrHandler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Report a record that can't be written, without its contents."""
        error = type(sys.exception()).__name__
        problem = Event("log", f"can't write a record of {record.name}: {error}", {})
        report = logging.LogRecord("holdfast", logging.ERROR, "", 0, problem, None, None)
        with suppress(Exception):
            self.stream.write(self.format(report) + self.terminator)
            self.flush()


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        event = _event_of(record)
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": _masked(event.name, VALUE_CHARS_MAX),
            "message": _masked(event.message, MESSAGE_CHARS_MAX),
        }
        if not isinstance(record.msg, Event):
            line["logger"] = _masked(record.name, VALUE_CHARS_MAX)
        line |= {key: _json_value(value) for key, value in event.fields.items()}
        if rows := _traceback(record):
            line["traceback"] = "\n".join(rows)
        # ASCII only: newlines, control and direction characters are escaped.
        return json.dumps(line, allow_nan=False)


class _TextFormatter(logging.Formatter):
    def __init__(self, colored: bool) -> None:
        super().__init__()
        self._colored = colored

    def format(self, record: logging.LogRecord) -> str:
        event = _event_of(record)
        when = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S.%f")[:-3]
        level = self._painted(f"{record.levelname:<7}", _COLORS.get(record.levelname, ""))
        name = event.name if isinstance(record.msg, Event) else record.name
        words = [
            self._painted(when, _DIM),
            level,
            self._painted(_shown(name, VALUE_CHARS_MAX), _BOLD),
            _shown(event.message, MESSAGE_CHARS_MAX),
        ]
        for key, value in _for_people(event.fields).items():
            color = _RED if key == "error_code" else ""
            words.append(self._painted(f"{key}=", _DIM) + self._painted(_shown_value(value), color))
        lines = [" ".join(word for word in words if word)]
        # The bar keeps a line of a traceback from looking like a log line.
        lines += [f"  | {one_line(row, VALUE_CHARS_MAX)}" for row in _traceback(record)]
        return "\n".join(lines)

    def _painted(self, text: str, color: str) -> str:
        return f"{color}{text}\x1b[0m" if self._colored and color else text


_HEADER = "Traceback (most recent call last):\n"
_BOLD = "\x1b[1m"
_DIM = "\x1b[2m"
_RED = "\x1b[31m"
_FOR_MACHINES = {"job_id", "state", "max_attempts", "fence", "worker_id"}
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_WORKER = (os.path.join(_PACKAGE, "worker"), os.path.join(_PACKAGE, "runtime"))
# The fields of a job, and the attributes of a record in which `LogFilter` keeps them.
_OF_JOB = {
    "job_id": "job_id",
    "name": "job_name",
    "tenant": "tenant",
    "attempt": "attempt",
    "correlation_id": "correlation_id",
}
_COLORS = {
    "DEBUG": _DIM,
    "INFO": "\x1b[32m",
    "WARNING": "\x1b[33m",
    "ERROR": _RED,
    "CRITICAL": "\x1b[1;31m",
}


def _colored(stream: TextIO) -> bool:
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def _for_people(fields: dict[str, Any]) -> dict[str, Any]:
    """What people look for in a line about a job. JSON lines have all fields."""
    if "job_id" not in fields:
        return fields
    kept = {key: value for key, value in fields.items() if key not in _FOR_MACHINES}
    if "attempt" in fields and "max_attempts" in fields:
        kept["attempt"] = f"{fields['attempt']}/{fields['max_attempts']}"
    for key in ("queue", "tenant"):
        if kept.get(key) == "default":
            del kept[key]
    return {**kept, "job_id": fields["job_id"]}


def _event_of(record: logging.LogRecord) -> Event:
    if isinstance(record.msg, Event):
        return record.msg
    # An application can add: logger.info("paid", extra={"event": "paid", "fields": {...}}).
    event, fields = getattr(record, "event", "log"), getattr(record, "fields", {})
    job = {key: getattr(record, attribute, None) for key, attribute in _OF_JOB.items()}
    known = {key: value for key, value in job.items() if value is not None}
    given = fields if isinstance(fields, dict) else {}
    return Event(str(event), record.getMessage(), {**known, **given})


def _traceback(record: logging.LogRecord) -> list[str]:
    if isinstance(record.msg, Event) and record.msg.traceback is not None:
        return record.msg.traceback.split("\n")
    if not record.exc_info or record.exc_info[1] is None:
        return []
    return formatted(record.exc_info[1]).split("\n")


def formatted(error: BaseException, *, withheld: bool = False) -> str:
    """The error's traceback, without its secrets; if `withheld`, without messages."""
    try:
        text = _withheld(error) if withheld else _formatted(error)
    except BaseException as another:  # the error's class can run any code here
        text = f"{type_name(error)}: can't be read: {type_name(another)}"
    return _masked(text.rstrip(), TRACEBACK_CHARS_MAX)


def _formatted(error: BaseException) -> str:
    """Format the error with its causes, unless a loop left too many of them to read, or groups
    nested deeper than the interpreter goes."""
    chained: BaseException | None = error
    for _ in range(ERRORS_CHAINED_MAX):
        chained = chained and (chained.__cause__ or chained.__context__)
    if chained is None:
        with suppress(RecursionError):
            return "".join(_without_workers_frames(error).format())
    return error_text(error)


def _withheld(error: BaseException) -> str:
    """Only types and frames, with those of the causes: messages and groups may quote anything."""
    parts: list[str] = []
    each: BaseException | None = error
    for _ in range(ERRORS_CHAINED_MAX):
        if each is None:
            break
        stack = StackSummary.from_list(_others(extract_tb(each.__traceback__)))
        lines = [_HEADER, *stack.format(), f"{type_name(each)}: {WITHHELD}\n"]
        parts.insert(0, "".join(lines))
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return "\n".join(parts)


def _without_workers_frames(error: BaseException) -> TracebackException:
    """Leave out how the worker called the handler."""
    whole = TracebackException.from_exception(error)
    each: TracebackException | None = whole
    while each is not None:
        each.stack = StackSummary.from_list(_others(each.stack))
        each = each.__cause__ or each.__context__
    return whole


def _others(stack: StackSummary) -> list[FrameSummary]:
    return [frame for frame in stack if not frame.filename.startswith(_WORKER)] or [*stack]


def _json_value(value: Any) -> Any:
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _masked(str(value), VALUE_CHARS_MAX)


def _shown_value(value: Any) -> str:
    text = _shown(str(value), VALUE_CHARS_MAX)
    plain = text and not any(character in ' "=' for character in text)
    return text if plain else '"' + text.replace('"', '\\"') + '"'


def _masked(text: str, chars_max: int) -> str:
    """Truncate the text, which may be very long, before searching it for secrets."""
    return _ended(masked(text, chars_max), len(text), chars_max)


def _shown(text: str, chars_max: int) -> str:
    return _escaped(_masked(text, chars_max))


def one_line(text: str, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """Escape what would end the line, move the cursor or change the writing direction."""
    return _escaped(_ended(text[:chars_max], len(text), chars_max))


def _ended(text: str, chars: int, chars_max: int) -> str:
    """If the text was cut off, say how long it was."""
    if chars > chars_max:
        text += f"... ({chars} characters)"
    return text.encode("utf-8", "replace").decode()


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
