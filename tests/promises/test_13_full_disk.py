"""13. No silent death: workers on a full disk keep their jobs, and end them when there is room."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import State
from holdfast.domain.errors import StoreUnavailable
from tests.promises.stage import Stage
from tests.support.disks import small_disk

pytestmark = [pytest.mark.heavy, pytest.mark.long]

SLOTS = 5


async def test_workers_on_a_full_disk_lose_nothing_and_start_nothing_twice(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk:
        stage = Stage(f"sqlite:///{disk.database}", tmp_path)
        try:
            workers = [stage.worker(concurrency=SLOTS) for _ in range(2)]
            calls = [stage.jobs.gated.call("gate") for _ in range(2 * SLOTS)]
            jobs = await stage.hf.enqueue_many(calls)
            await stage.noted("start", times=len(jobs))
            disk.fill()
            stage.open_gate("gate")
            for worker in workers:
                await worker.logs("settle_failed")
            with pytest.raises(StoreUnavailable, match="is full"):
                await stage.hf.enqueue_many(calls)
            disk.make_room()
            last = await stage.jobs.quick.enqueue(1)
            ended = await stage.ended(*jobs, last)
            assert {(job.state, job.attempts) for job in ended} == {(State.SUCCEEDED, 1)}
            assert len(stage.ledger("start")) == len(ended)
            assert [worker.code for worker in workers] == [None, None]
        finally:
            await stage.close()
