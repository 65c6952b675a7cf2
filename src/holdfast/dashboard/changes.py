"""Bulk changes that the dashboard creates: a preview first, as every one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from holdfast.dashboard.page import Visit
from holdfast.domain.bulk import BulkChange
from holdfast.domain.job import Filter

BULK: Final = "/ui/bulk"


async def create_change(
    visit: Visit,
    action: str,
    jobs: Filter | Sequence[UUID],
    *,
    jobs_per_second: float | None = None,
    because: str | None = None,
    again: bool = False,
) -> BulkChange:
    """Find the jobs of a change and record it, as `POST /v1/bulk` does. Nothing changes until
    somebody starts it."""
    caller = visit.caller
    # The search may take seconds: too long for a transaction.
    preview = await caller.bulk._preview(
        action,
        jobs,
        jobs_per_second=jobs_per_second,
        by=caller.name,
        because=because,
        again=again,
    )
    async with caller.hf.transaction() as connection:
        change = await caller.bulk._record(preview, connection=connection)
        await caller.audit(
            "bulk.create", change.id, jobs=change.total, because=because, connection=connection
        )
    return change
