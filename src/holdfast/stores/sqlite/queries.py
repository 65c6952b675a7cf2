"""Reads, which take no lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from holdfast.domain.job import (
    DEFAULT_TENANT,
    Attempt,
    CappedCount,
    CappedCounts,
    Count,
    Filter,
    Job,
    JobStatus,
    Page,
    Watched,
)
from holdfast.domain.limits import (
    COUNTS_LOOK_MAX,
    PAGE_LOOK_MAX,
    RATE_JOBS_MAX,
    SUSPECTS_COUNTED_MAX,
)
from holdfast.domain.overview import RATE_SECONDS, Ended, Pulse
from holdfast.domain.states import LIVE, State
from holdfast.stores.sqlite.rows import (
    SQL,
    after,
    fetch,
    from_time,
    ids_to_json,
    snapshot,
    to_document,
    to_id_or_none,
    to_json,
    to_time,
    to_time_or_none,
)

_BEYOND_ALL_IDS = "~"
_NAMES_LOOKED_AT_MAX = 200


class _PageSql(NamedTuple):
    """The statements of one step through a source of jobs."""

    edge: str
    edge_tenant: str
    matching: str


PAGES = {
    source: _PageSql(
        edge=f"{SQL[source].sql} {SQL['page_edge'].sql}",
        edge_tenant=f"{SQL[source].sql} {SQL['page_edge_tenant'].sql}",
        matching=f"{SQL[source].sql} {SQL['page_matching'].sql}",
    )
    for source in (
        "page_live",
        "page_leftovers",
        "page_history",
        "page_unsuccessful",
        "page_tenant",
        "page_correlation",
        "page_parent",
    )
}

_READERS: dict[str, Callable[[Any], Any]] = {
    "id": UUID,
    "state": State,
    "arguments": to_document,
    "tags": lambda tags: tuple(to_document(tags)),
    "lease_expires_at": to_time_or_none,
    "run_at": to_time,
    "expires_at": to_time_or_none,
    "created_at": to_time,
    "started_at": to_time_or_none,
    "finished_at": to_time_or_none,
    "progress": to_document,
    "result": to_document,
    "tenant": lambda tenant: tenant or DEFAULT_TENANT,
    "requeued_from": to_id_or_none,
    "parent_id": to_id_or_none,
}


def get(connection: sqlite3.Connection, job_id: UUID, tenant: str | None) -> Job | None:
    return next(iter(_records(connection, [str(job_id)], tenant)), None)


def attempts(connection: sqlite3.Connection, job_id: UUID) -> Sequence[Attempt]:
    return [_attempt(row) for row in fetch(connection, "attempts", id=str(job_id))]


def requeued(connection: sqlite3.Connection, job_ids: Sequence[UUID]) -> dict[UUID, UUID]:
    rows = connection.execute(SQL["requeued"].sql, {"ids": ids_to_json(job_ids)}).fetchall()
    return {UUID(job_id): UUID(new_id) for job_id, new_id in rows}


def changed(
    connection: sqlite3.Connection, known: Mapping[UUID, str], tenant: str | None
) -> dict[UUID, Watched | None]:
    read = fetch(connection, "changed", ids=ids_to_json(known), tenant=tenant)
    rows = {UUID(row["id"]): row for row in read}
    found = {job_id: _watched(rows[job_id]) if job_id in rows else None for job_id in known}
    return {
        job_id: job for job_id, job in found.items() if job is None or job.version != known[job_id]
    }


def page(connection: sqlite3.Connection, filter: Filter, limit: int, after: UUID | None) -> Page:
    """Look at the newest jobs along the best indexes."""
    # One job more shows whether there is a next page.
    bounds = _bounds(filter, limit + 1, after)
    sources = _sources(filter)
    with snapshot(connection):
        if filter != Filter():
            bounds["edge"] = max(_edge(connection, source, bounds) for source in sources)
        found = {
            job_id
            for source in sources
            for (job_id,) in connection.execute(PAGES[source].matching, bounds).fetchall()
        }
        ids = sorted(found, reverse=True)
        jobs = _records(connection, ids[:limit], filter.tenant)
    if len(ids) > limit:
        return Page(jobs, jobs[-1].id)
    return Page(jobs, UUID(bounds["edge"]) if bounds["edge"] else None)


def _bounds(filter: Filter, limit: int, after: UUID | None) -> dict[str, Any]:
    return msgspec.structs.asdict(filter) | {
        "after": _BEYOND_ALL_IDS if after is None else str(after),
        "edge": "",
        "states": to_json(filter.states) if filter.states else None,
        "parent_id": None if filter.parent_id is None else str(filter.parent_id),
        "since": None if filter.since is None else from_time(filter.since),
        "until": None if filter.until is None else from_time(filter.until),
        "look": PAGE_LOOK_MAX,
        "limit": limit,
    }


def _sources(filter: Filter) -> tuple[str, ...]:
    """Where matching jobs may be."""
    states = set(filter.states or State)
    if states <= LIVE:
        return ("page_live",)
    jobs = "page_live" if states & LIVE else "page_leftovers"
    if filter.parent_id is not None:
        return (jobs, "page_parent")
    if filter.correlation_id is not None:
        return (jobs, "page_correlation")
    if filter.tenant not in (None, DEFAULT_TENANT):
        return (jobs, "page_tenant")
    if State.SUCCEEDED not in states:
        return (jobs, "page_unsuccessful")
    return (jobs, "page_history")


def _edge(connection: sqlite3.Connection, source: str, bounds: dict[str, Any]) -> str:
    """The last id that this step looks at; an empty text, which sorts before all ids, if none."""
    page = PAGES[source]
    # An index that leads to the tenant's own jobs is enough.
    is_own = bounds["tenant"] is None or source == "page_tenant"
    row = connection.execute(page.edge if is_own else page.edge_tenant, bounds).fetchone()
    return "" if row is None else row[0]


def _records(connection: sqlite3.Connection, ids: Sequence[str], tenant: str | None) -> list[Job]:
    found = {row["id"]: row for row in fetch(connection, "get", ids=to_json(ids), tenant=tenant)}
    return [_job(found[job_id]) for job_id in ids if job_id in found]


def counts(connection: sqlite3.Connection, tenant: str | None) -> Sequence[Count]:
    statement = "counts" if tenant is None else "counts_tenant"
    rows = connection.execute(SQL[statement].sql, {"tenant": tenant}).fetchall()
    return [Count(queue, State(state), jobs) for queue, state, jobs in rows]


def counts_up_to(connection: sqlite3.Connection, jobs_max: int, tenant: str | None) -> CappedCounts:
    look_max = jobs_max if tenant is None else max(jobs_max, COUNTS_LOOK_MAX)
    bounds = {"tenant": tenant, "look_max": look_max}
    waiting = "counts_waiting" if tenant is None else "counts_waiting_tenant"
    with snapshot(connection):
        rows = [
            row
            for statement in (waiting, "counts_running", "counts_ended")
            for row in connection.execute(SQL[statement].sql, bounds).fetchall()
        ]
    return CappedCounts.of(
        (CappedCount(queue, State(state), jobs, bool(more)) for queue, state, jobs, more in rows),
        jobs_max,
    )


def pulse(connection: sqlite3.Connection, newest_max: int, now: int) -> Pulse:
    ended = connection.execute(SQL["ended_counts"].sql).fetchall()
    since = after(now, -RATE_SECONDS)
    last = connection.execute(
        SQL["ended_last"].sql, {"limit": RATE_JOBS_MAX, "since": since}
    ).fetchall()
    newest = connection.execute(
        SQL["newest_ended"].sql, {"limit": newest_max, "now": now}
    ).fetchall()
    return Pulse(
        now=to_time(now),
        ended=[Count(queue, State(state), jobs) for queue, state, jobs in ended],
        ended_last_minute=[Count(queue, State(state), jobs) for queue, state, jobs in last],
        newest=[Ended(*row) for row in newest],
    )


def suspects(
    connection: sqlite3.Connection, names: Sequence[str], queues: Sequence[str] | None, now: int
) -> int:
    bounds = {
        "names": to_json(list(names)),
        "queues": _queues(queues),
        "now": now,
        "limit": SUSPECTS_COUNTED_MAX,
    }
    counted: int = connection.execute(SQL["suspects"].sql, bounds).fetchone()[0]
    return counted


def awaited(
    connection: sqlite3.Connection, names: Sequence[str], queues: Sequence[str] | None, until: int
) -> bool:
    bounds = {"names": to_json(list(names)), "queues": _queues(queues), "until": until}
    return bool(connection.execute(SQL["awaited"].sql, bounds).fetchone()[0])


def unknown_names(
    connection: sqlite3.Connection, names: Sequence[str], queues: Sequence[str] | None, now: int
) -> Sequence[str]:
    bounds = {"queues": _queues(queues), "now": now, "limit": _NAMES_LOOKED_AT_MAX}
    found = {row[0] for row in connection.execute(SQL["unknown_names"].sql, bounds).fetchall()}
    return sorted(found.difference(names))


def _queues(queues: Sequence[str] | None) -> str | None:
    return None if queues is None else to_json(list(queues))


def _job(row: dict[str, Any]) -> Job:
    return Job(**row | {name: read(row[name]) for name, read in _READERS.items()})


def _watched(row: dict[str, Any]) -> Watched:
    progress = (row["progress"] or "").encode()
    seen = (row["fence"], row["state"], row["run_at"], blake2b(progress).hexdigest())
    status = {
        name: _READERS[name](row[name]) if name in _READERS else row[name]
        for name in JobStatus.__struct_fields__[1:]
    }
    return Watched(
        version="/".join(map(str, seen)),
        tenant=row["tenant"] or DEFAULT_TENANT,
        name=row["name"],
        status=JobStatus(job_id=UUID(row["id"]), **status),
    )


def _attempt(row: dict[str, Any]) -> Attempt:
    row["job_id"] = UUID(row["job_id"])
    row["started_at"] = to_time_or_none(row["started_at"])
    row["ended_at"] = to_time(row["ended_at"])
    return Attempt(**row)
