"""Reclaim expired leases: all at once or, if the database refuses a job, one by one.

Every lease that ended leaves a dead entry in the index of leases, in front of those that may
expire. As with the lanes of a claim, an old transaction can keep vacuum from clearing them, and a
scan of the index gets slower with every job. So scans take only a share of the time. The looks in
between go back to the last look, and a little further for rows that were locked then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.domain.errors import StoreRefused
from holdfast.domain.job import Reclaimed
from holdfast.domain.limits import CRASHES_IN_COMPANY_MAX
from holdfast.domain.retention import Retention
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.rows import Fetch, to_reclaimed
from holdfast.stores.postgres.settle import retention_values

LOOK_BACK_SECONDS = 5.0
SCAN_SHARE = 20  # scans take at most 1/20 of the time


class Reclaimer:
    def __init__(self, fetch: Fetch, retention: Retention, seam: Seam) -> None:
        self._fetch = fetch
        self._retention_values = retention_values(retention)
        self._seam = seam
        self._looked_at: float | None = None  # when the last look began, if it left nothing
        self._scanned_at = 0.0
        self._scan_seconds = 0.0

    async def reclaim(
        self, limit: int, dead_worker: str | None, reason: str
    ) -> Sequence[Reclaimed]:
        values: dict[str, object] = {
            "limit": limit,
            "dead_worker": dead_worker,
            "outcome": "lost" if dead_worker is None else "crashed",
            "error_code": "LEASE_LOST" if dead_worker is None else "CRASHED",
            "reason": "stopped renewing its lease" if dead_worker is None else reason,
            "crashes_in_company_max": CRASHES_IN_COMPANY_MAX,
            **self._retention_values,
        }
        if dead_worker is not None:
            rows = await self._reclaim("reclaim_worker", values)
        elif limit == 0:
            rows = await self._reclaim("reclaim", {**values, "back_seconds": 0.0})
        else:
            rows = await self._reclaim_expired(limit, values)
        return [to_reclaimed(row) for row in rows]

    async def _reclaim_expired(self, limit: int, values: Mapping[str, object]) -> Sequence[Any]:
        began = self._seam.monotonic()
        if self._looked_at is None or self._scan_is_due(began):
            try:
                rows = await self._reclaim("reclaim", {**values, "back_seconds": None})
            finally:
                self._scanned_at = self._seam.monotonic()
                self._scan_seconds = self._scanned_at - began
        else:
            back_seconds = began - self._looked_at + LOOK_BACK_SECONDS
            rows = await self._reclaim("reclaim", {**values, "back_seconds": back_seconds})
        self._looked_at = began if len(rows) < limit else None
        return rows

    def _scan_is_due(self, now: float) -> bool:
        return now - self._scanned_at >= SCAN_SHARE * self._scan_seconds

    async def _reclaim(self, statement: str, values: Mapping[str, object]) -> Sequence[Any]:
        try:
            return await self._fetch(statement, **values)
        except StoreRefused:
            return await self._one_by_one(values)

    async def _one_by_one(self, values: Mapping[str, object]) -> Sequence[Any]:
        """Skip jobs that the database refuses to end; raise if there are no others."""
        rows: list[Any] = []
        refused: StoreRefused | None = None
        found = await self._fetch(
            "reclaimable", limit=values["limit"], dead_worker=values["dead_worker"]
        )
        for row in found:
            try:
                rows += await self._fetch("reclaim_one", job_id=row["id"], **values)
            except StoreRefused as error:
                refused = error
        if refused is not None and not rows:
            raise refused
        return rows
