"""Reads. A list comes in bounded steps, each along one index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final
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
from holdfast.domain.scope import scoped_tenant
from holdfast.domain.states import ENDED, LIVE, State
from holdfast.stores.postgres.rows import Fetch, to_count, to_job, to_watched

# A plan for the given values: absent filters fall away.
PLANNED: Final = "SET LOCAL plan_cache_mode = force_custom_plan"
# And one that follows the indexes job by job: with the statistics of a smaller table, it would read
# and sort all jobs of a tenant.
IN_ORDER: Final = (
    "SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_sort = off;"
    " SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = off"
)

_UNSUCCESSFUL = ENDED - {State.SUCCEEDED}


async def get(fetch: Fetch, job_id: UUID) -> Job | None:
    rows = await fetch("get", job_id=job_id, tenant=scoped_tenant())
    return to_job(rows[0]) if rows else None


async def attempts(fetch: Fetch, job_id: UUID) -> Sequence[Attempt]:
    return [Attempt(**row) for row in await fetch("attempts", job_id=job_id)]


async def requeued(fetch: Fetch, job_ids: Sequence[UUID]) -> dict[UUID, UUID]:
    rows = await fetch("requeued", ids=list(job_ids))
    return {row["job_id"]: row["new_id"] for row in rows}


async def changed(fetch: Fetch, known: Mapping[UUID, str]) -> dict[UUID, Watched | None]:
    versions = list(known.values())
    rows = await fetch("changed", ids=list(known), versions=versions, tenant=scoped_tenant())
    return {row["job_id"]: None if row["id"] is None else to_watched(row) for row in rows}


async def page(fetch: Fetch, filter: Filter, limit: int, after: UUID | None) -> Page:
    values = page_values(filter, limit, after)
    # Running jobs are few, but no index has them in order.
    settings = PLANNED if values["look_by"] == "running" else IN_ORDER
    rows = await fetch("page", settings=settings, **values)
    matches = [row for row in rows if row["is_match"]]
    jobs = [to_job(row) for row in matches[:limit]]
    if len(matches) > limit:
        return Page(jobs, jobs[-1].id)
    return Page(jobs, rows[-1]["id"] if rows and rows[-1]["is_last"] else None)


async def counts(fetch: Fetch, tenant: str | None) -> Sequence[Count]:
    return [to_count(row) for row in await fetch("counts", tenant=tenant)]


async def counts_up_to(fetch: Fetch, jobs_max: int, tenant: str | None) -> CappedCounts:
    if tenant is None:
        waiting = await fetch("counts_waiting", settings=IN_ORDER, look_max=jobs_max)
    else:
        bounds = {"tenant": tenant, "look_max": max(jobs_max, COUNTS_LOOK_MAX)}
        waiting = await fetch("counts_waiting_tenant", settings=IN_ORDER, **bounds)
    running = await fetch("counts_running", settings=IN_ORDER, tenant=tenant)
    ended = await fetch("counts_ended", settings=IN_ORDER, tenant=tenant)
    rows = [*waiting, *running, *ended]
    return CappedCounts.of(
        (CappedCount(*to_count(row), row["is_capped"]) for row in rows), jobs_max
    )


async def now(fetch: Fetch) -> datetime:
    (clock,) = await fetch("now")
    moment: datetime = clock["now"]
    return moment


async def pulse(fetch: Fetch, newest_max: int) -> Pulse:
    moment = await now(fetch)
    ended = await fetch("ended_counts")
    last = await fetch("ended_last", limit=RATE_JOBS_MAX, seconds=RATE_SECONDS)
    newest = await fetch("newest_ended", limit=newest_max)
    return Pulse(
        now=moment,
        ended=[to_count(row) for row in ended],
        ended_last_minute=[to_count(row) for row in last],
        newest=[Ended(**row) for row in newest],
    )


async def suspects(fetch: Fetch, names: Sequence[str], queues: Sequence[str] | None) -> int:
    rows = await fetch("suspects", names=names, queues=queues, limit=SUSPECTS_COUNTED_MAX)
    return int(rows[0][0])


async def awaited(
    fetch: Fetch, names: Sequence[str], queues: Sequence[str] | None, within_seconds: float
) -> bool:
    rows = await fetch("awaited", names=names, queues=queues, within_seconds=within_seconds)
    return bool(rows[0][0])


async def unknown_names(
    fetch: Fetch, names: Sequence[str], queues: Sequence[str] | None
) -> Sequence[str]:
    rows = await fetch("unknown_names", names=names, queues=queues)
    return [row["name"] for row in rows]


def page_values(filter: Filter, limit: int, after: UUID | None) -> dict[str, Any]:
    """Choose one index; the other conditions are checked job by job."""
    states = set(filter.states)
    look_by = "all"
    if filter.parent_id is not None:
        look_by = "parent"
    elif filter.correlation_id is not None:
        look_by = "correlation"
    elif filter.tenant not in (None, DEFAULT_TENANT):
        look_by = "tenant"
    elif states == {State.RUNNING}:
        look_by = "running"
    elif states and states <= _UNSUCCESSFUL:
        look_by = "unsuccessful"
    look_in = "all"
    if states:
        look_in = "live" if states <= LIVE else "ended" if states <= ENDED else "all"
    return msgspec.structs.asdict(filter) | {
        "look_by": look_by,
        "look_in": look_in,
        "look_max": PAGE_LOOK_MAX,
        "after": after,
        "limit": limit + 1,
    }
