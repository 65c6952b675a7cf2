"""3. A write with an old fence changes nothing, and the handler is stopped."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial

import pytest

from holdfast import Job, State
from holdfast.domain.job import Lease, Lost, Settlement
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Claim, FullStore, require
from holdfast.stores.registry import make_store
from tests.promises.stage import Stage, both_stores
from tests.support.processes import Process, freeze, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.long]


async def become_ghost(stage: Stage, *jobs: Job) -> tuple[Process, Process]:
    """Stop the worker that runs the jobs until another has taken them over; answer both."""
    ghost = stage.worker()
    for job in jobs:
        await stage.noted("start", job.id)
    await freeze(ghost.pid, stage.url)
    heir = stage.worker()
    await stage.let_run_out(*jobs)
    for job in jobs:
        await stage.noted("start", job.id, times=2)
    return ghost, heir


@both_stores
async def test_a_ghost_that_finishes_leaves_no_trace(stage: Stage) -> None:
    job = await stage.jobs.gated_and_blocking.enqueue("gate")
    ghost, _ = await become_ghost(stage, job)
    before = await stage.hf.get(job.id)
    stage.open_gate("gate.1")
    ghost.signal(signal.SIGCONT)
    await wait_until(lambda: ghost.events("lost") or ghost.events("settle"), "told")
    assert not ghost.events("settle")
    (lost,) = ghost.events("lost")
    assert (lost["job_id"], lost["fence"]) == (str(job.id), 1)
    assert [entry["attempt"] for entry in stage.ledger("finish", job.id)] == [1]
    after = await stage.hf.get(job.id)
    assert (after.state, after.fence, after.lease_owner, after.result, after.attempts) == (
        State.RUNNING, 3, before.lease_owner, None, 2,
    )  # fmt: skip
    stage.open_gate("gate.2")
    (ended,) = await stage.ended(job)
    record = await stage.record(job.id)
    assert (ended.state, ended.result, ended.fence) == (State.SUCCEEDED, "attempt 2", 4)
    ghost.signal(signal.SIGTERM)
    assert await ghost.ended() == 0
    assert await stage.record(job.id) == record
    outcomes = [attempt.outcome for attempt in await stage.hf.jobs.attempts(job.id)]
    assert outcomes == ["lost", "succeeded"]


@both_stores
async def test_a_ghost_that_comes_back_after_the_end_leaves_no_trace(stage: Stage) -> None:
    job = await stage.jobs.gated_and_blocking.enqueue("gate")
    ghost, _ = await become_ghost(stage, job)
    stage.open_gate("gate")
    (ended,) = await stage.ended(job)
    assert ended.state is State.SUCCEEDED
    record = await stage.record(job.id)
    ghost.signal(signal.SIGCONT)
    await ghost.logs("lost")
    ghost.signal(signal.SIGTERM)
    assert await ghost.ended() == 0
    assert await stage.record(job.id) == record


@both_stores
async def test_a_ghosts_handlers_are_stopped_within_a_second(stage: Stage) -> None:
    """Async ones are canceled; those in threads see `ctx.canceled`."""
    in_thread = await stage.jobs.gated_in_thread.enqueue("gate")
    job = await stage.jobs.gated.enqueue("gate")
    ghost, heir = await become_ghost(stage, job, in_thread)
    ghost.signal(signal.SIGCONT)
    await stage.noted("canceled", times=2)
    learned = {
        event["job_id"]: datetime.fromisoformat(event["time"]).timestamp()
        for event in ghost.events("lost")
    }
    for stopped in (job, in_thread):
        (canceled,) = stage.ledger("canceled", stopped.id)
        assert (canceled["pid"], canceled["attempt"]) == (ghost.pid, 1)
        assert canceled["time"] - learned[str(stopped.id)] < 1
        assert (await stage.hf.get(stopped.id)).fence == 3
    assert not heir.events("lost")


async def test_renew_progress_and_settle_with_an_old_fence_change_nothing(stage: Stage) -> None:
    job = await stage.jobs.quick.enqueue(1)
    store = require(make_store(stage.url, Seam(), stage.hf.settings), FullStore, "do everything")
    await store.open()
    try:
        (old,) = await store.claim(Claim("ghost", 1, 0.01, ["quick"]))
        await wait_until(lambda: store.reclaim(10), "reclaimed")
        (new,) = await store.claim(Claim("heir", 1, 30, ["quick"]))
        assert (old.fence, new.fence) == (1, 3)
        record = await stage.record(job.id)
        for fence in (0, 1, 2, 4, 99):
            lease = Lease(job.id, fence)
            gone = [Lost(job.id, fence, State.RUNNING)]
            assert await store.renew([lease], 1000) == gone
            assert not await store.progress(lease, b"1")
            for state in (State.SUCCEEDED, State.FAILED, State.DEAD, State.QUEUED):
                settlement = Settlement(
                    job_id=job.id, fence=fence, state=state, error_code="GHOST", outcome="failed"
                )
                assert await store.settle([settlement]) == gone
            assert await stage.record(job.id) == record
        settlement = Settlement(job_id=job.id, fence=3, state=State.SUCCEEDED, result=b"1")
        assert await store.settle([settlement]) == []
        record = await stage.record(job.id)
        assert await store.settle([settlement]) == [Lost(job.id, 3, State.SUCCEEDED)]
        assert await store.renew([Lease(job.id, 3)], 30) == [Lost(job.id, 3, State.SUCCEEDED)]
        assert not await store.progress(Lease(job.id, 3), b"1")
        assert await stage.record(job.id) == record
    finally:
        await store.close()


@both_stores
async def test_a_handler_that_blocks_the_loop_for_three_leases_keeps_its_job(
    stage: Stage,
) -> None:
    job = await stage.jobs.gated_and_blocking.enqueue("gate")
    blocked = stage.worker(lease_seconds=2, renew_seconds=0.2)
    await stage.noted("start", job.id)
    other = stage.worker()
    await wait_until(partial(held_for, stage, job, timedelta(seconds=3 * 2)), "held so long")
    stage.open_gate("gate")
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.attempts, ended.fence) == (State.SUCCEEDED, 1, 2)
    assert [entry["pid"] for entry in stage.ledger("start")] == [blocked.pid]
    assert not other.events("reclaim")


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_database_that_was_busy_longer_than_a_lease_loses_none(stage: Stage) -> None:
    """Nobody could renew: that is no sign that the worker is dead."""
    job = await stage.jobs.gated.enqueue("gate")
    worker = stage.worker(lease_seconds=2)
    await stage.noted("start", job.id)
    other = stage.worker(lease_seconds=2, reclaim_seconds=0.01)
    await other.logs("worker_started")
    path = stage.url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as locking:
        locking.execute("BEGIN IMMEDIATE")
        await asyncio.sleep(3)
        locking.execute("COMMIT")
    found = await stage.hf.get(job.id)
    await wait_until(partial(renewed, stage, job, found.lease_expires_at), "renewed")
    stage.open_gate("gate")
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.attempts, ended.fence) == (State.SUCCEEDED, 1, 2)
    assert not [event for each in (worker, other) for event in each.events("reclaim")]


async def held_for(stage: Stage, job: Job, time: timedelta) -> bool:
    """Has its lease lasted this long, or has the job ended?"""
    found = await stage.hf.get(job.id)
    if found.lease_expires_at is None or found.started_at is None:
        return True
    return found.lease_expires_at - found.started_at > time


async def renewed(stage: Stage, job: Job, before: datetime | None) -> bool:
    return (await stage.hf.get(job.id)).lease_expires_at != before
