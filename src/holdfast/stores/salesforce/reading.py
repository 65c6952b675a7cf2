"""What is read of records, without changing them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from holdfast.domain.job import Count, Filter, Page, Standing
from holdfast.domain.states import State
from holdfast.salesforce.ids import record_id_of
from holdfast.stores.salesforce.leasing import concerns
from holdfast.stores.salesforce.records import JOB_NAME, QUEUE, STATUSES, Record, read_time
from holdfast.stores.salesforce.writing import Records

_FAR = datetime(3000, 1, 1, tzinfo=UTC)
_NO_ID = "0" * 15


async def find(records: Records, job_id: UUID) -> Record | None:
    record_id = record_id_of(job_id)
    if record_id is None:
        return None
    return next(iter(await records.find("records", ids=[record_id])), None)


async def standing(records: Records, job_id: UUID) -> Standing | None:
    record = await find(records, job_id)
    if record is None or record.state is None:
        return None
    return Standing(record.state, record.fence)


async def page(
    records: Records, filter: Filter, limit: int, after: UUID | None, max_attempts: int
) -> Page:
    """Look at one page of records. Failed and dead jobs have one status in Salesforce, so a page
    of one kind may hold less than it looked at."""
    before = await _place(records, after)
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
        limit=limit,
    )
    jobs = [job for record in found if (job := record.job(max_attempts)) is not None]
    wanted = [
        job
        for job in jobs
        if (not filter.states or job.state in filter.states) and filter.fits_end(job)
    ]
    return Page(wanted, found[-1].job_id if len(found) == limit else None)


async def counts(records: Records) -> Sequence[Count]:
    states = [state for state in State if state is not State.DEAD]
    numbers = await asyncio.gather(
        *[records.count("count", status=STATUSES[state]) for state in states]
    )
    return [
        Count(QUEUE, state, number) for state, number in zip(states, numbers, strict=True) if number
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
        filter.tenant is None
        and filter.tag is None
        and filter.name in (None, JOB_NAME)
        and filter.queue in (None, QUEUE)
    )


async def _place(records: Records, after: UUID | None) -> tuple[datetime, str] | None:
    """Where a page begins: behind this record, or before all. None if there is no such record."""
    if after is None:
        return _FAR, _NO_ID
    record = await find(records, after)
    created = read_time(record.created) if record else None
    return (created, record.id) if record and created else None
