"""2. A job has at most one live lease, and its fence only ever rises."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections import Counter

import asyncpg
import pytest

from holdfast import State
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Claim
from holdfast.stores.registry import make_store
from tests.promises.stage import Stage, both_stores, every_way
from tests.support.processes import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.long]


@every_way
async def test_two_workers_run_each_of_500_jobs_exactly_once(stage: Stage) -> None:
    calls = [stage.jobs.gated.call("go") for _ in range(500)]
    jobs = await stage.hf.enqueue_many(calls)
    workers = [stage.worker("--until-empty", concurrency=20) for _ in range(2)]
    both = {worker.pid for worker in workers}
    await wait_until(lambda: {entry["pid"] for entry in stage.ledger("start")} == both, "both run")
    stage.open_gate("go")
    assert [await worker.ended() for worker in workers] == [0, 0]
    expected = {str(job.id): 1 for job in jobs}
    assert Counter(entry["job"] for entry in stage.ledger("start")) == expected
    assert Counter(entry["job"] for entry in stage.ledger("finish")) == expected
    assert await stage.fetch(
        "SELECT state, attempt, fence, count(*) FROM history GROUP BY 1, 2, 3"
    ) == [("succeeded", 1, 2, 500)]


async def test_claims_at_the_same_time_never_lease_a_job_twice(stage: Stage) -> None:
    quick = stage.jobs.quick.options(max_attempts=1000)
    jobs = await stage.hf.enqueue_many([quick.call(number) for number in range(200)])
    stores = [make_store(stage.url, Seam(), stage.hf.settings) for _ in range(6)]
    try:
        for store in stores:
            await store.open()
        for store in stores:
            assert await store.claim(Claim("nobody", 1, 30, ["unknown"])) == []
        claims = [
            store.claim(Claim(f"worker {number}", 7, 30, ["quick"]))
            for number, store in enumerate(stores * 6)
        ]
        claimed = [job for answer in await asyncio.gather(*claims) for job in answer]
    finally:
        for store in stores:
            await store.close()
    assert Counter(job.id for job in claimed) == {job.id: 1 for job in jobs}
    assert {job.fence for job in claimed} == {1}


@both_stores
async def test_no_retry_snooze_release_crash_cancel_or_requeue_resets_a_fence(
    stage: Stage,
) -> None:
    retried = await stage.jobs.unsteady.enqueue(2)
    snoozed = await stage.jobs.snoozing.enqueue()
    crashed = await stage.jobs.gated.enqueue("never")
    first = stage.worker()
    await stage.ended(retried, snoozed)
    await stage.noted("start", crashed.id)
    first.kill()
    second = stage.worker(grace_seconds=0.1)
    await stage.let_run_out(crashed)
    await stage.noted("start", crashed.id, times=2)
    second.signal(signal.SIGTERM)
    await second.ended()
    stage.worker()
    await stage.noted("start", crashed.id, times=3)
    assert (await stage.hf.jobs.cancel(crashed.id)).state is State.CANCELED
    requeued = await stage.hf.jobs.requeue(crashed.id)
    await stage.noted("start", requeued.id)
    fences = {job: [entry["fence"] for entry in starts] for job, starts in by_job(stage)}
    assert fences[str(retried.id)] == [1, 3, 5]
    assert fences[str(snoozed.id)] == [1, 3]
    assert fences[str(crashed.id)] == [1, 3, 5]
    assert (await stage.hf.get(crashed.id)).fence == 6


def by_job(stage: Stage) -> list[tuple[str, list[dict[str, int]]]]:
    return list(stage.by_job("start").items())


async def test_the_database_itself_refuses_a_lower_fence(stage: Stage) -> None:
    job = await stage.jobs.gated.enqueue("never")
    stage.worker()
    await stage.noted("start", job.id)
    for fence in (0, -1):
        with pytest.raises((sqlite3.IntegrityError, asyncpg.CheckViolationError)):
            await stage.fetch(f"UPDATE jobs SET fence = {fence} WHERE id = '{job.id}'")
    assert (await stage.hf.get(job.id)).fence == 1
