"""A worker that is told of one job looks at that one, and overlooks no other for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, cast
from uuid import UUID

from holdfast import Holdfast
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import Claimed
from holdfast.domain.states import State
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Claim, Store
from holdfast.testing.simulation import Simulation
from holdfast.wakeups.protocol import Heard, Wakeup
from holdfast.worker.slots import QueueChoice
from tests.support.around import Around
from tests.support.processes import WAIT_SECONDS, wait_until

POLL_SECONDS = 1.0
STEP_SECONDS = 0.05
IDLE_SECONDS = 5.2  # polls are at their longest, and none is due in the next moment
A_JOB, ANOTHER = UUID(int=1), UUID(int=2)


class WatchedStore(Around):
    def __init__(self, store: Store, app: Watched) -> None:
        super().__init__(store)
        self._app = app

    async def claim(self, request: Claim) -> Sequence[Claimed]:
        self._app.look(request)
        return await self.store.claim(request)  # type: ignore[no-any-return]

    async def listen(self, heard: Heard) -> Any:
        self._app.heard = heard
        return await self.store.listen(heard)


class Watched(Holdfast):
    """Notes what its worker looks at, a job or everything (None), and can tell it of jobs."""

    def __init__(
        self, url: str, seam: Seam | None = None, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self.looks: list[tuple[float, UUID | None]] = []
        self.is_away = False
        self.heard: Heard
        super().__init__(url, seam=seam, poll_seconds=poll_seconds)

    def _make_store(self) -> Store:
        return cast(Store, WatchedStore(super()._make_store(), self))

    def look(self, request: Claim) -> None:
        self.looks.append((self._seam.monotonic(), request.job_id))
        if self.is_away:
            raise StoreUnavailable("the database is away")

    def tell(self, *job_ids: UUID, queue: str = "default") -> None:
        for job_id in job_ids:
            self.heard(Wakeup(queue=queue, job_id=job_id))

    @property
    def looked_at(self) -> list[UUID | None]:
        return [job_id for _, job_id in self.looks]


def simulate(url: str, story: Callable[[Simulation, Watched], Awaitable[None]]) -> None:
    async def tell(simulation: Simulation) -> None:
        app = Watched(url, simulation.seam("worker"))
        app.job(nothing)
        await story(simulation, app)

    with Simulation(seed=1) as simulation:
        simulation.run(tell(simulation))


async def idle_worker(
    simulation: Simulation, app: Watched, queues: QueueChoice | None = None
) -> None:
    simulation.start("worker", lambda: app.run_worker(queues=queues))
    await simulation.pass_time(IDLE_SECONDS)
    app.looks.clear()


async def nothing() -> None: ...


def test_a_worker_that_is_told_of_one_job_looks_at_that_only(local_url: str) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        await idle_worker(simulation, app)
        app.tell(A_JOB)
        await simulation.pass_time(STEP_SECONDS)
        app.tell(ANOTHER)
        await simulation.pass_time(STEP_SECONDS)
        assert app.looked_at == [A_JOB, ANOTHER]

    simulate(local_url, story)


def test_a_worker_that_is_told_of_two_jobs_at_once_looks_at_everything(local_url: str) -> None:
    """Which of them comes first is for the database to say."""

    async def story(simulation: Simulation, app: Watched) -> None:
        await idle_worker(simulation, app)
        app.tell(A_JOB, ANOTHER)
        await simulation.pass_time(STEP_SECONDS)
        assert app.looked_at == [None]

    simulate(local_url, story)


def test_to_be_told_of_jobs_all_the_time_keeps_no_worker_from_looking_at_everything(
    local_url: str,
) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        await idle_worker(simulation, app)
        for _ in range(200):
            app.tell(A_JOB)
            await simulation.pass_time(STEP_SECONDS)
        everything = [at for at, job_id in app.looks if job_id is None]
        waits = [after - before for before, after in pairwise(everything)]
        assert len(waits) > 5
        assert max(waits) <= POLL_SECONDS + 2 * STEP_SECONDS
        assert app.looked_at.count(A_JOB) > 100

    simulate(local_url, story)


def test_a_worker_that_could_not_look_at_a_job_looks_at_everything(local_url: str) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        await idle_worker(simulation, app)
        app.is_away = True
        app.tell(A_JOB)
        await simulation.pass_time(STEP_SECONDS / 10)
        app.is_away = False
        app.tell(ANOTHER)
        await simulation.pass_time(STEP_SECONDS / 10)
        assert app.looked_at == [A_JOB, None]

    simulate(local_url, story)


def test_a_job_of_a_queue_with_a_limit_makes_a_worker_look_at_everything(local_url: str) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        await idle_worker(simulation, app, queues={"images": 2, "*": None})
        app.tell(A_JOB, queue="images")
        await simulation.pass_time(STEP_SECONDS)
        assert app.looked_at == [None, None]  # the limited queue, and all others
        app.tell(A_JOB)
        await simulation.pass_time(STEP_SECONDS)
        assert app.looked_at == [None, None, A_JOB]

    simulate(local_url, story)


def test_a_worker_without_a_slot_looks_at_everything_when_it_has_one(local_url: str) -> None:
    async def story(simulation: Simulation, app: Watched) -> None:
        opened = asyncio.Event()
        waiting = app.job(name="waiting")(opened.wait)
        jobs = [await waiting.enqueue() for _ in range(2)]
        simulation.start("worker", lambda: app.run_worker(concurrency=1))
        await simulation.pass_time(STEP_SECONDS)
        app.looks.clear()
        app.tell(A_JOB)
        await simulation.pass_time(STEP_SECONDS)
        assert app.looked_at == []
        opened.set()
        await simulation.pass_time(STEP_SECONDS)
        assert app.looked_at[0] is None
        assert [(await app.get(job.id)).state for job in jobs] == [State.SUCCEEDED] * 2

    simulate(local_url, story)


async def test_a_job_that_is_enqueued_by_itself_is_named_by_its_wakeup(postgres_url: str) -> None:
    app = Watched(postgres_url, poll_seconds=2 * WAIT_SECONDS)  # no poll finds the job first
    await app.migrate()
    job = app.job(nothing)
    async with app:
        worker = asyncio.create_task(app.run_worker())
        await wait_until(lambda: len(app.looks) > 1, "an idle worker")
        enqueued = await job.enqueue()
        await app.result(enqueued.id, timeout_seconds=WAIT_SECONDS)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    assert enqueued.id in app.looked_at
