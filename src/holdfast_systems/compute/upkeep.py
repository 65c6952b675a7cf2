"""What workers do now and then: delete what is too old, and print the counters."""

from __future__ import annotations

import logging
from datetime import timedelta

from holdfast import Holdfast, SweepContext
from holdfast_systems.compute.counters import Counts, total
from holdfast_systems.compute.limits import (
    COUNTERS_SECONDS,
    FORGET_JOBS_MAX,
    FORGET_SECONDS,
)
from holdfast_systems.compute.records import Records

_log = logging.getLogger(__name__)


class Upkeep:
    def __init__(self, hf: Holdfast, records: Records, retention_days: float) -> None:
        self._hf = hf
        self._records = records
        self._retention = timedelta(days=retention_days)
        self._printed = Counts()

    def start(self, queue: str) -> None:
        """Have the workers of this queue do it."""
        self._hf.sweep(queue=queue, every_seconds=FORGET_SECONDS)(self.forget_compute_jobs)
        self._hf.sweep(queue=queue, every_seconds=COUNTERS_SECONDS)(self.print_compute_counters)

    async def forget_compute_jobs(self, _ctx: SweepContext) -> float | None:
        """Delete some requests with all that belongs to them; return 0 if there may be more."""
        expired = await self._records.forget_artifacts(FORGET_JOBS_MAX)
        forgotten = 0
        if self._retention:
            before = await self._hf.now() - self._retention
            forgotten = await self._records.forget_jobs(before, FORGET_JOBS_MAX)
        if expired or forgotten:
            fields = {"jobs": forgotten, "artifacts": expired}
            _log.info("forgotten", extra={"event": "forgotten", "fields": fields})
        return 0.0 if FORGET_JOBS_MAX in (expired, forgotten) else None

    async def print_compute_counters(self, _ctx: SweepContext) -> float | None:
        """Print the counters of all workers and tenants, if they have changed."""
        counts = total(await self._records.counters())
        if counts != self._printed:
            self._printed = counts
            fields = {
                "received": counts.received,
                "completed": counts.completed,
                "abandoned": counts.abandoned,
                "failed": counts.failed,
                "average_latency_ms": counts.average_latency_ms or 0.0,
            }
            _log.info("counters", extra={"event": "counters", "fields": fields})
        return None
