"""The statements, how rows are fetched, and what they are in the domain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.domain import codec
from holdfast.domain.job import Attempt, Claimed, Count, Job, Reclaimed
from holdfast.domain.states import State
from holdfast.stores.statements import Statement, load_folder
from holdfast.transactions.drivers.marks import IN_BLOCK

SQL: Final[Mapping[str, Statement]] = load_folder(__package__, numbered=True, in_block=IN_BLOCK)

Fetch = Callable[..., Awaitable[Sequence[Any]]]  # by a statement's name, on any connection


async def fetch_on(connection: Any, name: str, /, **values: object) -> Sequence[Any]:
    statement = SQL[name]
    rows: Sequence[Any] = await connection.fetch(statement.sql, *statement.arguments(values))
    return rows


def to_claimed(row: Any) -> Claimed:
    """Of a row as `claimed.sql` has it; taken apart at once, because every job comes this way."""
    *values, _run_at = row
    return Claimed(*values)


def to_job(row: Any) -> Job:
    values = dict(row)
    values["state"] = State(values["state"])
    values["attempts"] = values.pop("attempt")
    values["tags"] = tuple(values["tags"])
    for name in ("arguments", "progress", "result"):
        if values[name] is not None:
            values[name] = codec.decode(values[name])
    return Job(**values)


def to_count(row: Any) -> Count:
    return Count(row["queue"], State(row["state"]), row["jobs"])


def to_attempt(row: Any) -> Attempt:
    return Attempt(**dict(row))


def to_reclaimed(row: Any) -> Reclaimed:
    return Reclaimed(
        job_id=row["id"],
        name=row["name"],
        queue=row["queue"],
        tenant=row["tenant"],
        correlation_id=row["correlation_id"],
        attempt=row["attempt"],
        fence=row["fence"],
        state=State(row["state"]),
        worker=row["worker"],
        error_code=row["error_code"],
        suspect=row["suspect"],
    )
