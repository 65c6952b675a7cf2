"""Rows of PostgreSQL as the domain's shapes, and how they are fetched."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from holdfast.domain import codec
from holdfast.domain.job import Attempt, Claimed, Job, Reclaimed
from holdfast.domain.states import State
from holdfast.stores.statements import Statement

Fetch = Callable[..., Awaitable[Sequence[Any]]]  # by a statement's name, on any connection


async def fetch(connection: Any, statement: Statement, /, **values: object) -> Sequence[Any]:
    rows: Sequence[Any] = await connection.fetch(statement.sql, *statement.arguments(values))
    return rows


def to_claimed(row: Any, *, probe: bool = False) -> Claimed:
    return Claimed(
        id=row[0],
        name=row[1],
        arguments=row[2],
        queue=row[3],
        priority=row[4],
        tenant=row[5],
        correlation_id=row[6],
        attempt=row[7],
        max_attempts=row[8],
        fence=row[9],
        snoozes=row[10],
        releases=row[11],
        expired=row[12],
        breaker=row[14],
        trace=row[15],
        probe=probe,
        capped=row[16],
    )


def to_job(row: Any) -> Job:
    values = dict(row)
    values["state"] = State(values["state"])
    values["attempts"] = values.pop("attempt")
    values["tags"] = tuple(values["tags"])
    for name in ("arguments", "progress", "result"):
        if values[name] is not None:
            values[name] = codec.decode(values[name])
    return Job(**values)


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
