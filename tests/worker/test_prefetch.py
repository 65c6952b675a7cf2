"""While jobs are short, a worker claims some before it has slots for them, and nobody is harmed."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from holdfast import Breaker, Context, Holdfast, Job, Retry, State
from holdfast.domain.job import Claimed, Lost, Settlement
from holdfast.domain.limits import IN_HAND_MAX, PREFETCHED_SECONDS_MAX
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Claim, Store
from holdfast.testing.simulation import Simulation
from holdfast.wakeups.protocol import Heard, Wakeup
from tests.support.around import Around
from tests.support.processes import WAIT_SECONDS, wait_until
from tests.support.running import seen_events, working
from tests.support.services import missing

CONCURRENCY = 20
LEASE_SECONDS = 30.0
SHORT_SECONDS = 0.001
LONG_SECONDS = 10.0
POLL_SECONDS = 0.02
A_MOMENT = 0.06  # to find jobs, and to claim or release them
RELEASED_SECONDS = PREFETCHED_SECONDS_MAX + A_MOMENT
GATEWAY = Breaker("gateway", failures=3, window_seconds=1000, probe_seconds=500)
UNTOUCHED = """
SELECT count(*) FROM jobs WHERE state = 'queued' AND attempt = 0 AND releases = 0 AND fence > 0
"""


class WatchedStore(Around):
    def __init__(self, store: Store, worker: Watched) -> None:
        super().__init__(store)
        self._worker = worker

    async def claim(self, request: Claim) -> Sequence[Claimed]:
        jobs: Sequence[Claimed] = await self.store.claim(request)
        self._worker.claimed(request, jobs)
        return jobs

    async def claim_suspect(self, request: Claim) -> Claimed | None:
        job: Claimed | None = await self.store.claim_suspect(request)
        self._worker.claimed(request, [job] if job else [])
        return job

    async def listen(self, heard: Heard) -> Any:
        self._worker.heard = heard
        return await self.store.listen(heard)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Lost]:
        lost: Sequence[Lost] = await self.store.settle(settlements)
        self._worker.settled(settlements)
        return lost


class Watched(Holdfast):
    """A worker's app. Its jobs take as many seconds as they are told to."""

    def __init__(self, url: str, simulation: Simulation, process: str = "worker") -> None:
        self.heard: Heard
        self.asked: list[int] = []
        self.waiting: set[UUID] = set()  # claimed, and not started
        self.most_in_hand = 0
        self.inside = 0
        self.most_inside = 0
        self.started: list[UUID] = []
        self.claimed_at: dict[UUID, float] = {}
        self.waited: list[float] = []
        self.settlements = 0
        self.released: Counter[UUID] = Counter()
        self._simulation = simulation
        super().__init__(
            url,
            seam=simulation.seam(process),
            lease_seconds=LEASE_SECONDS,
            poll_seconds=POLL_SECONDS,
            sqlite_synchronous="NORMAL",
        )
        self.take = self.job(name="take")(self._take)

    def _make_store(self) -> Store:
        return cast(Store, WatchedStore(super()._make_store(), self))

    def claimed(self, request: Claim, jobs: Sequence[Claimed]) -> None:
        self.asked.append(request.limit)
        self.waiting |= {job.id for job in jobs}
        self.most_in_hand = max(self.most_in_hand, self.inside + len(self.waiting))
        self.claimed_at |= {job.id: self._simulation.loop.time() for job in jobs}

    def settled(self, settlements: Sequence[Settlement]) -> None:
        self.settlements += 1
        self.waiting -= {each.job_id for each in settlements}
        self.released.update(each.job_id for each in settlements if each.state is State.QUEUED)

    async def _take(self, ctx: Context, seconds: float) -> None:
        self.started.append(ctx.job_id)
        self.waiting.discard(ctx.job_id)
        self.waited.append(self._simulation.loop.time() - self.claimed_at[ctx.job_id])
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.inside -= 1

    async def enqueue_jobs(self, count: int, seconds: float, **options: Any) -> Sequence[Job]:
        take = self.take.options(**options) if options else self.take
        return await self.enqueue_many([take.call(seconds) for _ in range(count)])

    async def warm_up(self, simulation: Simulation) -> None:
        """Show it that jobs are short."""
        await self.enqueue_jobs(400, SHORT_SECONDS)
        await simulation.pass_time(5.0)
        assert (self.inside, len(self.started)) == (0, 400)
        assert self.most_in_hand > self.most_inside == CONCURRENCY

    async def until_waiting(self, simulation: Simulation, jobs: int) -> None:
        for _ in range(200):
            if len(self.waiting) == jobs and self.inside == CONCURRENCY:
                return
            await simulation.pass_time(0.001)
        raise AssertionError(f"{len(self.waiting)} jobs wait, and {self.inside} run")

    async def states(self, jobs: Sequence[Job]) -> Counter[State]:
        return Counter([(await self.get(job.id)).state for job in jobs])


async def done(hf: Holdfast, jobs: int) -> bool:
    return sum(each.jobs for each in await hf.jobs.counts() if each.state.ended) == jobs


Story = Callable[[Simulation, Watched], Awaitable[None]]


def simulate(url: str, story: Story, seed: int = 1) -> None:
    async def tell(simulation: Simulation) -> None:
        await story(simulation, Watched(url, simulation))

    with Simulation(seed=seed) as simulation:
        simulation.run(tell(simulation))


def start(simulation: Simulation, app: Watched, **options: Any) -> asyncio.Task[Any]:
    options = {"concurrency": CONCURRENCY} | options
    return simulation.start("worker", lambda: app.run_worker(**options))


def test_short_jobs_are_claimed_ahead_and_run_no_more_at_once(local_url: str) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        jobs = await app.enqueue_jobs(5000, SHORT_SECONDS)
        await start(simulation, app, until_empty=True)
        assert sorted(app.started) == [job.id for job in jobs]
        assert app.most_inside == CONCURRENCY
        assert 4 * CONCURRENCY < app.most_in_hand <= IN_HAND_MAX
        assert len(app.asked) < 5000 / CONCURRENCY / 3
        assert not app.released

    simulate(local_url, story)


def test_few_slots_cost_as_few_claims_and_settlements_as_many(tmp_path: Path) -> None:
    counts: list[tuple[int, int]] = []

    async def story(simulation: Simulation, app: Watched) -> None:
        await app.enqueue_jobs(10_000, 0.0)
        await start(simulation, app, until_empty=True, concurrency=concurrency)
        counts.append((len(app.asked), app.settlements))

    for concurrency in (CONCURRENCY, IN_HAND_MAX):
        simulate(f"sqlite:///{tmp_path}/{concurrency}.db", story)
    # Seen: 49 claims and 51 settlements in 20 slots, 44 and 39 in 500.
    assert sum(counts[0]) <= 1.3 * sum(counts[1])


@pytest.mark.parametrize("seconds", [0.025, 0.05, LONG_SECONDS])
def test_jobs_that_take_time_are_never_claimed_ahead(local_url: str, seconds: float) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        await app.enqueue_jobs(300, seconds)
        await start(simulation, app, until_empty=True)
        assert (app.most_in_hand, app.most_inside) == (CONCURRENCY, CONCURRENCY)
        assert max(app.waited) < A_MOMENT

    simulate(local_url, story)


@pytest.mark.parametrize("options", [{"concurrency": 1}, {"queues": "images:10,*"}])
def test_without_room_for_others_nothing_is_claimed_ahead(
    local_url: str, options: dict[str, Any]
) -> None:
    """A job that may count on being alone, and queues that wait for a slot of their own."""

    async def story(simulation: Simulation, app: Watched) -> None:
        await app.enqueue_jobs(500, SHORT_SECONDS)
        await start(simulation, app, until_empty=True, **options)
        assert app.most_in_hand == options.get("concurrency", CONCURRENCY)

    simulate(local_url, story)


def test_jobs_that_cannot_start_soon_are_released_and_lose_nothing(local_url: str) -> None:
    """An idle worker gets them at once, though the jobs before them were short."""

    async def story(simulation: Simulation, app: Watched) -> None:
        start(simulation, app)
        await app.warm_up(simulation)
        jobs = await app.enqueue_jobs(3 * CONCURRENCY, LONG_SECONDS)
        await app.until_waiting(simulation, 2 * CONCURRENCY)
        await simulation.pass_time(RELEASED_SECONDS)
        waiting = [job for job in jobs if job.id not in app.started]
        assert len(waiting) == 2 * CONCURRENCY
        for job in waiting:
            found = await app.get(job.id)
            assert (found.state, found.attempts, found.releases) == (State.QUEUED, 0, 0)
            assert abs(found.run_at - job.run_at) < timedelta(seconds=A_MOMENT)
            assert await app.jobs.attempts(job.id) == []
        idle = Watched(local_url, simulation, "idle")
        simulation.start("idle", lambda: idle.run_worker(concurrency=2 * CONCURRENCY))
        await simulation.pass_time(A_MOMENT)
        assert set(idle.started) == {job.id for job in waiting}
        await simulation.pass_time(LONG_SECONDS + 1)
        assert await app.states(jobs) == {State.SUCCEEDED: 3 * CONCURRENCY}
        assert max(app.released.values()) == 1

    simulate(local_url, story)


def test_a_worker_that_released_jobs_takes_them_as_soon_as_it_can(local_url: str) -> None:
    """Nobody wakes it for them: they were due before."""

    async def story(simulation: Simulation, app: Watched) -> None:
        start(simulation, app)
        await app.warm_up(simulation)
        jobs = await app.enqueue_jobs(CONCURRENCY, 1.5)
        jobs = [*jobs, *await app.enqueue_jobs(CONCURRENCY, LONG_SECONDS)]
        await simulation.pass_time(1.0)
        assert len(app.released) == CONCURRENCY
        await simulation.pass_time(0.5 + A_MOMENT)
        assert set(app.started[400:]) == {job.id for job in jobs}

    simulate(local_url, story)


def test_after_a_release_it_claims_no_more_than_it_can_start(local_url: str) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        start(simulation, app)
        await app.warm_up(simulation)
        await app.enqueue_jobs(100, 1.0)
        await simulation.pass_time(0.5)
        released = app.released.total()
        assert released == 100 - CONCURRENCY
        app.most_in_hand = 0
        await simulation.pass_time(10.0)
        assert (app.most_in_hand, app.released.total()) == (CONCURRENCY, released)

    simulate(local_url, story)


def test_one_long_job_in_fifty_holds_up_no_other(local_url: str) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        lengths = [1.0 if place % 50 == 7 else SHORT_SECONDS for place in range(3000)]
        jobs = await app.enqueue_many([app.take.call(seconds) for seconds in lengths])
        began = simulation.loop.time()
        await start(simulation, app, until_empty=True)
        assert await app.states(jobs) == {State.SUCCEEDED: 3000}
        # Seen: 14.3 s, and 15.6 s if nothing is claimed ahead.
        assert simulation.loop.time() - began < 15.6
        assert max(app.waited) < RELEASED_SECONDS

    simulate(local_url, story)


def test_slots_of_long_jobs_do_not_count_for_short_ones(local_url: str) -> None:
    """Or a worker would claim what its other slots can't start, and release it over and over."""

    async def story(simulation: Simulation, app: Watched) -> None:
        start(simulation, app)
        await app.warm_up(simulation)
        await app.enqueue_jobs(CONCURRENCY - 1, 1000.0)
        await simulation.pass_time(1.0)
        before = len(app.started)
        app.most_in_hand = 0
        await app.enqueue_jobs(1000, SHORT_SECONDS)
        await simulation.pass_time(5.0)
        assert len(app.started) == before + 1000
        assert app.most_in_hand > CONCURRENCY
        assert app.released.total() == 0

    simulate(local_url, story)


def test_a_worker_whose_slots_all_have_long_jobs_rests(local_url: str) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        start(simulation, app)
        await app.warm_up(simulation)
        await app.enqueue_jobs(CONCURRENCY, 1000.0)
        await simulation.pass_time(1.0)
        await app.enqueue_jobs(10, SHORT_SECONDS)
        app.asked.clear()
        await simulation.pass_time(5.0)
        assert app.asked == []
        assert app.inside == CONCURRENCY

    simulate(local_url, story)


def test_a_timeout_counts_from_the_start_of_a_job(local_url: str) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        in_time = app.job(name="in_time", timeout_seconds=0.07)(app._take)
        start(simulation, app)
        await app.warm_up(simulation)
        jobs = await app.enqueue_many([in_time.call(0.06) for _ in range(2 * CONCURRENCY)])
        await simulation.pass_time(1.0)
        assert max(app.waited) > 0.05
        assert await app.states(jobs) == {State.SUCCEEDED: 2 * CONCURRENCY}

    simulate(local_url, story)


def test_a_canceled_job_does_not_start(local_url: str) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        start(simulation, app)
        await app.warm_up(simulation)
        jobs = await app.enqueue_jobs(2 * CONCURRENCY, 0.06)
        await app.until_waiting(simulation, CONCURRENCY)
        canceled = jobs[-1].id
        assert canceled in app.waiting
        await app.jobs.cancel(canceled)
        app.heard(Wakeup(queue=None, canceled=canceled))
        await simulation.pass_time(1.0)
        assert app.waiting == {canceled}  # it neither started nor was released
        assert await app.states(jobs) == {State.SUCCEEDED: 39, State.CANCELED: 1}

    simulate(local_url, story)


def test_a_worker_that_stops_starts_nothing_more_and_releases_the_rest(local_url: str) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        worker = start(simulation, app)
        await app.warm_up(simulation)
        jobs = await app.enqueue_jobs(3 * CONCURRENCY, 0.06)
        await app.until_waiting(simulation, 2 * CONCURRENCY)
        started = len(app.started)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        assert len(app.started) == started
        found = [await app.get(job.id) for job in jobs]
        queued = [job for job in found if job.state is State.QUEUED]
        assert len(queued) == len(jobs) - (started - 400)
        assert {(job.attempts, job.releases) for job in queued} == {(0, 0)}

    simulate(local_url, story)


def test_a_killed_worker_takes_no_job_with_it(local_url: str) -> None:
    """The database can't tell which of them had started: each may have killed the worker."""

    async def story(simulation: Simulation, app: Watched) -> None:
        start(simulation, app)
        await app.warm_up(simulation)
        jobs = await app.enqueue_jobs(3 * CONCURRENCY, LONG_SECONDS, max_attempts=1)
        await app.until_waiting(simulation, 2 * CONCURRENCY)
        simulation.kill("worker")
        heir = Watched(local_url, simulation, "heir")
        simulation.start("heir", lambda: heir.run_worker(concurrency=CONCURRENCY))
        await simulation.pass_time(LEASE_SECONDS + 6 + 61 * LONG_SECONDS)
        assert await heir.states(jobs) == {State.SUCCEEDED: 3 * CONCURRENCY}
        assert {(await heir.get(job.id)).attempts for job in jobs} == {1}

    simulate(local_url, story)


def test_jobs_that_lost_a_worker_once_are_not_claimed_ahead_by_a_new_one(local_url: str) -> None:
    """A job that kills its worker takes few others with it when it does so again."""

    async def story(simulation: Simulation, app: Watched) -> None:
        start(simulation, app)
        await app.warm_up(simulation)
        await app.enqueue_jobs(5 * CONCURRENCY, LONG_SECONDS)
        await app.until_waiting(simulation, 4 * CONCURRENCY)
        simulation.kill("worker")
        heir = Watched(local_url, simulation, "heir")
        simulation.start("heir", lambda: heir.run_worker(concurrency=CONCURRENCY))
        await simulation.pass_time(LEASE_SECONDS + 6)
        assert heir.most_in_hand == CONCURRENCY

    simulate(local_url, story)


def test_a_better_priority_goes_ahead_of_what_was_claimed_before(local_url: str) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        start(simulation, app)
        await app.warm_up(simulation)
        await app.enqueue_jobs(3000, SHORT_SECONDS, priority=5)
        await simulation.pass_time(0.03)
        before = len(app.started)
        (urgent,) = await app.enqueue_jobs(1, SHORT_SECONDS, priority=1)
        await simulation.pass_time(2.0)
        assert urgent.id in app.started
        assert app.started.index(urgent.id) - before < IN_HAND_MAX

    simulate(local_url, story)


def test_a_capped_queue_is_not_hoarded(local_url: str) -> None:
    """Its running jobs are counted, so one that waited here would keep others from running."""

    async def story(simulation: Simulation, app: Watched) -> None:
        await app.queues.cap("narrow", 2)
        start(simulation, app)
        await app.warm_up(simulation)
        app.waited.clear()
        await app.enqueue_jobs(2000, SHORT_SECONDS)
        narrow = await app.enqueue_jobs(50, SHORT_SECONDS, queue="narrow")
        await simulation.pass_time(5.0)
        assert await app.states(narrow) == {State.SUCCEEDED: 50}
        waits = dict(zip(app.started[400:], app.waited, strict=True))
        assert max(waits[job.id] for job in narrow) <= 2 * SHORT_SECONDS

    simulate(local_url, story)


def test_jobs_of_a_breaker_that_has_opened_do_not_start(local_url: str) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        calls = 0

        async def ask() -> None:
            nonlocal calls
            calls += 1
            await asyncio.sleep(0.01)
            raise ConnectionError("no answer")

        asking = app.job(name="ask", breaker=GATEWAY, retry=Retry.none())(ask)
        start(simulation, app)
        await app.warm_up(simulation)
        jobs = await app.enqueue_many([asking.call() for _ in range(400)])
        await simulation.pass_time(5.0)
        assert calls < 100
        found = [await app.get(job.id) for job in jobs]
        parked = [job for job in found if job.state is State.QUEUED]
        assert len(parked) >= 400 - calls
        assert {job.releases for job in parked} == {0}

    simulate(local_url, story)


async def test_jobs_that_wait_behind_a_handler_that_blocks_the_loop_are_released(
    local_url: str,
) -> None:
    path = urlsplit(local_url).path.removeprefix("/")
    async with Holdfast(local_url, renew_seconds=1.0) as hf:
        seen: list[int] = []

        @hf.job
        async def quick() -> None: ...

        @hf.job
        async def block() -> None:
            """Nothing else happens on this loop until the others are released."""
            deadline = time.monotonic() + WAIT_SECONDS
            with closing(sqlite3.connect(path)) as connection:
                while not seen and time.monotonic() < deadline:
                    (count,) = connection.execute(UNTOUCHED).fetchone()
                    seen.extend([count] * (count > 100))

        await hf.enqueue_many([quick.call() for _ in range(500)])
        async with working(hf):
            await wait_until(lambda: done(hf, 500), "short jobs")
            calls = [block.call(), *(quick.call() for _ in range(200))]
            await hf.enqueue_many(calls)
            await wait_until(lambda: done(hf, 701), "all jobs")
        assert seen


async def test_a_signal_counts_the_jobs_that_run(local_hf: Holdfast) -> None:
    if not Seam().signals_are_free():
        missing("somebody else handles SIGTERM in this process")
    inside = 0

    @local_hf.job
    async def quick() -> None: ...

    @local_hf.job
    async def stay() -> None:
        nonlocal inside
        inside += 1
        if inside == CONCURRENCY:
            os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    await local_hf.enqueue_many([quick.call() for _ in range(500)])
    async with seen_events() as seen, working(local_hf, concurrency=CONCURRENCY) as worker:
        await wait_until(lambda: done(local_hf, 500), "short jobs")
        await local_hf.enqueue_many([stay.call() for _ in range(5 * CONCURRENCY)])
        report = await worker
    assert seen.named("shutdown")[0].fields["count"] == CONCURRENCY
    assert report.released > CONCURRENCY


@pytest.mark.parametrize("seed", range(8))
def test_whatever_jobs_take_none_waits_here_for_long(local_url: str, seed: int) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        random = simulation.random
        apps = [app, Watched(local_url, simulation, "second")]
        for each, process in zip(apps, ("worker", "second"), strict=True):
            concurrency = random.choice((2, 5, CONCURRENCY))
            simulation.start(process, partial(each.run_worker, concurrency=concurrency))
        jobs: list[Job] = []
        for _ in range(10):
            lengths = random.choices((0.0, SHORT_SECONDS, 0.03, 0.2, 3.0), (8, 8, 2, 1, 0.1), k=200)
            jobs += await app.enqueue_many([app.take.call(seconds) for seconds in lengths])
            await simulation.pass_time(random.random())
        for _ in range(60):
            await simulation.pass_time(1.0)
            if await done(app, len(jobs)):
                break
        assert sorted(app.started + apps[1].started) == sorted(job.id for job in jobs)
        assert max(app.waited + apps[1].waited) <= PREFETCHED_SECONDS_MAX + 0.002
        for job in jobs:
            ended = await app.get(job.id)
            assert (ended.state, ended.attempts, ended.releases) == (State.SUCCEEDED, 1, 0)

    simulate(local_url, story, seed)
