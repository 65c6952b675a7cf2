"""What is taken back from whom, and when: workers on one machine, in virtual time."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, Job, State
from holdfast.domain.job import Reclaimed
from holdfast.domain.limits import CLAIM_BATCH_MAX, RECLAIM_BATCH_MAX
from holdfast.job_function import JobFunction
from holdfast.settings import Settings
from holdfast.stores.protocol import Claim, Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing.simulation import SimulatedSeam, Simulation
from holdfast.worker.reclaimer import Reclaimer

DEFAULTS = Settings()
SEEDS = range(3)
JOB_SECONDS = 20.0
SHORT_LEASE_SECONDS = 1.5


class CutOff(SimulatedSeam):
    """A process that can be cut off from the database: SQLite interrupts all that it asks for."""

    is_on = False

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        connection = super().connect_sqlite(path)
        connection.set_progress_handler(lambda: self.is_on, 1)
        return connection


class Machine:
    """Processes with one job, which writes down when it starts and then takes its time."""

    def __init__(self, simulation: Simulation, url: str) -> None:
        self.simulation = simulation
        self.starts: list[tuple[str, float]] = []
        self._started = asyncio.Condition()
        self._url = url
        self.holdfast = Holdfast
        self.seam = CutOff

    def app(self, process: str, **settings: Any) -> tuple[CutOff, Holdfast, JobFunction[Any, Any]]:
        seam = self.seam(self.simulation, process)
        hf = self.holdfast(self._url, seam=seam, sqlite_synchronous="NORMAL", **settings)

        @hf.job
        async def take_long(ctx: Context) -> None:
            async with self._started:
                self.starts.append((process, seam.monotonic()))
                self._started.notify_all()
            await self.simulation.pass_time(JOB_SECONDS)

        return seam, hf, take_long

    def worker(self, process: str, queue: str = "default", **settings: float) -> CutOff:
        seam, hf, _ = self.app(process, **settings)
        self.simulation.start(process, lambda: hf.run_worker(queues=[queue]))
        return seam

    async def started(self, times: int) -> float:
        """Wait for so many starts; answer when the last of them was."""
        async with asyncio.timeout(3600), self._started:
            await self._started.wait_for(lambda: len(self.starts) >= times)
        return self.starts[times - 1][1]


def simulate(
    seed: int, folder: Path, scene: Callable[[Machine], Coroutine[Any, Any, None]]
) -> None:
    with Simulation(seed) as simulation:
        simulation.run(scene(Machine(simulation, f"sqlite:///{folder / 'jobs.db'}")))


async def ended(machine: Machine, client: Holdfast, job: Job) -> Job:
    while not (found := await client.get(job.id)).state.ended:
        await machine.simulation.pass_time(JOB_SECONDS)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_after_an_outage_even_a_short_lease_is_left_to_one_who_has_yet_to_connect(
    seed: int, tmp_path: Path
) -> None:
    async def scene(machine: Machine) -> None:
        _, client, take_long = machine.app("client")
        job = await take_long.enqueue()
        holder = machine.worker("holder", lease_seconds=1)
        await machine.started(1)
        eager = machine.worker("eager", "others", lease_seconds=1, reclaim_seconds=0.1)
        await machine.simulation.pass_time(1)
        holder.is_on = eager.is_on = True
        await machine.simulation.pass_time(3)
        eager.is_on = False
        await machine.simulation.pass_time(1.5)
        holder.is_on = False
        found = await ended(machine, client, job)
        assert (found.state, found.attempts, found.fence) == (State.SUCCEEDED, 1, 2)

    simulate(seed, tmp_path, scene)


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_machine_stood_still_what_ran_out_is_left_to_the_living(
    seed: int, tmp_path: Path
) -> None:
    async def scene(machine: Machine) -> None:
        _, client, take_long = machine.app("client")
        job = await take_long.enqueue()
        machine.worker("holder", lease_seconds=6)
        await machine.started(1)
        machine.worker("eager", "others", lease_seconds=6, reclaim_seconds=0.1)
        await machine.simulation.pass_time(1)
        for process in ("holder", "eager"):
            machine.simulation.stop(process)
        await machine.simulation.pass_time(10)
        machine.simulation.resume("eager")
        await machine.simulation.pass_time(0.5)
        machine.simulation.resume("holder")
        found = await ended(machine, client, job)
        assert (found.state, found.attempts, found.fence) == (State.SUCCEEDED, 1, 2)

    simulate(seed, tmp_path, scene)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_workers_job_starts_again_within_lease_and_6_seconds_as_all_is_set(
    seed: int, tmp_path: Path
) -> None:
    async def scene(machine: Machine) -> None:
        _, _, take_long = machine.app("client")
        await take_long.enqueue()
        machine.worker("killed")
        await machine.started(1)
        machine.worker("heir")
        draw = machine.simulation.random.random
        await machine.simulation.pass_time(draw() * JOB_SECONDS)
        machine.simulation.kill("killed")
        killed_at = machine.simulation.loop.time()
        again = await machine.started(2)
        assert again - killed_at <= DEFAULTS.lease_seconds + 6
        assert [process for process, _ in machine.starts] == ["killed", "heir"]

    simulate(seed, tmp_path, scene)


class SlowLooks(SqliteStore):
    """Takes its time to look for names that nobody knows."""

    async def unknown_names(
        self, names: Sequence[str], queues: Sequence[str] | None
    ) -> Sequence[str]:
        await asyncio.sleep(0.7 * DEFAULTS.lease_seconds)
        return await super().unknown_names(names, queues)


class Patient(Holdfast):
    def _make_store(self) -> Store:
        return SlowLooks(self._database.removeprefix("sqlite:///"), self._seam)


class SlowAnswers(SqliteStore):
    """Answers whoever takes back, but later than half a lease."""

    async def reclaim(
        self, limit: int, dead_worker: str | None = None, reason: str = ""
    ) -> Sequence[Reclaimed]:
        await asyncio.sleep(0.6 * DEFAULTS.lease_seconds)
        return await super().reclaim(limit, dead_worker, reason)


class Slow(Holdfast):
    def _make_store(self) -> Store:
        return SlowAnswers(self._database.removeprefix("sqlite:///"), self._seam)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_look_for_unknown_names_that_takes_long_keeps_nobody_from_taking_back(
    seed: int, tmp_path: Path
) -> None:
    async def scene(machine: Machine) -> None:
        machine.holdfast = Patient
        _, client, take_long = machine.app("client")
        machine.worker("sweeping", "others")
        # By then it has tidied up, which it does rarely, and looks again.
        await machine.simulation.pass_time(1.2 * DEFAULTS.lease_seconds)
        job = await take_long.enqueue()
        machine.worker("killed")
        await machine.started(1)
        machine.simulation.kill("killed")
        await machine.simulation.pass_time(3 * DEFAULTS.lease_seconds)
        assert (await client.get(job.id)).state is State.QUEUED

    simulate(seed, tmp_path, scene)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_database_that_is_always_slow_keeps_nobody_from_taking_back(
    seed: int, tmp_path: Path
) -> None:
    async def scene(machine: Machine) -> None:
        machine.holdfast = Slow
        _, client, take_long = machine.app("client")
        job = await take_long.enqueue()
        machine.worker("killed")
        await machine.started(1)
        machine.worker("sweeping", "others")
        machine.simulation.kill("killed")
        await machine.simulation.pass_time(6 * DEFAULTS.lease_seconds)
        assert (await client.get(job.id)).state is State.QUEUED

    simulate(seed, tmp_path, scene)


class SlowToOpen(SqliteStore):
    """Takes longer than half a short lease to open, as a connection does on a busy machine."""

    async def open(self) -> None:
        await asyncio.sleep(0.6 * SHORT_LEASE_SECONDS)
        await super().open()


class Busy(Holdfast):
    def _make_store(self) -> Store:
        return SlowToOpen(self._database.removeprefix("sqlite:///"), self._seam)


@pytest.mark.parametrize("seed", SEEDS)
def test_workers_that_start_slowly_and_are_killed_at_their_first_job_take_back_before_it(
    seed: int, tmp_path: Path
) -> None:
    async def scene(machine: Machine) -> None:
        machine.holdfast = Busy
        _, client, take_long = machine.app("client")
        job = await take_long.enqueue()
        machine.worker("killed", lease_seconds=SHORT_LEASE_SECONDS)
        await machine.started(1)
        machine.simulation.kill("killed")
        await machine.simulation.pass_time(SHORT_LEASE_SECONDS)
        await take_long.options(queue="others").enqueue()
        machine.worker("killed soon", "others", lease_seconds=SHORT_LEASE_SECONDS)
        await machine.started(2)
        machine.simulation.kill("killed soon")
        assert (await client.get(job.id)).state is State.QUEUED

    simulate(seed, tmp_path, scene)


class LateBatches(SqliteStore):
    """Takes batches back, but answers later than half a lease; writes down when."""

    def __init__(self, path: str, seam: SimulatedSeam) -> None:
        super().__init__(path, seam)
        self.asked_at: list[float] = []
        self.answered_at: list[float] = []

    async def reclaim(
        self, limit: int, dead_worker: str | None = None, reason: str = ""
    ) -> Sequence[Reclaimed]:
        asked_at = self._seam.monotonic()
        reclaimed = await super().reclaim(limit, dead_worker, reason)
        if reclaimed:
            await asyncio.sleep(0.6 * DEFAULTS.lease_seconds)
            self.asked_at.append(asked_at)
            self.answered_at.append(self._seam.monotonic())
        return reclaimed


def test_a_batch_that_came_late_leaves_the_living_time_before_the_next(tmp_path: Path) -> None:
    async def scene(machine: Machine) -> None:
        seam, client, take_long = machine.app("client")
        await client.enqueue_many([take_long.call() for _ in range(2 * RECLAIM_BATCH_MAX)])
        store = LateBatches(str(tmp_path / "jobs.db"), seam)
        await store.open()
        for _ in range(2):
            await store.claim(Claim("gone", CLAIM_BATCH_MAX, 1.0, names=("take_long",)))
        await machine.simulation.pass_time(2)
        reclaimer = Reclaimer(lambda: store, seam, DEFAULTS, lambda jobs: None)
        machine.simulation.start("client", reclaimer.run)
        await machine.simulation.pass_time(4 * DEFAULTS.lease_seconds)
        (first, *_), (_, second, *_) = store.answered_at, store.asked_at
        assert second - first >= DEFAULTS.renewal_seconds

    simulate(1, tmp_path, scene)


class Flaky(CutOff):
    """A process whose database fails for a moment, again and again."""

    @property
    def is_on(self) -> bool:  # type: ignore[override]
        return self.monotonic() % 6 > 3


@pytest.mark.parametrize("seed", SEEDS)
def test_a_database_that_fails_now_and_then_keeps_nobody_from_taking_back(
    seed: int, tmp_path: Path
) -> None:
    async def scene(machine: Machine) -> None:
        _, client, take_long = machine.app("client")
        job = await take_long.enqueue()
        machine.worker("killed")
        await machine.started(1)
        machine.seam = Flaky
        machine.worker("sweeping", "others")
        machine.simulation.kill("killed")
        await machine.simulation.pass_time(4 * DEFAULTS.lease_seconds)
        assert (await client.get(job.id)).state is State.QUEUED

    simulate(seed, tmp_path, scene)
