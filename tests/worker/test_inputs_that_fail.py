"""Inputs that break what they depend on, beside an outage of it: the first end as dead and hold up
nobody, the other costs nobody an attempt. Mostly in virtual time, with the breaker and the retries
of the system that converts PDFs through a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from holdfast import (
    Breaker,
    Filter,
    Holdfast,
    Job,
    JobFailed,
    JobFunction,
    Retry,
    State,
    Transient,
)
from holdfast.domain.limits import PROBES_FREE_MAX
from holdfast.testing.simulation import Simulation
from holdfast_systems.convert.settings import GATEWAY, ConvertSettings
from tests.promises.stage import both_stores
from tests.support.running import WAIT_SECONDS_MAX, working

POISON = 30
GOOD = 100
ANSWER_SECONDS = 0.05
TRICKLE_SECONDS = 7
OUTAGE_SECONDS = 900
SETTINGS = ConvertSettings(gateway_url="http://gateway")
PROBE_SECONDS = GATEWAY.probe_seconds

Order = Callable[[list[bool], Random], None]


def first(poisonous: list[bool], random: Random) -> None:
    poisonous.sort(reverse=True)


def last(poisonous: list[bool], random: Random) -> None:
    poisonous.sort()


def mixed(poisonous: list[bool], random: Random) -> None:
    random.shuffle(poisonous)


class Scene:
    """A gateway that answers 503 to what is poison, and to everybody while it is down; and workers
    that ask it for their jobs."""

    def __init__(self, simulation: Simulation, path: Path) -> None:
        self.simulation = simulation
        self.path = path
        self.is_up = True
        self.client, self.convert = self.app("client")

    def app(self, process: str) -> tuple[Holdfast, JobFunction[[bool], None]]:
        hf = Holdfast(
            f"sqlite:///{self.path}",
            seam=self.simulation.seam(process),
            lease_seconds=30.0,
            sqlite_synchronous="NORMAL",
        )

        @hf.job(breaker=GATEWAY, retry=SETTINGS.retry)
        async def convert(poison: bool) -> None:
            await self.simulation.pass_time(ANSWER_SECONDS)
            if poison or not self.is_up:
                raise Transient("the gateway answered 503", code="GW_5XX")

        return hf, convert

    def work(self, workers: int = 1) -> None:
        for number in range(workers):
            hf, _ = self.app(f"worker-{number}")
            self.simulation.start(
                f"worker-{number}",
                partial(hf.run_worker, concurrency=SETTINGS.concurrency),
            )

    async def enqueue(self, poisonous: list[bool]) -> list[Job]:
        calls = [self.convert.call(poison) for poison in poisonous]
        return await self.client.enqueue_many(calls)

    async def ended(self, state: State, count: int, within_seconds: float) -> None:
        """Let time pass until so many jobs are in this state."""
        started = self.simulation.loop.time()
        while True:
            counts = {each.state: each.jobs for each in await self.client.jobs.counts()}
            if counts.get(state, 0) >= count:
                return
            assert self.simulation.loop.time() < started + within_seconds, counts
            await self.simulation.pass_time(1)

    async def trickle(self) -> None:
        """Enqueue a good job now and then."""
        while True:
            await self.simulation.pass_time(TRICKLE_SECONDS)
            await self.enqueue([False])

    async def longest_wait(self) -> float:
        """Of the jobs that succeeded."""
        jobs = (await self.client.jobs.list(Filter(states=(State.SUCCEEDED,)), limit=1000)).jobs
        waits = [each.started_at - each.created_at for each in jobs if each.started_at]
        return max(waits).total_seconds()

    async def charged(self, job: Job) -> int:
        """How many attempts it was charged for failures."""
        attempts = await self.client.jobs.attempts(job.id)
        return sum(each.outcome == "failed" for each in attempts)


@pytest.mark.parametrize(("order", "workers"), [(first, 1), (first, 3), (last, 1), (mixed, 3)])
def test_inputs_that_fail_end_as_dead_and_hold_up_nobody(
    tmp_path: Path, order: Order, workers: int
) -> None:
    async def play() -> None:
        poisonous = [True] * POISON + [False] * GOOD
        order(poisonous, simulation.random)
        jobs = await scene.enqueue(poisonous)
        scene.work(workers)
        await scene.ended(State.SUCCEEDED, GOOD, within_seconds=3 * PROBE_SECONDS)
        trickle = asyncio.ensure_future(scene.trickle())
        await scene.ended(State.DEAD, POISON, within_seconds=8 * PROBE_SECONDS)
        trickle.cancel()
        assert await scene.longest_wait() < 3 * PROBE_SECONDS
        for job, poison in zip(jobs, poisonous, strict=True):
            assert await scene.charged(job) == (SETTINGS.max_attempts if poison else 0)
        (breaker,) = await scene.client.breakers.list()
        assert breaker.times_opened <= 3

    with Simulation(7) as simulation:
        scene = Scene(simulation, tmp_path / "jobs.db")
        simulation.run(play())


def test_inputs_that_fail_end_although_nothing_else_runs(tmp_path: Path) -> None:
    async def play() -> None:
        jobs = await scene.enqueue([True] * 6)
        scene.work()
        probes_max = PROBES_FREE_MAX + SETTINGS.max_attempts
        await scene.ended(State.DEAD, 6, within_seconds=6 * probes_max * PROBE_SECONDS)
        assert [await scene.charged(job) for job in jobs] == [SETTINGS.max_attempts] * 6

    with Simulation(7) as simulation:
        scene = Scene(simulation, tmp_path / "jobs.db")
        simulation.run(play())


def test_an_outage_charges_nobody_and_everything_is_done_after_it(tmp_path: Path) -> None:
    async def play() -> None:
        await scene.enqueue([False] * 10)
        scene.work()
        await scene.ended(State.SUCCEEDED, 10, within_seconds=PROBE_SECONDS)
        scene.is_up = False
        jobs = await scene.enqueue([False] * GOOD)
        await simulation.pass_time(OUTAGE_SECONDS)
        scene.is_up = True
        await scene.ended(State.SUCCEEDED, 10 + GOOD, within_seconds=3 * PROBE_SECONDS)
        assert sum([await scene.charged(job) for job in jobs]) == GATEWAY.failures

    with Simulation(7) as simulation:
        scene = Scene(simulation, tmp_path / "jobs.db")
        simulation.run(play())


@both_stores
async def test_jobs_that_fail_by_themselves_end_among_others_that_keep_coming(
    hf: Holdfast,
) -> None:
    @hf.job(
        breaker=Breaker("gateway", failures=5, window_seconds=3, probe_seconds=0.2),
        retry=Retry.schedule([0.1, 0.2]),
    )
    async def convert(poison: bool) -> None:
        if poison:
            raise Transient("the gateway answered 503", code="GW_5XX")

    async def keep_coming() -> None:
        while True:
            job = await convert.enqueue(False)
            await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)

    jobs = await hf.enqueue_many([convert.call(True) for _ in range(POISON)])
    good = await hf.enqueue_many([convert.call(False) for _ in range(GOOD)])
    async with working(hf, concurrency=4):
        for job in good:
            await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
        coming = asyncio.create_task(keep_coming())
        for job in jobs:
            with pytest.raises(JobFailed):
                await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
        coming.cancel()
    assert {(await hf.get(job.id)).state for job in jobs} == {State.DEAD}


@both_stores
async def test_successes_leave_no_trace_of_a_breaker(hf: Holdfast) -> None:
    """They would cost every job a write."""

    @hf.job(breaker="gateway")
    async def convert() -> None: ...

    await hf.enqueue_many([convert.call() for _ in range(100)])
    report = await hf.run_worker(until_empty=True)
    assert report.succeeded == 100
    assert await hf.breakers.list() == []
