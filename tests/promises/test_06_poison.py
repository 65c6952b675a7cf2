"""6. A job that kills its process ends in `dead`, and none of its neighbors does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from holdfast import Job, State
from tests.promises.handlers import POISONS
from tests.promises.stage import Entry, Stage, both_stores

pytestmark = [pytest.mark.heavy, pytest.mark.long]

sqlite_only = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


@sqlite_only
async def test_a_handler_out_of_memory_or_too_deep_fails_without_killing_anybody(
    stage: Stage,
) -> None:
    memory = await stage.jobs.exhaust_memory.enqueue()
    deep = await stage.jobs.recurse.enqueue()
    others = await enqueue_others(stage, 3)
    worker = stage.worker("--until-empty")
    assert await worker.ended() == 0
    failed = await stage.ended(memory, deep)
    assert [job.error_code for job in failed] == ["MemoryError", "RecursionError"]
    assert [(job.state, job.crashes) for job in failed] == [(State.DEAD, 0)] * 2
    await check_others(stage, others, crashes_max=0)


@pytest.mark.parametrize(
    ("store_url", "kinds"),
    [("sqlite", ["kill"]), ("pg15", ["kill", *POISONS])],
    ids=["1-sqlite", "5-pg15"],
    indirect=["store_url"],
)
async def test_200_jobs_survive_the_poison_among_them(stage: Stage, kinds: list[str]) -> None:
    """All of them run in one process when it strikes; two processes are kept alive."""
    others = await enqueue_others(stage, 100)
    call = stage.jobs.poison.options(max_attempts=3).call
    poison = await stage.hf.enqueue_many([call(how) for how in kinds])
    others += await enqueue_others(stage, 100 - len(kinds))
    worker = stage.worker("--processes=2", "--until-empty", concurrency=200)
    assert await worker.ended() == 0
    await check_poison(stage, poison)
    await check_others(stage, others)


@both_stores
async def test_jobs_that_lost_their_workers_to_a_power_cut_run_in_company_again(
    stage: Stage,
) -> None:
    """One crash makes no job a suspect: running them one by one would take hours."""
    jobs = await stage.hf.enqueue_many([stage.jobs.gated.call("gate") for _ in range(100)])
    workers = [stage.worker(concurrency=50) for _ in range(2)]
    await stage.noted("start", times=100)
    for worker in workers:
        worker.kill()
    heir = stage.worker("--until-empty", concurrency=100)
    await stage.let_run_out(*jobs)
    await stage.noted("start", times=200)
    stage.open_gate("gate")
    assert await heir.ended() == 0
    assert heir.events("child_started") == []
    for job in await stage.ended(*jobs):
        assert (job.state, job.attempts, job.crashes) == (State.SUCCEEDED, 2, 1)


async def enqueue_others(stage: Stage, count: int) -> list[Job]:
    """Half of them may start once only: they have no attempt to lose."""
    often, once = stage.jobs.linger, stage.jobs.linger.options(max_attempts=1)
    calls = [(often if number % 2 else once).call(0.1) for number in range(count)]
    return await stage.hf.enqueue_many(calls)


async def check_poison(stage: Stage, poison: Sequence[Job]) -> None:
    """Is it dead because of a crash in which it was alone?"""
    for job in await stage.ended(*poison):
        assert (job.state, job.attempts) == (State.DEAD, job.max_attempts)
        assert job.error_code == "CRASHED"
        starts = stage.ledger("start", job.id)
        # The last attempt is given back once if it was in company.
        assert len(starts) == job.crashes <= job.max_attempts + 1
        assert all(was_alone(stage, start) for start in starts[2:])


def was_alone(stage: Stage, start: Entry) -> bool:
    """Had all that started before in this process finished?"""
    finished = {(entry["job"], entry["fence"]) for entry in stage.ledger("finish")}
    before = [
        entry
        for entry in stage.ledger("start")
        if entry["pid"] == start["pid"] and entry["time"] < start["time"]
    ]
    return all((entry["job"], entry["fence"]) in finished for entry in before)


async def check_others(stage: Stage, jobs: Sequence[Job], crashes_max: int = 2) -> None:
    for job in await stage.ended(*jobs):
        assert job.state is State.SUCCEEDED, job
        assert job.crashes <= crashes_max
        assert len(stage.ledger("start", job.id)) <= job.crashes + 1
