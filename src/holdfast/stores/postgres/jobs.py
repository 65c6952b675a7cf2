"""What operators do to one job: cancel, retry, requeue."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.domain.errors import DuplicateJob, StoreRefused
from holdfast.domain.retention import Retention
from holdfast.stores.postgres.rows import Fetch
from holdfast.stores.postgres.settle import retention_values
from holdfast.stores.protocol import Canceled


async def cancel(
    fetch: Fetch,
    retention: Retention,
    job_ids: Sequence[UUID],
    waiting_only: bool,
    reason: str | None,
) -> Sequence[Canceled]:
    rows = await fetch(
        "cancel",
        ids=sorted(set(job_ids)),
        waiting_only=waiting_only,
        reason=reason,
        **retention_values(retention),
    )
    return [Canceled(row["id"], row["was_running"]) for row in rows]


async def retry(fetch: Fetch, job_id: UUID) -> bool:
    return bool(await fetch("retry", job_id=job_id))


async def requeue(
    fetch: Fetch,
    retention: Retention,
    job_id: UUID,
    new_id: UUID,
    arguments: bytes | None,
    once: bool,
) -> bool:
    try:
        rows = await fetch(
            "requeue",
            job_id=job_id,
            new_id=new_id,
            arguments=arguments,
            once=once,
            longest_seconds=retention.longest_seconds,
        )
        return bool(rows)
    except StoreRefused as error:
        if getattr(error.__cause__, "constraint_name", None) == "jobs_pkey":
            raise DuplicateJob(new_id) from error
        raise
