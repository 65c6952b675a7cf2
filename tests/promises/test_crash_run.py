"""Workers are killed with -9 over and over while jobs run: every job is accounted for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from random import Random

import pytest

from holdfast import Attempt, Job, State
from tests.promises.stage import Entry, Stage, both_stores, random_seed
from tests.support.processes import Process, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.long]

KILLS = 20
LEASE_SECONDS = 1.5
LONG_LEASE_SECONDS = 5.0  # of the worker that must not lose one
WORKERS = 3
CONCURRENCY = 4
MAX_ATTEMPTS = 8


@pytest.mark.slow
@both_stores
async def test_20_kills_of_workers_lose_no_job_and_finish_none_twice(stage: Stage) -> None:
    random = Random(random_seed())
    poison = stage.jobs.crash.options(max_attempts=2)
    jobs = await stage.hf.enqueue_many([poison.call() for _ in range(2)])
    killed_at = await kill_workers(stage, random, jobs)
    while await (survivor := start(stage, 50, LONG_LEASE_SECONDS)).ended() == -9:
        killed_at[survivor.pid] = time.time()
    assert survivor.code == 0
    assert len(killed_at) >= KILLS
    lives = [life(each, killed_at) for each in stage.processes if each.events("worker_started")]
    starts, finishes = stage.by_job("start"), stage.by_job("finish")
    for job in jobs:
        ended = await stage.hf.get(job.id)
        attempts = await stage.hf.jobs.attempts(job.id)
        assert ended.state is (State.DEAD if ended.name == "crash" else State.SUCCEEDED)
        if ended.state is State.SUCCEEDED:
            *attempts, succeeded = attempts
            assert (succeeded.outcome, succeeded.fence) == ("succeeded", ended.fence - 1)
        check_ends(ended, attempts, finishes[str(job.id)])
        check_starts(ended, starts[str(job.id)])
        check_losses(attempts, killed_at, lives)


def start(
    stage: Stage, concurrency: int = CONCURRENCY, lease_seconds: float = LEASE_SECONDS
) -> Process:
    return stage.worker("--until-empty", concurrency=concurrency, lease_seconds=lease_seconds)


async def kill_workers(stage: Stage, random: Random, jobs: list[Job]) -> dict[int, float]:
    """Keep some workers busy, and kill each a random while after it has started a job."""
    killed_at: dict[int, float] = {}
    workers: list[Process] = []
    linger = stage.jobs.linger.options(max_attempts=MAX_ATTEMPTS)
    while len(killed_at) < KILLS:
        calls = [linger.call(random.random() / 5) for _ in range(WORKERS * CONCURRENCY)]
        jobs += await stage.hf.enqueue_many(calls)
        workers += [start(stage) for _ in range(WORKERS - len(workers))]
        victim = workers.pop(0)
        await wait_until(partial(works, stage, victim), "at work")
        await asyncio.sleep(random.random() / 10)
        victim.kill()
        if victim.code == -9:
            killed_at[victim.pid] = time.time()
    for worker in workers:
        worker.kill()
        killed_at[worker.pid] = time.time()
    return killed_at


def works(stage: Stage, worker: Process) -> bool:
    """Has it started a job, or been killed by one?"""
    return worker.code is not None or any(
        entry["pid"] == worker.pid for entry in stage.ledger("start")
    )


def check_ends(job: Job, attempts: Sequence[Attempt], finishes: Sequence[Entry]) -> None:
    """Each claim raised the fence by one, and so did each end of a lease: nothing ended twice."""
    succeeded = job.state is State.SUCCEEDED
    assert {attempt.outcome for attempt in attempts} <= {"lost", "crashed"}
    assert len(attempts) == job.crashes
    assert job.fence == 2 * (job.crashes + job.releases + succeeded)
    if succeeded:
        assert [entry["fence"] for entry in finishes].count(job.fence - 1) == 1
    else:
        assert job.attempts == job.max_attempts
        assert job.error_code in ("CRASHED", "LEASE_LOST")


def check_starts(job: Job, starts: Sequence[Entry]) -> None:
    """The last attempt is given back once, if it crashed in company."""
    fences = [entry["fence"] for entry in starts]
    assert fences == sorted(set(fences))
    assert all(entry["attempt"] <= job.max_attempts for entry in starts)
    assert len(starts) <= job.max_attempts + job.releases + 1


def life(worker: Process, killed_at: dict[int, float]) -> tuple[float, float]:
    """From when to when it was there; it was killed, or nothing was left to do."""
    told = [*worker.events("worker_started"), *worker.events("stopped")]
    times = [datetime.fromisoformat(event["time"]).timestamp() for event in told]
    return times[0], killed_at.get(worker.pid, times[-1])


def check_losses(
    attempts: Sequence[Attempt], killed_at: dict[int, float], lives: list[tuple[float, float]]
) -> None:
    """A worker that a job killed in its own process is reported by its parent."""
    for attempt in attempts:
        assert attempt.worker is not None
        pid = int(attempt.worker.split(":")[1])
        if pid in killed_at:
            ended_at = attempt.ended_at.timestamp()
            assert attended_seconds(lives, killed_at[pid], ended_at) < LEASE_SECONDS + 6
        else:
            assert attempt.attempt > 1


def attended_seconds(lives: list[tuple[float, float]], since: float, until: float) -> float:
    """For how long was a worker there? All may be dead at once, and where the machine is busy the
    next takes its time to boot."""
    seconds = 0.0
    for booted, ended in sorted(lives):
        begin, end = max(booted, since), min(ended, until)
        if end > begin:
            seconds += end - begin
            since = end
    return seconds
