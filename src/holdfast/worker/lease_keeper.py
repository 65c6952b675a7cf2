"""The lease keeper: renews every lease of the process in one statement.

It has a thread, an event loop and a connection of its own, because it certifies that the handlers
are alive: what blocks them must not stop it. It starts first and stops last.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from logging import WARNING
from typing import Any

from holdfast.domain.errors import StoreError, StoreUnavailable
from holdfast.domain.job import Claimed, Lease, Lost
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store
from holdfast.worker.deadline import StopDeadline
from holdfast.worker.heartbeat import Heartbeat
from holdfast.worker.stop import unless_set

Beside = Callable[[Store], Coroutine[Any, Any, None]]

LEFT_MAX = 1000


class LeaseKeeper:
    """Holds leases from the claim until their settlement has been acknowledged.

    `hold` and `drop` are called on the worker's loop and read on the keeper's: each is one
    operation on a dict for each job, which needs no lock. What is `beside` it runs on its thread as
    long as the keeper does, and may use its store.
    """

    def __init__(
        self,
        make_store: Callable[[], Store],
        seam: Seam,
        settings: Settings,
        lost: Callable[[Sequence[Lost]], None],
        died: Callable[[BaseException], None],
        beside: Sequence[Beside],
        heartbeat: Heartbeat,
        deadline: StopDeadline,
    ) -> None:
        self._make_store = make_store
        self._settings = settings
        self._lost = lost
        self._died = died
        self._beside = beside
        self._heartbeat = heartbeat
        self._deadline = deadline
        self._held: dict[int, Claimed] = {}  # by the id as a number, which hashes faster
        self._left: deque[Lease] = deque(maxlen=LEFT_MAX)
        self._workers_loop = asyncio.get_running_loop()
        self._loop = seam.side_loop("holdfast-keeper")
        self._backoff = Backoff(seam, 0.1, min(1.0, settings.renewal_seconds / 4))
        self._stopping = asyncio.Event()
        self.is_open: Future[None] = Future()
        self.is_open.set_running_or_notify_cancel()  # whoever waits no longer can't cancel it
        self._ended: Future[None]

    @property
    def leased(self) -> list[Claimed]:
        """May be asked from any thread."""
        return list(self._held.values())

    def hold(self, jobs: Sequence[Claimed]) -> None:
        self._held.update({job.id.int: job for job in jobs})

    def drop(self, job: Claimed) -> None:
        # The same job may be held again by now, with a higher fence.
        number = job.id.int
        if self._held.get(number) is job:
            del self._held[number]

    def leave(self, job: Claimed) -> None:
        """Renew it no more, although nobody has acknowledged its end."""
        self.drop(job)
        self._left.append(job.lease)

    def known(self) -> list[Lease]:
        """The leases of all that was started here and that this worker may still have."""
        return [*(job.lease for job in self._held.values()), *self._left]

    def start(self) -> None:
        """Start; `is_open` is done when leases can be renewed."""
        self._ended = self._loop.submit(self._run())
        self._ended.add_done_callback(self._tell_death)

    async def stop(self) -> None:
        await asyncio.wrap_future(self._loop.submit(self._tell_to_stop()))
        # How it ended was told by `died` already.
        await asyncio.gather(asyncio.wrap_future(self._ended), return_exceptions=True)
        self._loop.close()

    async def _tell_to_stop(self) -> None:
        self._stopping.set()

    async def _run(self) -> None:
        store = await unless_set(self._stopping, self._open())
        if store is not None:
            self.is_open.set_result(None)
            await self._keep(store)

    async def _open(self) -> Store:
        """Open the store, however long its database is away."""
        while True:
            store = self._make_store()
            try:
                await store.open()
                return store
            except StoreUnavailable as error:
                logs.event(WARNING, "open_failed", str(error))
                store.abandon()
            except BaseException:
                store.abandon()
                raise
            await self._backoff.wait()

    async def _keep(self, store: Store) -> None:
        self._backoff.reset()
        wait_seconds = self._settings.renewal_seconds
        beside = [asyncio.create_task(run(store)) for run in self._beside]
        try:
            await self._heartbeat.tell(store)
            while not await self._stopped_within(wait_seconds):
                wait_seconds = await self._renew(store)
                for part in beside:
                    if part.done():
                        part.result()
            await self._heartbeat.end(store)
        finally:
            for part in beside:
                part.cancel()
            await asyncio.gather(*beside, store.close(), return_exceptions=True)

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    async def _renew(self, store: Store) -> float:
        """Renew all leases, then tell that we are there; answer in how many seconds to do it
        again."""
        leases = [job.lease for job in list(self._held.values())]
        try:
            lost = await store.renew(leases, self._settings.lease_seconds) if leases else []
        except StoreError as error:
            # A busy database is not a lost lease: nobody else can take the jobs without it either.
            logs.event(WARNING, "renew_failed", str(error), count=len(leases))
            return self._backoff.next_seconds()
        self._backoff.reset()
        # A job that was settled while the renewal was under way is not lost.
        still_held = [entry for entry in lost if self._is_held(entry)]
        if still_held:
            self._workers_loop.call_soon_threadsafe(self._lost, still_held)
        await self._heartbeat.tell(store)
        return self._settings.renewal_seconds

    def _is_held(self, lost: Lost) -> bool:
        job = self._held.get(lost.job_id.int)
        return job is not None and job.fence == lost.fence

    def _tell_death(self, ended: Future[None]) -> None:
        """No silent death: without a keeper every lease would run out, one after the other."""
        if not ended.cancelled() and (error := ended.exception()) is not None:
            self._deadline.tell()  # a loop that is blocked hears of nothing
            self._workers_loop.call_soon_threadsafe(self._died, error)
