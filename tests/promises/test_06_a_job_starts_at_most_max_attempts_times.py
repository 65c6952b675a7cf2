"""6. A job starts at most max_attempts times, crashes included; one that did not start loses
nothing."""

from __future__ import annotations

import pytest

from holdfast import State
from tests.promises.stage import Stage, both_stores
from tests.support.processes import Process

pytestmark = [pytest.mark.heavy, pytest.mark.long]


@both_stores
async def test_a_job_that_kills_its_worker_ends_dead_after_max_attempts(stage: Stage) -> None:
    """One job at a time, so that it is alone in its process from the first."""
    job = await stage.jobs.crash.options(max_attempts=2).enqueue()
    workers: list[Process] = []
    while not (await stage.hf.get(job.id)).state.ended:
        assert len(workers) < 4, "a job without an end"
        workers.append(stage.worker("--until-empty", concurrency=1))
        if len(workers) > 1:
            await stage.let_run_out(job)
        await workers[-1].ended()
    ended = await stage.hf.get(job.id)
    assert [worker.code for worker in workers] == [-9, -9, 0]
    assert (ended.state, ended.attempts, ended.error_code) == (State.DEAD, 2, "LEASE_LOST")
    assert [entry["attempt"] for entry in stage.ledger("start")] == [1, 2]
    assert [attempt.outcome for attempt in await stage.hf.jobs.attempts(job.id)] == ["lost", "lost"]


@both_stores
async def test_a_worker_outlives_a_job_that_kills_every_process(stage: Stage) -> None:
    """The last attempt runs alone in its own process, and only that process dies."""
    job = await stage.jobs.crash.options(max_attempts=2).enqueue()
    killed = stage.worker("--until-empty")
    assert await killed.ended() == -9
    heir = stage.worker("--until-empty")
    await stage.let_run_out(job)
    assert await heir.ended() == 0
    ended = await stage.hf.get(job.id)
    assert (ended.state, ended.attempts, ended.crashes) == (State.DEAD, 2, 2)
    assert ended.error_code == "CRASHED"
    assert [entry["attempt"] for entry in stage.ledger("start")] == [1, 2]
    assert [attempt.outcome for attempt in await stage.hf.jobs.attempts(job.id)] == [
        "lost",
        "crashed",
    ]


@both_stores
async def test_failures_and_crashes_together_use_up_the_attempts(stage: Stage) -> None:
    job = await stage.jobs.unsteady.options(max_attempts=3).enqueue(99)
    worker = stage.worker("--until-empty")
    assert await worker.ended() == 0
    ended = await stage.hf.get(job.id)
    assert (ended.state, ended.attempts) == (State.DEAD, 3)
    assert [entry["attempt"] for entry in stage.ledger("start")] == [1, 2, 3]


@both_stores
async def test_jobs_behind_the_one_that_was_killed_lose_nothing(stage: Stage) -> None:
    first = await stage.jobs.gated.options(priority=-1).enqueue("never")
    others = await stage.hf.enqueue_many([stage.jobs.quick.call(number) for number in range(5)])
    worker = stage.worker(concurrency=1)
    await stage.noted("start", first.id)
    worker.kill()
    for job in others:
        found = await stage.hf.get(job.id)
        assert (found.state, found.attempts, found.fence) == (State.QUEUED, 0, 0)
