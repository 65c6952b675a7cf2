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
from holdfast.worker.deadline import StopDeadline
from holdfast.worker.lease_keeper import LeaseKeeper
from holdfast.worker.parker import Parker
from holdfast.worker.reclaimer import Reclaimer
from holdfast.worker.setup import Setup
from holdfast.worker.sweeper import Sweeper

STOP_SECONDS = 1.0


class Upkeep:
    """Sends heartbeats, reclaims expired leases, parks and unparks jobs, deletes old history.

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
        self._sweeper = Sweeper(setup, None, _ignore)
        breakers = capability(setup.store, Breakers)
        self._parker = None if breakers is None else Parker(breakers, setup, _ignore)

    async def run(self) -> None:
        """Work until this is canceled, or until the keeper dies."""
        self._keeper.start([lambda _: self._reclaimer.run()])
        parts = [asyncio.create_task(self._sweeper.run())]
        if self._parker is not None:
            parts.append(asyncio.create_task(self._parker.run()))
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
