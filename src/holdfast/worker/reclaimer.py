"""The reclaimer: decides when to reclaim the jobs of lost workers. Every worker does it for all:
there is no leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from logging import WARNING

from holdfast.domain.errors import StoreError
from holdfast.domain.job import Reclaimed
from holdfast.domain.limits import RECLAIM_BATCH_MAX
from holdfast.observability import logs
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store
from holdfast.worker.reclaim import reclaim_expired

# How long it may take to connect on a busy machine: a short lease makes that no faster.
CONNECT_SECONDS = 2.0
PATIENCES_MAX = 3  # after that, a database that is always slow is no outage


class Reclaimer:
    """Runs on the lease keeper's thread with its own store: handlers that block their event loop
    don't delay it, and it delays no renewal.

    `reclaimed` is called on the worker's loop with the reclaimed jobs. `has_looked` is done after
    the first turn.
    """

    def __init__(
        self,
        make_store: Callable[[], Store],
        seam: Seam,
        settings: Settings,
        reclaimed: Callable[[Sequence[Reclaimed]], None],
    ) -> None:
        self._make_store = make_store
        self._seam = seam
        self._settings = settings
        self._reclaimed = reclaimed
        self._workers_loop = asyncio.get_running_loop()
        # A shorter delay can't cost a lease that is renewed every third of its length.
        self._late_seconds = settings.lease_seconds / 2
        self._late_connect_seconds = max(self._late_seconds, CONNECT_SECONDS)
        self._patience_seconds = max(settings.renewal_seconds, CONNECT_SECONDS)
        self._patient_seconds = 0.0
        self._looked_at = self._turned_at = self._reclaim_at = seam.monotonic()
        self.has_looked: Future[None] = Future()
        self.has_looked.set_running_or_notify_cancel()  # so that no waiter can cancel it

    async def run(self) -> None:
        store = self._make_store()
        self._look_at_delay(self._late_connect_seconds)  # of the keeper, which connected first
        is_open = False
        try:
            while True:
                try:
                    if not is_open:
                        await store.open()
                        is_open = True
                        self._look_at_delay(self._late_connect_seconds)
                    if await self._may_reclaim(store):
                        await self._reclaim(store)
                except StoreError as error:
                    logs.event(WARNING, "sweep_failed", str(error))
                    self._let_others_renew()
                if not self.has_looked.done():
                    self.has_looked.set_result(None)
                self._turned_at = self._seam.monotonic()
                seconds = self._settings.reclaim_seconds * self._seam.random.uniform(0.7, 1)
                await asyncio.sleep(seconds)
                self._look_at_delay(seconds + self._late_seconds)
        finally:
            await store.close()

    async def _may_reclaim(self, store: Store) -> bool:
        """Was the database reachable? During an outage, live workers could not renew either. They
        get the time of one connect and one renewal before their expired leases are reclaimed.

        That has a limit: a worker that did not renew in the time of several renewals, while the
        database answered, however slowly, is lost."""
        await store.reclaim(0)
        self._look_at_delay(self._late_seconds)
        self._patient_seconds += min(self._looked_at - self._turned_at, self._patience_seconds)
        if self._patient_seconds >= PATIENCES_MAX * self._patience_seconds:
            return True
        return self._looked_at >= self._reclaim_at

    def _look_at_delay(self, late_seconds: float) -> bool:
        """Give live workers time if the last step took longer than this: the database or machine
        that delayed us may have delayed them. Return whether they got time."""
        now = self._seam.monotonic()
        is_late = now - self._looked_at > late_seconds
        self._looked_at = now
        if is_late:
            self._let_others_renew()
        return is_late

    def _let_others_renew(self) -> None:
        self._reclaim_at = self._seam.monotonic() + self._patience_seconds

    async def _reclaim(self, store: Store) -> None:
        self._patient_seconds = 0.0
        while reclaimed := await reclaim_expired(store):
            self._workers_loop.call_soon_threadsafe(self._reclaimed, reclaimed)
            # What delayed this batch may have delayed live workers: let them renew first.
            is_late = self._look_at_delay(self._late_seconds)
            if is_late or len(reclaimed) < RECLAIM_BATCH_MAX:
                return
