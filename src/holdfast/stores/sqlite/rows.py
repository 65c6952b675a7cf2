"""The statements, and conversions of times, ids and JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.domain.errors import StoreRefused
from holdfast.domain.times import FIRST, LAST
from holdfast.stores.statements import Statement, load_folder

SQL: Final[Mapping[str, Statement]] = load_folder(__package__, numbered=False)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS = 1_000_000
_FIRST = (FIRST - _EPOCH) // _MICROSECOND
_LAST = (LAST - _EPOCH) // _MICROSECOND


def fetch(connection: sqlite3.Connection, name: str, /, **values: object) -> list[dict[str, Any]]:
    """Run a statement, and return its rows as dicts."""
    cursor = connection.execute(SQL[name].sql, values)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Read everything in the block at one moment."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("COMMIT")


def from_time(value: datetime) -> int:
    if value.tzinfo is None:
        raise StoreRefused(f"the time {value.isoformat()} has no time zone")
    return (value - _EPOCH) // _MICROSECOND


def to_words(value: datetime) -> str:
    """Write a time as readable text that sorts like times do."""
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def adapted(value: object) -> object:
    """Convert what a PostgreSQL driver would accept as it is."""
    match value:
        case datetime():
            from_time(value)  # refuses a time without a zone
            return to_words(value)
        case UUID() | Decimal():
            return str(value)
        case str():
            return text(value)
    return value


def to_time(microseconds: int) -> datetime:
    """Read a time. One that Python can't represent becomes the first or the last one."""
    if _FIRST <= microseconds <= _LAST:
        return _EPOCH + timedelta(microseconds=microseconds)
    return FIRST if microseconds < 0 else LAST


def to_time_or_none(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else to_time(microseconds)


def to_id_or_none(text: str | None) -> UUID | None:
    return None if text is None else UUID(text)


def seconds_since(then: int, now: int) -> float:
    """The seconds between two times; a start before the epoch counts as the epoch."""
    return (now - max(min(then, now), 0)) / _MICROSECONDS


def after(now: int, seconds: float) -> int:
    return now + round(seconds * _MICROSECONDS)


def text(value: str | None) -> str | None:
    """Refuse a NUL, as other stores do: SQLite would store it and lose what follows."""
    if value is not None and "\0" in value:
        raise StoreRefused("text with a NUL character can't be stored")
    return value


def document(value: bytes | None) -> str | None:
    return None if value is None else text(value.decode())


def to_document(value: str | None) -> Any:
    """Read JSON. If it is not valid Unicode, which SQLite allows, return its text."""
    if value is None:
        return None
    try:
        return msgspec.json.decode(value)
    except msgspec.DecodeError:
        return value


def to_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def ids_to_json(ids: Iterable[UUID]) -> str:
    return to_json(sorted({str(job_id) for job_id in ids}))
