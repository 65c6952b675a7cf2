"""What is read of jobs, without a lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from holdfast.domain.job import Attempt, Count, Filter, Job, Page
from holdfast.domain.states import State
from holdfast.stores.sqlite.values import to_document, to_json, to_time, to_time_or_none
from holdfast.stores.statements import load, read_sql

_SQL = load(read_sql("sqlite", "reads.sql"), numbered=False)
_UNSUCCESSFUL = frozenset({State.FAILED, State.DEAD, State.CANCELED})
_BEYOND_ALL_IDS = "~"
_NAMES_LOOKED_AT_MAX = 200


def get(connection: sqlite3.Connection, job_id: UUID) -> Job | None:
    row = connection.execute(_SQL["job"].sql, {"id": str(job_id)}).fetchone()
    return None if row is None else _job(row)


def attempts(connection: sqlite3.Connection, job_id: UUID) -> Sequence[Attempt]:
    rows = connection.execute(_SQL["attempts"].sql, {"id": str(job_id)}).fetchall()
    return [_attempt(row) for row in rows]


def page(connection: sqlite3.Connection, filter: Filter, limit: int, after: UUID | None) -> Page:
    unsuccessful = filter.states and _UNSUCCESSFUL.issuperset(filter.states)
    statement = "page_of_unsuccessful" if unsuccessful else "page"
    bounds = {
        "after": _BEYOND_ALL_IDS if after is None else str(after),
        "states": to_json(filter.states) if filter.states else None,
        "queue": filter.queue,
        "name": filter.name,
        "tenant": filter.tenant,
        "tag": filter.tag,
        "correlation_id": filter.correlation_id,
        # One more than asked for tells whether there is a next page.
        "limit": limit + 1,
    }
    jobs = [_job(row) for row in connection.execute(_SQL[statement].sql, bounds).fetchall()]
    more = len(jobs) > limit
    return Page(jobs[:limit], jobs[limit - 1].id if more else None)


def counts(connection: sqlite3.Connection, tenant: str | None) -> Sequence[Count]:
    rows = connection.execute(_SQL["counts"].sql, {"tenant": tenant}).fetchall()
    return [Count(queue, State(state), jobs) for queue, state, jobs in rows]


def awaited(
    connection: sqlite3.Connection, names: Sequence[str], queues: Sequence[str] | None, until: int
) -> bool:
    bounds = {"names": to_json(list(names)), "queues": _queues(queues), "until": until}
    return bool(connection.execute(_SQL["awaited"].sql, bounds).fetchone()[0])


def unknown_names(
    connection: sqlite3.Connection, names: Sequence[str], queues: Sequence[str] | None, now: int
) -> Sequence[str]:
    bounds = {"queues": _queues(queues), "now": now, "limit": _NAMES_LOOKED_AT_MAX}
    found = {row[0] for row in connection.execute(_SQL["due_names"].sql, bounds).fetchall()}
    return sorted(found.difference(names))


def _queues(queues: Sequence[str] | None) -> str | None:
    return None if queues is None else to_json(list(queues))


def _job(row: Sequence[Any]) -> Job:
    (
        job_id,
        name,
        state,
        queue,
        priority,
        arguments,
        tenant,
        correlation_id,
        tags,
        idempotency_key,
        attempts,
        max_attempts,
        snoozes,
        releases,
        fence,
        lease_owner,
        lease_expires_at,
        run_at,
        expires_at,
        created_at,
        started_at,
        finished_at,
        progress,
        result,
        error_code,
        error_text,
        requeued_from,
    ) = row
    return Job(
        id=UUID(job_id),
        name=name,
        state=State(state),
        queue=queue,
        priority=priority,
        arguments=to_document(arguments),
        tenant=tenant,
        correlation_id=correlation_id,
        tags=tuple(to_document(tags)),
        idempotency_key=idempotency_key,
        attempts=attempts,
        max_attempts=max_attempts,
        snoozes=snoozes,
        releases=releases,
        fence=fence,
        lease_owner=lease_owner,
        lease_expires_at=to_time_or_none(lease_expires_at),
        run_at=to_time(run_at),
        expires_at=to_time_or_none(expires_at),
        created_at=to_time(created_at),
        started_at=to_time_or_none(started_at),
        finished_at=to_time_or_none(finished_at),
        progress=to_document(progress),
        result=to_document(result),
        error_code=error_code,
        error_text=error_text,
        requeued_from=None if requeued_from is None else UUID(requeued_from),
    )


def _attempt(row: Sequence[Any]) -> Attempt:
    job_id, attempt, fence, outcome, worker, started_at, ended_at, error_code, error_text = row
    return Attempt(
        job_id=UUID(job_id),
        attempt=attempt,
        fence=fence,
        outcome=outcome,
        worker=worker,
        started_at=to_time_or_none(started_at),
        ended_at=to_time(ended_at),
        error_code=error_code,
        error_text=error_text,
    )
