"""13. The network is slow but not down: 200 ms for a round trip, 50 kB/s, 2 % of the packets lost.
Jobs are done exactly once, leases are renewed, and no living worker loses a job."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast import State
from tests.promises.stage import Stage
from tests.support.processes import wait_until
from tests.support.slow_network import Line, SlowProxy

pytestmark = [pytest.mark.heavy, pytest.mark.long]

SLOW = Line(latency_seconds=0.1, jitter_seconds=0.05, bytes_per_second=50_000.0, lost_share=0.02)
# The shortest that such a line allows: half of it is for one renewal, and that for a new connection
# as well.
LEASE_SECONDS = 6.0
QUICK_JOBS = 40


@pytest.fixture
async def stages(store_url: str, tmp_path: Path) -> AsyncIterator[tuple[Stage, Stage, SlowProxy]]:
    """The same database, seen through the slow network and beside it."""
    port = urlsplit(store_url).port
    assert port is not None
    with SlowProxy(port, SLOW) as proxy:
        beside = Stage(store_url, tmp_path)
        slow = Stage(store_url.replace(f":{port}/", f":{proxy.port}/"), tmp_path)
        try:
            yield slow, beside, proxy
        finally:
            await slow.close()
            await beside.close()


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_slow_network_costs_time_only(stages: tuple[Stage, Stage, SlowProxy]) -> None:
    slow, beside, proxy = stages
    long = await beside.jobs.gated.enqueue("gate")
    workers = [
        slow.worker(lease_seconds=LEASE_SECONDS, renew_seconds=LEASE_SECONDS / 4) for _ in range(2)
    ]
    await beside.noted("start", long.id)
    began = (await beside.hf.get(long.id)).lease_expires_at
    assert began is not None
    # An enqueue over the same line, in one statement.
    quick = await slow.hf.enqueue_many([slow.jobs.quick.call(n) for n in range(QUICK_JOBS)])
    ended = await beside.ended(*quick)

    async def was_renewed() -> bool:
        now = (await beside.hf.get(long.id)).lease_expires_at
        return now is not None and now > began + timedelta(seconds=LEASE_SECONDS)

    await wait_until(was_renewed, lambda: f"renewed: {slow.logs()}")
    beside.open_gate("gate")
    ended += await beside.ended(long)
    assert {job.state for job in ended} == {State.SUCCEEDED}
    assert {job.attempts for job in ended} == {1}
    starts = beside.by_job("start")
    assert {job_id: len(entries) for job_id, entries in starts.items()} == {
        str(job.id): 1 for job in ended
    }
    for worker in workers:
        worker.signal(signal.SIGTERM)
    for worker in workers:
        assert await worker.ended() == 0
        assert worker.events("reclaim") == worker.events("lost") == []
    assert proxy.lost > 0
