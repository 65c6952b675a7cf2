"""14. SIGTERM: no new claims; jobs finish within the grace time or are released, fenced, with the
attempt given back."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from holdfast import Job, State
from holdfast.worker.deadline import BLOCKED_CODE
from tests.promises.stage import Stage, both_stores
from tests.promises.stopping import Stopping
from tests.support.crashing import is_alive
from tests.support.processes import wait_until
from tests.support.running import execute

pytestmark = [pytest.mark.heavy, pytest.mark.long]

SLOW_COMMIT = """
CREATE TABLE public.commits (job text);
CREATE FUNCTION public.wait_for_gate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(14);
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON public.commits DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION public.wait_for_gate()
"""


@both_stores
async def test_a_worker_that_is_stopped_finishes_what_it_can_and_releases_the_rest(
    stage: Stage,
) -> None:
    short = await stage.jobs.gated.options(priority=-2).enqueue("short")
    long = await stage.jobs.gated.options(priority=-1).enqueue("never")
    in_thread = await stage.jobs.gated_in_thread.options(priority=-1).enqueue("never")
    behind = await stage.jobs.quick.enqueue(1)
    worker = stage.worker(concurrency=3, grace_seconds=4)
    await stage.noted("start", times=3)
    worker.signal(signal.SIGTERM)
    await worker.logs("shutdown")
    late = await stage.jobs.quick.options(priority=-3).enqueue(2)
    stage.open_gate("short")
    assert await worker.ended() == 0
    (finished,) = await stage.ended(short)
    assert (finished.state, finished.attempts) == (State.SUCCEEDED, 1)
    for job in (long, in_thread):
        assert_released(await stage.hf.get(job.id))
        assert len(stage.ledger("canceled", job.id)) == 1
    for waiting in (behind, late):
        found = await stage.hf.get(waiting.id)
        assert (found.state, found.attempts, found.fence) == (State.QUEUED, 0, 0)
    assert await stage.fetch("SELECT * FROM attempts") == []


def assert_released(job: Job) -> None:
    """What the stopped handler may still write has the old fence, 1."""
    assert (job.state, job.attempts, job.releases, job.fence) == (State.QUEUED, 0, 1, 2)
    assert (job.lease_owner, job.error_code) == (None, None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
@both_stores
async def test_a_second_signal_hurries(stage: Stage, number: signal.Signals) -> None:
    job = await stage.jobs.gated.enqueue("never")
    worker = stage.worker(grace_seconds=3600)
    await stage.noted("start", job.id)
    worker.signal(number)
    await worker.logs("shutdown")
    assert worker.code is None
    assert not stage.ledger("canceled")
    worker.signal(number)
    assert await worker.ended() == 0
    assert_released(await stage.hf.get(job.id))


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_job_whose_handler_ignores_the_stop_is_released(stage: Stage) -> None:
    job = await stage.jobs.stubborn.enqueue("never")
    worker = stage.worker(grace_seconds=0)
    await stage.noted("start", job.id)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    assert_released(await stage.hf.get(job.id))


@both_stores
async def test_a_released_job_starts_at_once_at_the_next_worker(stage: Stage) -> None:
    job = await stage.jobs.gated.enqueue("gate.1")
    worker = stage.worker(grace_seconds=0)
    await stage.noted("start", job.id)
    heir = stage.worker(poll_seconds=3600)
    await heir.logs("worker_started")
    worker.signal(signal.SIGTERM)
    again = await stage.noted("start", job.id, times=2)
    assert (again["pid"], again["attempt"], again["fence"]) == (heir.pid, 1, 3)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_child_process_that_ignores_the_stop_is_killed_and_its_job_released(
    stage: Stage,
) -> None:
    job = await Stopping(stage.hf).hang_in_child.enqueue()
    worker = stage.worker(app="stopping:hf", grace_seconds=0)
    child = (await stage.noted("start", job.id))["pid"]
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    assert_released(await stage.hf.get(job.id))
    assert not is_alive(child)
    assert "Error" not in worker.text


@asynccontextmanager
async def transaction(stage: Stage, sql: str) -> AsyncIterator[asyncpg.Connection]:
    """Hold the locks that this takes."""
    connection = await asyncpg.connect(stage.url)
    try:
        async with connection.transaction():
            await connection.execute(sql)
            yield connection
    finally:
        await connection.close()


async def is_queued(stage: Stage, job: Job) -> bool:
    return (await stage.hf.get(job.id)).state is State.QUEUED


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_thread_that_is_committing_does_not_keep_other_jobs_from_being_released(
    stage: Stage,
) -> None:
    """Its own job is not released: its commit is under way, and worth the wait."""
    jobs = Stopping(stage.hf)
    await execute(stage.url, SLOW_COMMIT)
    async with transaction(stage, "SELECT pg_advisory_xact_lock(14)") as gate:
        deaf = await jobs.stubborn.enqueue("never")
        committing = await jobs.complete_in_thread.enqueue()
        worker = stage.worker(app="stopping:hf", grace_seconds=0)
        await stage.noted("start", deaf.id)
        waiting = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        await wait_until(partial(gate.fetch, waiting), "committing")
        worker.signal(signal.SIGTERM)
        await wait_until(partial(is_queued, stage, deaf), lambda: f"released: {worker.text}")
    assert await worker.ended() == 0
    assert_released(await stage.hf.get(deaf.id))
    (ended,) = await stage.ended(committing)
    assert (ended.state, ended.attempts) == (State.SUCCEEDED, 1)
    assert (await worker.logs("stopped"))["message"] == "1 succeeded, 1 released"


@pytest.mark.slow
@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_worker_stops_in_time_whatever_is_in_its_way(stage: Stage) -> None:
    """A handler does not listen, its release can't be written, and a child does not end."""
    jobs = Stopping(stage.hf)
    in_child = await jobs.quick_in_child.enqueue()
    deaf = await jobs.stubborn.enqueue("never")
    worker = stage.worker(app="stopping:hf", grace_seconds=0)
    await stage.noted("start", deaf.id)
    await stage.ended(in_child)
    row = f"SELECT FROM holdfast.jobs WHERE id = '{deaf.id}' FOR UPDATE"
    async with transaction(stage, row):
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
    assert (await stage.hf.get(deaf.id)).state is State.RUNNING


@both_stores
async def test_a_worker_whose_loop_is_blocked_releases_its_jobs_and_ends_in_time(
    stage: Stage,
) -> None:
    """Nothing on the loop hears the signal, and no timeout says that the handler is late."""
    jobs = Stopping(stage.hf)
    neighbor = await jobs.gated.options(priority=-1).enqueue("never")
    blocking = await jobs.block.enqueue()
    worker = stage.worker(app="stopping:hf", grace_seconds=0)
    await stage.noted("start", blocking.id)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == BLOCKED_CODE
    for job in (blocking, neighbor):
        assert_released(await stage.hf.get(job.id))
    told = await worker.logs("blocked")
    assert told["job_id"] == str(blocking.id)
    assert "although the worker has to stop" in told["message"]
    assert "block_for_ever (" in told["message"]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_generator_that_can_not_be_closed_does_not_keep_the_worker_from_ending(
    stage: Stage,
) -> None:
    job = await Stopping(stage.hf).leave_a_generator_behind.enqueue()
    worker = stage.worker(app="stopping:hf", grace_seconds=0)
    await stage.noted("start", job.id)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    assert_released(await stage.hf.get(job.id))


@pytest.mark.slow
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_resource_that_can_not_be_closed_does_not_keep_the_worker_from_ending(
    stage: Stage,
) -> None:
    job = await Stopping(stage.hf).cling.enqueue()
    worker = stage.worker(app="stopping:hf", grace_seconds=0)
    await stage.ended(job)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == BLOCKED_CODE
    assert await worker.logs("stop_overdue")


@pytest.mark.slow
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_worker_whose_loop_is_blocked_when_its_keeper_dies_ends_in_time(
    stage: Stage,
) -> None:
    """Neither a watchdog nor a warden is left then, and no lease is renewed."""
    job = await Stopping(stage.hf).block.enqueue()
    worker = stage.worker(app="stopping:hf", grace_seconds=0, lease_seconds=3)
    await stage.noted("start", job.id)
    delete_log(stage)
    assert await worker.ended() == BLOCKED_CODE
    assert await worker.logs("stop_overdue")


def delete_log(stage: Stage) -> None:
    """Remove what the keeper can't work without."""
    Path(f"{stage.url.removeprefix('sqlite:///')}-wal").unlink()
