"""Taking back what ran out, together if possible, and one by one around what can't be ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.domain.errors import StoreRefused
from holdfast.domain.job import Reclaimed
from holdfast.domain.limits import CRASHES_IN_COMPANY_MAX
from holdfast.domain.retention import Retention
from holdfast.stores.postgres.records import Fetch, to_reclaimed
from holdfast.stores.postgres.settles import retention_values


async def reclaim(
    fetch: Fetch, retention: Retention, limit: int, dead_worker: str | None, reason: str
) -> Sequence[Reclaimed]:
    values: dict[str, object] = {
        "limit": limit,
        "dead_worker": dead_worker,
        "outcome": "lost" if dead_worker is None else "crashed",
        "error_code": "LEASE_LOST" if dead_worker is None else "CRASHED",
        "reason": "stopped renewing its lease" if dead_worker is None else reason,
        "crashes_in_company_max": CRASHES_IN_COMPANY_MAX,
        **retention_values(retention),
    }
    try:
        rows = await fetch("reclaim" if dead_worker is None else "reclaim_worker", **values)
    except StoreRefused:
        rows = await _one_by_one(fetch, values)
    return [to_reclaimed(row) for row in rows]


async def _one_by_one(fetch: Fetch, values: dict[str, object]) -> Sequence[Any]:
    """Pass over jobs that the database does not let end; say so if there are no others."""
    rows: list[Any] = []
    refused: StoreRefused | None = None
    found = await fetch("reclaimable", limit=values["limit"], dead_worker=values["dead_worker"])
    for row in found:
        try:
            rows += await fetch("reclaim_one", job_id=row["id"], **values)
        except StoreRefused as error:
            refused = error
    if refused is not None and not rows:
        raise refused
    return rows
