"""The statements, and rows as values of the domain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.domain import codec
from holdfast.domain.job import DEFAULT_TENANT, Claimed, Count, Job, JobStatus, Reclaimed, Watched
from holdfast.domain.states import State
from holdfast.stores.statements import Statement, load_folder
from holdfast.transactions.drivers.marks import IN_BLOCK

SQL: Final[Mapping[str, Statement]] = load_folder(__package__, numbered=True, in_block=IN_BLOCK)

Fetch = Callable[..., Awaitable[Sequence[Any]]]  # takes a statement's name and values
NO_FAILURES: Final[Mapping[str, int]] = {}
_NOT_OF_JOB = ("in_history", "is_match", "is_last")


async def fetch_on(connection: Any, name: str, /, **values: object) -> Sequence[Any]:
    statement = SQL[name]
    rows: Sequence[Any] = await connection.fetch(statement.sql, *statement.arguments(values))
    return rows


def to_claimed(row: Any) -> Claimed:
    """Read a row by position, in the order of `claimed.sql`: every job passes here."""
    *values, failures, _run_at, waited_seconds = row
    known = NO_FAILURES if failures is None else codec.decode(failures)
    values += known, 0, False, waited_seconds
    return Claimed(*values)


def to_job(row: Any) -> Job:
    values = {name: value for name, value in row.items() if name not in _NOT_OF_JOB}
    values["state"] = State(values["state"])
    values["tags"] = tuple(values["tags"])
    values["tenant"] = values["tenant"] or DEFAULT_TENANT
    for name in ("arguments", "progress", "result"):
        if values[name] is not None:
            values[name] = codec.decode(values[name])
    return Job(**values)


def to_watched(row: Any) -> Watched:
    values = {name: row[name] for name in JobStatus.__struct_fields__}
    values["state"] = State(values["state"])
    if values["progress"] is not None:
        values["progress"] = codec.decode(values["progress"])
    tenant = row["tenant"] or DEFAULT_TENANT
    return Watched(row["version"], tenant, row["name"], JobStatus(**values))


def to_count(row: Any) -> Count:
    return Count(row["queue"], State(row["state"]), row["jobs"])


def to_reclaimed(row: Any) -> Reclaimed:
    values = {name: row[name] for name in Reclaimed._fields}
    return Reclaimed(**values | {"state": State(row["state"])})
