"""Strays: jobs of claims whose answer was lost, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar, cast

from holdfast import Breaker, Context, Holdfast, Job, Retry, State
from holdfast.domain.errors import StoreRefused, StoreUnavailable
from holdfast.domain.job import Lost, Settlement
from holdfast.stores.protocol import Claim, Store
from holdfast.testing.simulation import Simulation
from tests.support.around import Around

T = TypeVar("T")

LEASE_SECONDS = 30.0
STEP_SECONDS = 1.0
GATEWAY = Breaker("gateway", failures=1, window_seconds=1000, probe_seconds=5)


class UnheardStore(Around):
    def __init__(self, store: Store, app: Unheard) -> None:
        super().__init__(store)
        self._app = app

    async def claim(self, request: Claim) -> Any:
        return await self._app.unheard("claim", self.store.claim(request))

    async def claim_suspect(self, request: Claim) -> Any:
        return await self._app.unheard("claim_suspect", self.store.claim_suspect(request))

    async def claim_probes(self, request: Claim) -> Any:
        return await self._app.unheard("claim_probes", self.store.claim_probes(request))

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Lost]:
        if self._app.refusing:
            raise StoreRefused("no such end")
        return await self.store.settle(settlements)  # type: ignore[no-any-return]


class Unheard(Holdfast):
    """Loses the answers to the next claims of a kind, which are carried out so much later."""

    def __init__(self, url: str, simulation: Simulation) -> None:
        self.losing = ""
        self.late_seconds = 0.0
        self.lost = 0
        self.refusing = False
        self._simulation = simulation
        self.late: set[asyncio.Task[Any]] = set()
        super().__init__(
            url,
            seam=simulation.seam("worker"),
            lease_seconds=LEASE_SECONDS,
            poll_seconds=STEP_SECONDS,
        )

    def _make_store(self) -> Store:
        return cast(Store, UnheardStore(super()._make_store(), self))

    async def unheard(self, kind: str, claim: Coroutine[Any, Any, T]) -> T:
        if kind != self.losing:
            return await claim
        self.losing = ""
        self.lost += 1
        if self.late_seconds:
            self.late.add(asyncio.ensure_future(self._later(claim)))
        else:
            await claim
        raise StoreUnavailable("the connection is gone")

    async def _later(self, claim: Coroutine[Any, Any, T]) -> None:
        await self._simulation.pass_time(self.late_seconds)
        await claim


Story = Callable[[Simulation, Unheard], Awaitable[None]]


def simulate(url: str, story: Story) -> None:
    async def tell(simulation: Simulation) -> None:
        await story(simulation, Unheard(url, simulation))

    with Simulation(seed=1) as simulation:
        simulation.run(tell(simulation))


async def untouched(app: Holdfast, job: Job) -> None:
    found = await app.get(job.id)
    assert (found.state, found.attempts, found.crashes) == (State.QUEUED, 0, 0)


def test_a_claim_that_is_carried_out_when_nobody_waits_for_it_costs_nothing(
    local_url: str,
) -> None:
    async def story(simulation: Simulation, app: Unheard) -> None:
        opened = asyncio.Event()
        waiting = app.job(name="waiting")(opened.wait)
        simulation.start("worker", lambda: app.run_worker(concurrency=2))
        await simulation.pass_time(STEP_SECONDS)
        app.losing, app.late_seconds = "claim", LEASE_SECONDS / 2
        jobs = [await waiting.enqueue() for _ in range(3)]
        await simulation.pass_time(LEASE_SECONDS / 2 + STEP_SECONDS)
        assert app.lost == 1
        # Two of them have started meanwhile, and the late claim has found the third.
        assert (await app.get(jobs[2].id)).state is State.RUNNING
        await simulation.pass_time(LEASE_SECONDS / 3)
        await untouched(app, jobs[2])
        assert [(await app.get(job.id)).state for job in jobs[:2]] == [State.RUNNING] * 2
        opened.set()
        await simulation.pass_time(LEASE_SECONDS)
        ended = [await app.get(job.id) for job in jobs]
        assert [(job.state, job.attempts) for job in ended] == [(State.SUCCEEDED, 1)] * 3

    simulate(local_url, story)


def test_a_probe_that_strays_costs_nothing(local_url: str) -> None:
    async def story(simulation: Simulation, app: Unheard) -> None:
        starts: list[int] = []

        async def ask(ctx: Context) -> None:
            starts.append(ctx.attempt)
            if len(starts) == 1:
                raise ConnectionError("no answer")

        asking = app.job(name="ask", breaker=GATEWAY, retry=Retry.schedule([1, 1]))(ask)
        simulation.start("worker", app.run_worker)
        app.losing = "claim_probes"
        job = await asking.enqueue()
        await simulation.pass_time(LEASE_SECONDS)
        assert app.lost == 1
        ended = await app.get(job.id)
        assert (ended.state, ended.attempts, ended.crashes) == (State.SUCCEEDED, 2, 0)

    simulate(local_url, story)


def test_a_job_that_ran_is_no_stray_though_its_end_was_refused(local_url: str) -> None:
    """It would start again and again, without an attempt less."""

    async def story(simulation: Simulation, app: Unheard) -> None:
        starts: list[int] = []

        async def run(ctx: Context) -> None:
            starts.append(ctx.attempt)

        running = app.job(name="run")(run)
        simulation.start("worker", app.run_worker)
        app.refusing = True
        job = await running.enqueue()
        await simulation.pass_time(2 * STEP_SECONDS)
        app.losing = "claim"
        await simulation.pass_time(LEASE_SECONDS / 2)
        assert (app.lost, starts) == (1, [1])
        app.refusing = False
        await simulation.pass_time(2 * LEASE_SECONDS)
        ended = await app.get(job.id)
        assert (ended.state, ended.crashes, starts) == (State.SUCCEEDED, 1, [1, 2])

    simulate(local_url, story)
