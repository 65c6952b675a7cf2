"""Read records without changing them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from holdfast.store_api import DEFAULT_TENANT, Count, Filter, Page, QueueStatus, State
from holdfast_systems.documents.salesforce.client.ids import record_id_of
from holdfast_systems.documents.salesforce.store.claim import concerns
from holdfast_systems.documents.salesforce.store.records import (
    JOB_NAME,
    QUEUE,
    STATUSES,
    Record,
    read_time,
)
from holdfast_systems.documents.salesforce.store.write import NO_RECORD, Records

_FAR = datetime(3000, 1, 1, tzinfo=UTC)


async def find(records: Records, job_id: UUID) -> Record | None:
    record_id = record_id_of(job_id)
    if record_id is None:
        return None
    return next(iter(await records.find("records", ids=[record_id])), None)


async def page(records: Records, filter: Filter, limit: int, after: UUID | None) -> Page:
    """Read one page of records. Failed and dead jobs share a status in Salesforce, so a page of
    either may return fewer jobs than the limit even if more follow."""
    before = await _start(records, after)
    if before is None or not _may_match(filter):
        return Page([], None)
    created_before, record_id = before
    query = "page" if filter.correlation_id is None else "page_of_correlation"
    found = await records.find(
        query,
        statuses=sorted({STATUSES[state] for state in filter.states or State}),
        correlation_id=filter.correlation_id,
        before=created_before,
        id=record_id,
        limit=limit + 1,
    )
    has_more = len(found) > limit
    found = found[:limit]
    jobs = [
        job
        for record in found
        if (job := record.job(records.max_attempts)) is not None
        and (not filter.states or job.state in filter.states)
        and filter.fits_end(job)
    ]
    return Page(jobs, found[-1].job_id if has_more else None)


async def counts(records: Records) -> Sequence[Count]:
    states = [state for state in State if state is not State.DEAD]
    numbers = await asyncio.gather(
        *[records.count("count", status=STATUSES[state]) for state in states]
    )
    return [
        Count(QUEUE, state, number) for state, number in zip(states, numbers, strict=True) if number
    ]


async def queues(records: Records) -> Sequence[QueueStatus]:
    now = records.salesforce.now()
    ready, scheduled, running, *oldest = await asyncio.gather(
        records.count("count_due", now=now),
        records.count("count_scheduled", now=now),
        records.count("count", status=STATUSES[State.RUNNING]),
        records.find("oldest_due"),
        records.find("oldest_scheduled", now=now),
    )
    if not ready + scheduled + running:
        return []
    due = [run_at for found in oldest for record in found if (run_at := record.run_at)]
    seconds = (now - min(due)).total_seconds() if ready and due else None
    return [
        QueueStatus(
            name=QUEUE,
            ready=ready,
            scheduled=scheduled,
            running=running,
            oldest_ready_seconds=seconds if seconds is None else max(0.0, seconds),
        )
    ]


async def awaited(
    records: Records, names: Sequence[str], queues: Sequence[str] | None, within_seconds: float
) -> bool:
    if not concerns(names, queues):
        return False
    until = records.salesforce.now() + timedelta(seconds=within_seconds)
    return await records.count("awaited", until=until) > 0


def _may_match(filter: Filter) -> bool:
    return (
        filter.tenant in (None, DEFAULT_TENANT)
        and filter.parent_id is None
        and filter.tag is None
        and filter.name in (None, JOB_NAME)
        and filter.queue in (None, QUEUE)
    )


async def _start(records: Records, after: UUID | None) -> tuple[datetime, str] | None:
    """Find where a page starts: after this record, or at the top. None if the record is gone."""
    if after is None:
        return _FAR, NO_RECORD
    record = await find(records, after)
    created = read_time(record.created) if record else None
    return (created, record.id) if record and created else None
