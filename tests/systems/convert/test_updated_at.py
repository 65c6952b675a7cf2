"""`updated_at` rises with every change of a conversion."""

from __future__ import annotations

import signal
from datetime import UTC, datetime
from uuid import UUID

import pytest

from tests.promises.stage import both_stores
from tests.support.running import working
from tests.systems.convert.bench import Bench
from tests.systems.convert.scripted import ScriptedGateway

pytestmark = pytest.mark.heavy


class Changes:
    """Sees to it that every change is later than the one before."""

    def __init__(self, bench: Bench, job_id: UUID) -> None:
        self._bench = bench
        self._job_id = job_id
        self._last = datetime.min.replace(tzinfo=UTC)

    async def saw(self, status: str) -> None:
        found = await self._bench.reaches(self._job_id, status)
        assert found.updated_at > self._last, f"{status} did not change it"
        self._last = found.updated_at
        times = (found.created_at, found.started_at, found.completed_at, found.failed_at)
        assert found.updated_at >= max(time for time in times if time)


@both_stores
async def test_updated_at_is_bumped_by_claim_retry_and_complete(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    gateway.gate.clear()
    job_id = await bench.submit({"status": 500}, {})
    changes = Changes(bench, job_id)
    await changes.saw("queued")
    async with working(bench.hf):
        await gateway.arrivals()
        await changes.saw("processing")
        gateway.gate.set()
        await changes.saw("queued")
        gateway.gate.clear()
        await bench.hf.jobs.retry(job_id)
        await gateway.arrivals(2)
        await changes.saw("processing")
        gateway.gate.set()
        await changes.saw("complete")


@both_stores
async def test_updated_at_is_bumped_by_reclaim_and_fail(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    gateway.gate.clear()
    changes = Changes(bench, await bench.submit({"status": 400}))
    doomed = bench.worker()
    await gateway.arrivals()
    await changes.saw("processing")
    doomed.kill()
    await bench.let_leases_run_out()
    async with working(bench.hf, queues=["other"]):
        await changes.saw("queued")
    gateway.gate.set()
    async with working(bench.hf):
        await changes.saw("failed")


@both_stores
async def test_updated_at_is_bumped_by_release_and_cancel(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    gateway.gate.clear()
    job_id = await bench.submit()
    changes = Changes(bench, job_id)
    hasty = bench.worker(HOLDFAST_GRACE_SECONDS="0")
    await gateway.arrivals()
    await changes.saw("processing")
    hasty.signal(signal.SIGTERM)
    assert await hasty.ended() == 0
    await changes.saw("queued")
    await bench.hf.jobs.cancel(job_id)
    await changes.saw("canceled")
