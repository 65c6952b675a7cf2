"""How long a worker takes to stop when its database has fallen silent, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from holdfast import Holdfast
from holdfast.domain.job import Lease
from holdfast.domain.limits import STOP_SECONDS_MAX
from holdfast.domain.workers import Load
from holdfast.stores.protocol import Claim, Store
from holdfast.testing.simulation import Simulation
from tests.support.around import Around

LEASE_SECONDS = 3.0
CUT_OFF_SECONDS = 1.0  # to roll back a transaction, or to close a connection


class SilentStore(Around):
    """Answers at first. Then it says nothing, and takes its time to be cut off."""

    def __init__(self, store: Store, app: Silent) -> None:
        super().__init__(store)
        self._app = app

    async def claim(self, request: Claim) -> Any:
        await self._app.begin()
        return await self.store.claim(request)

    async def park(self, limit: int) -> Any:
        await self._app.begin()
        return await self.store.park(limit)

    async def reclaim(self, *arguments: Any) -> Any:
        await self._app.ask()
        return await self.store.reclaim(*arguments)

    async def heartbeat(self, worker_id: str, load: Load) -> Any:
        await self._app.ask()
        return await self.store.heartbeat(worker_id, load)

    async def deregister(self, worker_id: str) -> None:
        await self._app.ask()
        await self.store.deregister(worker_id)

    async def release_strays(self, worker: str, known: Sequence[Lease], limit: int) -> Any:
        await self._app.ask()
        return await self.store.release_strays(worker, known, limit)

    async def close(self) -> None:
        await self._app.cut_off()
        await self.store.close()


class Silent(Holdfast):
    is_silent = False

    def __init__(self, url: str, simulation: Simulation) -> None:
        self._simulation = simulation
        seam = simulation.seam("worker")
        super().__init__(url, seam=seam, lease_seconds=LEASE_SECONDS, grace_seconds=0.0)

    def _make_store(self) -> Store:
        return cast(Store, SilentStore(super()._make_store(), self))

    async def ask(self) -> None:
        if self.is_silent:
            await asyncio.Event().wait()

    async def begin(self) -> None:
        """Ask in a transaction, which is rolled back when the wait for an answer is cut off."""
        try:
            await self.ask()
        finally:
            await self.cut_off()

    async def cut_off(self) -> None:
        if self.is_silent:
            await self._simulation.pass_time(CUT_OFF_SECONDS)


def test_a_stop_while_the_database_is_silent_leaves_a_busy_machine_a_third_of_the_time(
    local_url: str,
) -> None:
    async def nothing() -> None:
        raise AssertionError("there is no job")

    async def story(simulation: Simulation) -> None:
        app = Silent(local_url, simulation)
        app.job(nothing)
        async with app:
            worker = simulation.start("worker", app.run_worker)
            await simulation.pass_time(LEASE_SECONDS)
            app.is_silent = True
            await simulation.pass_time(2 * LEASE_SECONDS)
            stopped_at = simulation.loop.time()
            worker.cancel()
            await asyncio.wait({worker})
        assert simulation.loop.time() - stopped_at <= STOP_SECONDS_MAX * 2 / 3

    with Simulation(seed=1) as simulation:
        simulation.run(story(simulation))
