"""13. A process whose event loop stays blocked past a job's timeout and grace ends itself, and so
does one that has no slot left."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import asyncpg
import pytest

from holdfast import Job, State
from holdfast.worker.deadline import BLOCKED_CODE
from tests.promises.blocking import Blocking
from tests.promises.stage import Stage, both_stores
from tests.support.crashing import is_alive
from tests.support.processes import Process, wait_until
from tests.support.running import execute

pytestmark = [pytest.mark.heavy, pytest.mark.long]

REFUSAL = "CREATE TRIGGER refused BEFORE UPDATE ON jobs {condition} {action}"
SQLITE_ACTION = "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
POSTGRES_FUNCTION = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not this one';
END
$$
"""


@pytest.fixture
def blocking(stage: Stage) -> Blocking:
    return Blocking(stage.hf)


def start_worker(stage: Stage) -> Process:
    """It ends long before a lease runs out."""
    return stage.worker(app="blocking:hf", renew_seconds=0.3, timeout_grace_seconds=0.2)


@asynccontextmanager
async def locked(stage: Stage, *jobs: Job) -> AsyncIterator[None]:
    """Hold the rows of these jobs, as a connection does that stands between UPDATE and COMMIT."""
    connection = await asyncpg.connect(stage.url)
    try:
        async with connection.transaction():
            await connection.fetch(
                "SELECT FROM holdfast.jobs WHERE id = ANY ($1) FOR UPDATE",
                [job.id for job in jobs],
            )
            yield
    finally:
        await connection.close()


async def refuse_releases(stage: Stage, tenant: str) -> None:
    """Let the database refuse to hand back jobs of this tenant."""
    condition, action = f"WHEN (new.tenant = '{tenant}' AND new.releases = 1)", SQLITE_ACTION
    if not stage.is_sqlite:
        await execute(stage.url, POSTGRES_FUNCTION)
        condition, action = f"FOR EACH ROW {condition}", "EXECUTE FUNCTION refuse()"
    await execute(stage.url, REFUSAL.format(condition=condition, action=action))


async def standing(stage: Stage, job: Job) -> tuple[Any, ...]:
    found = await stage.hf.get(job.id)
    return found.state, found.attempts, found.releases


HANDED_BACK = (State.QUEUED, 0, 1)
LEFT_TO_ITS_LEASE = (State.RUNNING, 1, 0)


@both_stores
async def test_a_blocked_process_settles_its_jobs_and_ends(stage: Stage) -> None:
    """The job that blocks has failed; its neighbors are handed back, and lose nothing."""
    neighbors = [
        await stage.jobs.gated.enqueue("never"),
        await stage.jobs.gated_in_thread.enqueue("never"),
    ]
    worker = stage.worker(renew_seconds=0.3, timeout_grace_seconds=0.2)
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
    for neighbor in neighbors:
        found = await stage.hf.get(neighbor.id)
        assert (found.state, found.attempts, found.releases) == (State.QUEUED, 0, 1)


@both_stores
async def test_a_job_without_a_timeout_must_not_block_a_neighbor_past_its_timeout(
    stage: Stage, blocking: Blocking
) -> None:
    neighbor = await blocking.wait_briefly.options(priority=-1).enqueue("never")
    job = await blocking.block_without_timeout.options(max_attempts=1).enqueue()
    worker = start_worker(stage)
    assert await worker.ended() == BLOCKED_CODE
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.error_code) == (State.DEAD, "TIMEOUT")
    assert (ended.error_text or "").startswith("blocked the event loop; its process was")
    assert await standing(stage, neighbor) == HANDED_BACK


@pytest.mark.parametrize("held", ["ended", pytest.param("neighbor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_blocked_process_settles_other_jobs_when_one_row_is_locked(
    stage: Stage, blocking: Blocking, held: str
) -> None:
    """The loop may block while one of its connections has locked the rows that it settles."""
    ending = await blocking.wait.enqueue("gate")
    neighbors = [await blocking.wait.enqueue("never") for _ in range(3)]
    worker = start_worker(stage)
    await stage.noted("start", times=4)
    async with locked(stage, ending if held == "ended" else neighbors.pop()):
        stage.open_gate("gate")
        await stage.noted("finish", ending.id)
        job = await blocking.block.options(max_attempts=1).enqueue()
        assert await worker.ended() == BLOCKED_CODE
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.error_code) == (State.DEAD, "TIMEOUT")
    assert [await standing(stage, each) for each in neighbors] == [HANDED_BACK] * len(neighbors)
    assert "leases left to expire: 1 (" in (await worker.logs("blocked"))["message"]


@both_stores
async def test_a_blocked_process_releases_other_jobs_when_one_release_is_refused(
    stage: Stage, blocking: Blocking
) -> None:
    refused = await blocking.wait.options(tenant="refused").enqueue("never")
    await refuse_releases(stage, "refused")
    neighbors = [await blocking.wait.enqueue("never") for _ in range(2)]
    worker = start_worker(stage)
    await stage.noted("start", times=3)
    job = await blocking.block.options(max_attempts=1).enqueue()
    assert await worker.ended() == BLOCKED_CODE
    assert (await stage.ended(job))[0].error_code == "TIMEOUT"
    assert [await standing(stage, each) for each in neighbors] == [HANDED_BACK] * 2
    assert await standing(stage, refused) == LEFT_TO_ITS_LEASE
    assert "not this one" in (await worker.logs("blocked"))["message"]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_blocked_process_that_can_not_settle_still_ends(
    stage: Stage, blocking: Blocking
) -> None:
    await blocking.block_without_a_way_out.enqueue()
    worker = start_worker(stage)
    assert await worker.ended() == BLOCKED_CODE
    assert "there is no way out" in (await worker.logs("blocked"))["message"]


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_child_processes_are_gone_before_a_blocked_process_releases_their_jobs(
    stage: Stage, blocking: Blocking
) -> None:
    in_child = await blocking.hang_in_child.enqueue()
    worker = start_worker(stage)
    child = (await stage.noted("start", in_child.id))["pid"]
    job = await blocking.block.options(max_attempts=1).enqueue()
    await stage.noted("start", job.id)
    async with locked(stage, job, in_child):
        await wait_until(lambda: not is_alive(child), lambda: f"killed: {worker.text}")
        assert worker.code is None
        assert await standing(stage, in_child) == LEFT_TO_ITS_LEASE
    await wait_until(partial(is_handed_back, stage, in_child), "handed back")
    assert await worker.ended() == BLOCKED_CODE


async def is_handed_back(stage: Stage, job: Job) -> bool:
    return await standing(stage, job) == HANDED_BACK


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
async def test_a_worker_whose_slots_are_all_hung_ends_with_an_error(stage: Stage) -> None:
    jobs = [await stage.jobs.hang_for_ever.options(max_attempts=1).enqueue() for _ in range(2)]
    behind = await stage.jobs.quick.enqueue(1)
    worker = stage.worker(concurrency=2, timeout_grace_seconds=0.2)
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
