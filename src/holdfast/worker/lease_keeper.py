"""The lease keeper: renews every lease of the process in one statement.

It has its own thread, event loop and connection. It certifies that the handlers are alive, so what
blocks them must not stop it. It starts first and stops last.
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
from holdfast.runtime.backoff import Backoff, is_set_within
from holdfast.stores.protocol import Store
from holdfast.worker.deadline import StopDeadline
from holdfast.worker.heartbeat import Heartbeat
from holdfast.worker.setup import Setup
from holdfast.worker.stop import unless_set

Beside = Callable[[Store], Coroutine[Any, Any, None]]

UNSETTLED_MAX = 1000


class LeaseKeeper:
    """Keeps leases from the claim until the settlement is acknowledged.

    `keep` and `drop` run on the worker's loop, and the keeper reads on its own. Both do one dict
    operation per job, so they need no lock.
    """

    def __init__(
        self,
        make_store: Callable[[], Store],
        setup: Setup,
        lost: Callable[[Sequence[Lost]], None],
        died: Callable[[BaseException], None],
        deadline: StopDeadline,
    ) -> None:
        self._make_store = make_store
        self._settings = setup.settings
        self._lost = lost
        self._died = died
        self._deadline = deadline
        self._escorts = setup.escorts
        self._heartbeat = Heartbeat(setup)
        self._kept: dict[int, Claimed] = {}  # by the id as a number, which hashes faster
        self._unsettled: deque[Lease] = deque(maxlen=UNSETTLED_MAX)
        self._workers_loop = asyncio.get_running_loop()
        self._loop = setup.seam.side_loop("holdfast-keeper")
        self._backoff = Backoff(setup.seam, 0.1, min(1.0, self._settings.renewal_seconds / 4))
        self._stopping = asyncio.Event()
        self.is_open: Future[None] = Future()
        self.is_open.set_running_or_notify_cancel()  # so that no waiter can cancel it
        self._ended: Future[None]

    def leased(self) -> list[Claimed]:
        """The jobs whose leases are renewed. Call it from any thread."""
        return list(self._kept.values())

    def keep(self, jobs: Sequence[Claimed]) -> None:
        self._kept.update({job.id.int: job for job in jobs})

    def drop(self, job: Claimed) -> None:
        # The worker may have claimed the same job again, with a higher fence.
        number = job.id.int
        if self._kept.get(number) is job:
            del self._kept[number]

    def drop_unsettled(self, job: Claimed) -> None:
        """Stop renewing a job whose settlement nobody has acknowledged."""
        self.drop(job)
        self._unsettled.append(job.lease)

    def known(self) -> list[Lease]:
        """The leases of every job that was claimed here and may still belong to this worker."""
        return [*(job.lease for job in self._kept.values()), *self._unsettled]

    def start(self, beside: Sequence[Beside]) -> None:
        """Start. `is_open` is done when leases can be renewed. What is `beside` runs on this thread
        as long as the keeper does, and may use its store."""
        self._ended = self._loop.submit(self._run(beside))
        self._ended.add_done_callback(self._report_death)

    async def stop(self) -> None:
        await asyncio.wrap_future(self._loop.submit(self._request_stop()))
        # `died` has already reported how it ended.
        await asyncio.gather(asyncio.wrap_future(self._ended), return_exceptions=True)
        self._loop.close()

    async def _request_stop(self) -> None:
        self._stopping.set()

    async def _run(self, beside: Sequence[Beside]) -> None:
        store = await unless_set(self._stopping, self._open())
        if store is not None:
            self.is_open.set_result(None)
            await self._keep(store, [asyncio.create_task(part(store)) for part in beside])

    async def _open(self) -> Store:
        """Open the store, however long its database is away."""
        while True:
            store = self._make_store()
            try:
                await store.open()
                return store
            except BaseException as error:
                store.abandon()
                if not isinstance(error, StoreUnavailable):
                    raise
                logs.event(WARNING, "open_failed", str(error))
            await self._backoff.wait()

    async def _keep(self, store: Store, beside: Sequence[asyncio.Task[None]]) -> None:
        self._backoff.reset()
        wait_seconds = self._settings.renewal_seconds
        try:
            await self._send_heartbeat(store)
            while not await is_set_within(self._stopping, wait_seconds):
                wait_seconds = await self._renew(store)
                for part in beside:
                    if part.done():
                        part.result()
        finally:
            for part in beside:
                part.cancel()
            await asyncio.gather(*beside, self._leave(store), return_exceptions=True)

    async def _send_heartbeat(self, store: Store) -> None:
        """Send one, unless it is time to stop: a database that is silent must not delay that."""
        await unless_set(self._stopping, self._heartbeat.send(store))

    async def _leave(self, store: Store) -> None:
        if self._stopping.is_set():
            await self._heartbeat.deregister(store)
        await store.close()

    async def _renew(self, store: Store) -> float:
        """Renew all leases and send a heartbeat; return the seconds until the next time."""
        leases = [job.lease for job in self.leased()]
        try:
            lost = await store.renew(leases, self._settings.lease_seconds) if leases else []
        except StoreError as error:
            # A busy database is not a lost lease: nobody else can take the jobs without it either.
            logs.event(WARNING, "renew_failed", str(error), count=len(leases))
            return self._backoff.next_seconds()
        self._backoff.reset()
        self._escorts.renewed(leases, lost)
        # A job that was settled during the renewal is not lost.
        if still_kept := [entry for entry in lost if self._is_kept(entry)]:
            self._workers_loop.call_soon_threadsafe(self._lost, still_kept)
        await self._send_heartbeat(store)
        return self._settings.renewal_seconds

    def _is_kept(self, lost: Lost) -> bool:
        job = self._kept.get(lost.job_id.int)
        return job is not None and job.fence == lost.fence

    def _report_death(self, ended: Future[None]) -> None:
        """Never die silently: without a keeper, every lease would expire."""
        if not ended.cancelled() and (error := ended.exception()) is not None:
            self._deadline.start()  # in case the worker's loop is blocked
            self._workers_loop.call_soon_threadsafe(self._died, error)
