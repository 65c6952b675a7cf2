"""13. A process whose event loop stays blocked past a job's timeout and grace ends itself, and so
does one that has no slot left."""

from __future__ import annotations

import signal

import pytest

from holdfast import State
from holdfast.worker.watchdog import BLOCKED_CODE
from tests.promises.stage import Stage, both_stores


@both_stores
async def test_a_blocked_process_settles_its_jobs_and_ends(stage: Stage) -> None:
    """The job that blocks has failed; its neighbours are handed back, and lose nothing."""
    neighbours = [
        await stage.jobs.gated.enqueue("never"),
        await stage.jobs.gated_in_thread.enqueue("never"),
    ]
    worker = stage.worker(lease_seconds=30, renew_seconds=0.3, timeout_grace_seconds=0.2)
    await stage.noted("start", times=2)
    job = await stage.jobs.block_for_ever.options(max_attempts=1).enqueue()
    assert await worker.ended() == BLOCKED_CODE
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.error_code, ended.crashes) == (State.DEAD, "TIMEOUT", 0)
    assert ended.error_text is not None
    assert "took longer than 0.3 s; it blocked the event loop" in ended.error_text
    told = await worker.logs("blocked")
    assert (told["job_id"], told["level"]) == (str(job.id), "error")
    assert "block_for_ever (" in told["message"]
    for neighbour in neighbours:
        found = await stage.hf.get(neighbour.id)
        assert (found.state, found.attempts, found.releases) == (State.QUEUED, 0, 1)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_blocked_process_is_replaced_and_the_others_jobs_are_done(stage: Stage) -> None:
    job = await stage.jobs.block_for_ever.options(max_attempts=1).enqueue()
    others = await stage.hf.enqueue_many([stage.jobs.linger.call(0.1) for _ in range(5)])
    worker = stage.worker("--processes=1", "--until-empty", timeout_grace_seconds=0.2)
    assert await worker.ended() == 0
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.attempts, ended.error_code) == (State.DEAD, 1, "TIMEOUT")
    for other in await stage.ended(*others):
        assert (other.state, other.attempts, other.crashes) == (State.SUCCEEDED, 1, 0)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_worker_without_a_slot_that_is_not_hung_ends_with_an_error(stage: Stage) -> None:
    jobs = [await stage.jobs.hang_for_ever.options(max_attempts=1).enqueue() for _ in range(2)]
    behind = await stage.jobs.quick.enqueue(1)
    worker = stage.worker(concurrency=2, lease_seconds=30, timeout_grace_seconds=0.2)
    assert await worker.ended() == 1
    assert "all 2 slots are taken by handlers that don't stop" in worker.text
    assert len(worker.events("hung")) == 2
    ended = await stage.ended(*jobs)
    assert [(job.state, job.error_code) for job in ended] == [(State.DEAD, "TIMEOUT")] * 2
    assert (await stage.hf.get(behind.id)).fence == 0


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_thread_that_never_ends_does_not_keep_the_process(stage: Stage) -> None:
    job = await stage.jobs.leave_a_thread_behind.enqueue()
    worker = stage.worker(grace_seconds=0)
    await stage.noted("start", job.id)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    assert (await stage.hf.get(job.id)).releases == 1
