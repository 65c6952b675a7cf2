"""The real engine on SQLite under seeded schedules: kills, stops and restarts at any await, and
claims whose answer is lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import UUID

import pytest

from holdfast import (
    Breaker,
    Context,
    Filter,
    Holdfast,
    Job,
    Permanent,
    Retry,
    Snooze,
    State,
    WrongState,
)
from holdfast.domain.errors import StoreUnavailable
from holdfast.job_function import JobFunction
from holdfast.stores.protocol import Claim, Store
from holdfast.testing.simulation import Simulation
from holdfast.worker.reclaim import reclaim_worker_in_time
from tests.support.around import Around

pytestmark = pytest.mark.long

T = TypeVar("T")

# Breaks of the engine that schedules were found to see were seen by the first few of them;
# `make soak` runs thousands.
SCHEDULES = int(os.environ.get("HOLDFAST_TEST_SCHEDULES", "100"))
BATCH = 20
WORKERS = 2
LEASE_SECONDS = 10.0
GATEWAY = Breaker("gateway", failures=3, window_seconds=1000, probe_seconds=5)


@dataclass
class Account:
    """What the handlers saw, outside the database."""

    database: sqlite3.Connection
    starts: dict[UUID, list[int]] = field(default_factory=lambda: defaultdict(list))
    expected: dict[UUID, set[State]] = field(default_factory=dict)
    inside: dict[str, dict[UUID, bool]] = field(default_factory=lambda: defaultdict(dict))
    alone: dict[UUID, bool] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    gateway_is_up: bool = False

    @contextmanager
    def note(self, ctx: Context, process: str) -> Iterator[None]:
        """Write down the start, and who else runs in the process until the end."""
        self.starts[ctx.job_id].append(ctx.fence)
        (alone,) = self.database.execute(
            "SELECT alone FROM jobs WHERE id = ? AND fence = ?", [str(ctx.job_id), ctx.fence]
        ).fetchone() or [False]
        inside = self.inside[process]
        if inside and (alone or any(inside.values())):
            self.broken.append(f"{ctx.name} in company of {inside}: alone={alone}")
        if not 1 <= ctx.attempt <= ctx.max_attempts:
            self.broken.append(f"attempt {ctx.attempt} of {ctx.name}")
        self.alone[ctx.job_id] = inside[ctx.job_id] = bool(alone)
        try:
            yield
        finally:
            inside.pop(ctx.job_id, None)


class UnheardStore(Around):
    def __init__(self, store: Store, app: Unheard) -> None:
        super().__init__(store)
        self._app = app

    async def claim(self, request: Claim) -> Any:
        return self._app.unheard(await self.store.claim(request))

    async def claim_suspect(self, request: Claim) -> Any:
        return self._app.unheard(await self.store.claim_suspect(request))


class Unheard(Holdfast):
    """Loses the answers to some of its claims, which are carried out all the same."""

    lost_share = 0.0

    def _make_store(self) -> Store:
        return cast(Store, UnheardStore(super()._make_store(), self))

    def unheard(self, answer: T) -> T:
        if self._seam.random.random() < self.lost_share:
            raise StoreUnavailable("the answer was lost")
        return answer


Functions = dict[str, JobFunction[Any, Any]]


def make_app(
    simulation: Simulation, process: str, path: Path, account: Account
) -> tuple[Holdfast, Functions]:
    hf = Unheard(
        f"sqlite:///{path}",
        seam=simulation.seam(process),
        lease_seconds=LEASE_SECONDS,
        grace_seconds=3.0,
        poll_seconds=4.0,
        sqlite_synchronous="NORMAL",
    )
    hf.lost_share = 0.05
    patient = Retry.exponential(max_attempts=20, base=1, cap=8)

    def noted(ctx: Context) -> AbstractContextManager[None]:
        return account.note(ctx, process)

    @hf.job(retry=patient)
    async def quick(ctx: Context) -> int:
        with noted(ctx):
            return ctx.fence

    @hf.job(retry=patient)
    async def slow(ctx: Context, seconds: float) -> int:
        with noted(ctx):
            await simulation.pass_time(seconds)
            await ctx.progress({"slept": seconds})
            return ctx.fence

    @hf.job(retry=patient)
    def threaded(ctx: Context) -> int:
        with noted(ctx):
            return ctx.fence

    @hf.job(retry=patient)
    async def flaky(ctx: Context) -> int:
        with noted(ctx):
            if ctx.attempt < 3:
                raise RuntimeError("not yet")
            return ctx.fence

    @hf.job(retry=patient)
    async def broken(ctx: Context) -> None:
        with noted(ctx):
            raise Permanent("never", code="BROKEN")

    @hf.job(retry=Retry.schedule([1, 1]))
    async def hopeless(ctx: Context) -> None:
        with noted(ctx):
            raise RuntimeError("never")

    @hf.job(retry=patient)
    async def sleepy(ctx: Context) -> int:
        with noted(ctx):
            if len(account.starts[ctx.job_id]) < 3:
                raise Snooze(5)
            return ctx.fence

    @hf.job(retry=patient, breaker=GATEWAY)
    async def dependent(ctx: Context) -> int:
        with noted(ctx):
            await simulation.pass_time(simulation.random.random())
            if not account.gateway_is_up:
                raise ConnectionError("no answer")
            return ctx.fence

    @hf.job(retry=Retry.schedule([1, 1]))
    async def poison(ctx: Context) -> None:
        with noted(ctx):
            await simulation.pass_time(simulation.random.random())
            simulation.kill(process)
            await asyncio.Event().wait()

    functions = (quick, slow, threaded, flaky, broken, hopeless, sleepy, dependent, poison)
    return hf, {function.name: function for function in functions}


async def enqueue_all(
    hf: Holdfast, job: Functions, simulation: Simulation, account: Account
) -> list[Job]:
    draw = simulation.random.random
    poisons = simulation.random.choice(((), (), (), (), (), (), (1,), (3,)))
    calls = [
        *(job["quick"].call() for _ in range(2)),
        *(job["slow"].call(seconds=draw() * 20) for _ in range(2)),
        job["threaded"].call(),
        job["flaky"].call(),
        job["broken"].call(),
        job["hopeless"].call(),
        job["sleepy"].call(),
        *(job["dependent"].call() for _ in range(5)),
        *(job["poison"].options(max_attempts=attempts).call() for attempts in poisons),
        job["quick"].options(delay_seconds=30).call(),
    ]
    jobs = await hf.enqueue_many(calls)
    ends = {"broken": {State.FAILED}, "hopeless": {State.DEAD}, "poison": {State.DEAD}}
    for enqueued in jobs:
        account.expected[enqueued.id] = ends.get(enqueued.name, {State.SUCCEEDED})
    return jobs


class Workers:
    """Worker processes on the simulated machine, each replaced when it was killed."""

    def __init__(self, simulation: Simulation, path: Path, account: Account) -> None:
        self._simulation = simulation
        self._path = path
        self._account = account
        self._boots = 0
        self.names = [self._start() for _ in range(WORKERS)]

    def _start(self) -> str:
        self._boots += 1
        process = f"worker-{self._boots}"
        hf, _ = make_app(self._simulation, process, self._path, self._account)
        concurrency = self._simulation.random.choice((1, 4))
        self._simulation.start(process, lambda: hf.run_worker(concurrency=concurrency))
        return process

    async def keep_alive(self, client: Holdfast) -> None:
        """As a supervisor does; sometimes it takes back what the dead had, and sometimes not."""
        while True:
            await self._simulation.pass_time(1)
            for place, process in enumerate(self.names):
                if process in self._simulation.killed:
                    self.names[place] = self._start()
                    if self._simulation.random.random() < 0.5:
                        await reclaim(client, process)


async def reclaim(client: Holdfast, process: str) -> None:
    running = (await client.jobs.list(Filter(states=(State.RUNNING,)))).jobs
    owners = {job.lease_owner for job in running if job.lease_owner is not None}
    for owner in sorted(owners):
        if owner.startswith(f"{process}:"):
            await reclaim_worker_in_time(client._open, owner, "was killed")


async def chaos(simulation: Simulation, workers: Workers) -> None:
    """Kill, stop and continue worker processes at moments drawn from the seed."""
    draw = simulation.random
    for _ in range(3):
        await simulation.pass_time(draw.random() * 12)
        process = draw.choice(workers.names)
        if draw.random() < 0.6:
            simulation.kill(process)
        else:
            simulation.stop(process)
            await simulation.pass_time(draw.random() * 3 * LEASE_SECONDS)
            simulation.resume(process)


async def outage(simulation: Simulation, account: Account) -> None:
    """Let the gateway come back at a moment drawn from the seed."""
    await simulation.pass_time(simulation.random.random() * 40)
    account.gateway_is_up = True


async def schedule(simulation: Simulation, path: Path, account: Account) -> list[Job]:
    client, functions = make_app(simulation, "client", path, account)
    jobs = await enqueue_all(client, functions, simulation, account)
    canceled = simulation.random.choice(jobs)
    workers = Workers(simulation, path, account)
    keeping = asyncio.ensure_future(workers.keep_alive(client))
    disturbing = asyncio.ensure_future(chaos(simulation, workers))
    mending = asyncio.ensure_future(outage(simulation, account))
    await simulation.pass_time(simulation.random.random() * 20)
    with suppress(WrongState):
        await client.jobs.cancel(canceled.id)
        account.expected[canceled.id] = {State.CANCELED}
    await disturbing
    await mending
    async with asyncio.timeout(3600):
        found = await look(client)
        while not all(job.state.ended for job in found.values()):
            await simulation.pass_time(4)
            found = await look(client)
    keeping.cancel()
    return [found[job.id] for job in jobs]


async def look(client: Holdfast) -> dict[UUID, Job]:
    return {job.id: job for job in (await client.jobs.list()).jobs}


def failures_of_the_gateway(account: Account) -> int:
    """How many attempts it cost that the gateway was down."""
    (count,) = account.database.execute(
        "SELECT count(*) FROM attempts WHERE error_code = 'ConnectionError' AND outcome = 'failed'"
    ).fetchone()
    return int(count)


def check(jobs: list[Job], account: Account) -> None:
    assert account.broken == []
    # So many open the breaker. A worker that stood still may tell of others when it has closed.
    assert failures_of_the_gateway(account) < 2 * GATEWAY.failures
    for job in jobs:
        starts = account.starts[job.id]
        assert job.state in account.expected[job.id], job
        assert starts == sorted(set(starts)), f"the fences of {job.name} did not rise: {starts}"
        # The last attempt is given back once, if it crashed in company.
        assert len(starts) <= job.max_attempts + job.snoozes + job.releases + 1
        if job.error_code in ("LEASE_LOST", "CRASHED") and starts[-1] == job.fence - 1:
            assert account.alone[job.id], f"{job.name} died in company"
        if job.state is State.SUCCEEDED:
            # The result is the fence of the attempt that wrote it, and settling raised it by one:
            # so it was the last lease, and nothing was written after it.
            assert job.result == starts[-1] == job.fence - 1


@pytest.fixture(scope="module")
def memory_folder() -> Iterator[Path]:
    """Virtual time can't wait for a disk: in memory where the machine has such a place."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="holdfast-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def template(memory_folder: Path) -> Path:
    async def migrate() -> None:
        await Holdfast(f"sqlite:///{memory_folder}/template.db").migrate()

    asyncio.run(migrate())
    return memory_folder / "template.db"


@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
def test_promises_2_3_and_6_hold_under_every_schedule(first: int, template: Path) -> None:
    for seed in range(first, first + BATCH):
        path = template.with_name(f"{seed}.db")
        shutil.copy(template, path)
        with closing(sqlite3.connect(path)) as database:
            account = Account(database)
            with Simulation(seed) as simulation:
                jobs = simulation.run(schedule(simulation, path, account))
            try:
                check(jobs, account)
            except AssertionError as error:
                raise AssertionError(f"schedule {seed}: {error}") from error
        for left in path.parent.glob(f"{seed}.db*"):
            left.unlink()


def test_a_schedule_can_be_replayed(template: Path) -> None:
    def play() -> tuple[list[Job], int]:
        path = template.with_name("replay.db")
        shutil.copy(template, path)
        with closing(sqlite3.connect(path)) as database, Simulation(7) as simulation:
            jobs = simulation.run(schedule(simulation, path, Account(database)))
            return jobs, simulation.loop.steps

    (first, first_steps), (second, second_steps) = play(), play()
    assert first_steps == second_steps
    assert [job.fence for job in first] == [job.fence for job in second]
