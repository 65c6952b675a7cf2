"""The upkeep of a worker, for a process that runs no jobs itself: an API server.

Others see it as a worker without slots, whose names are those of the jobs that it leases over HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from holdfast.domain.job import Reclaimed
from holdfast.stores.protocol import Breakers, Store, capability
from holdfast.stores.vacuums import Vacuums
from holdfast.worker.deadline import StopDeadline
from holdfast.worker.lease_keeper import LeaseKeeper
from holdfast.worker.parker import Parker
from holdfast.worker.reclaimer import Reclaimer
from holdfast.worker.setup import Setup
from holdfast.worker.sweeper import Sweeper
from holdfast.worker.vacuumer import Vacuumer

STOP_SECONDS = 1.0


class Upkeep:
    """Sends heartbeats, reclaims expired leases, parks and unparks jobs, deletes old history, and
    vacuums.

    It works beside the requests as it would beside handlers: the keeper has its own thread.
    """

    def __init__(
        self,
        setup: Setup,
        make_store: Callable[[], Store],
        reclaimed: Callable[[Sequence[Reclaimed]], None],
    ) -> None:
        self._died: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        deadline = StopDeadline(setup.seam, STOP_SECONDS, ends_process=False)
        self._keeper = LeaseKeeper(make_store, setup, _ignore, self._die, deadline)
        self._reclaimer = Reclaimer(make_store, setup.seam, setup.settings, reclaimed)
        self._parts: list[Sweeper | Parker | Vacuumer] = [Sweeper(setup, None, _ignore)]
        if (breakers := capability(setup.store, Breakers)) is not None:
            self._parts.append(Parker(breakers, setup, _ignore))
        if (store := capability(setup.store, Vacuums)) is not None:
            self._parts.append(Vacuumer(store, setup))

    async def run(self) -> None:
        """Work until this is canceled, or until the keeper dies."""
        self._keeper.start([lambda _: self._reclaimer.run()])
        parts = [asyncio.create_task(part.run()) for part in self._parts]
        try:
            await asyncio.wait({*parts, self._died}, return_when=asyncio.FIRST_COMPLETED)
            for ended in (*parts, self._died):
                if ended.done():
                    ended.result()
        finally:
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)
            self._died.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._keeper.stop()

    def _die(self, error: BaseException) -> None:
        if not self._died.done():
            self._died.set_exception(error)


def _ignore(_: Any) -> None:
    """There is nothing to stop, to start or to claim here."""
