"""Tell the database that this worker is there, so that others can see it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from logging import WARNING

from holdfast.domain.errors import HoldfastError
from holdfast.domain.workers import NewWorker
from holdfast.observability import logs
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store, WorkerPresence, capability
from holdfast.worker.slots import Slots

LEAVE_SECONDS_MAX = 0.5


class Heartbeat:
    """Works on the keeper's thread and store, at the pace of the renewals.

    Nothing depends on it: a database that does not take it keeps no worker from working, nor a
    renewal waiting for long.
    """

    def __init__(
        self,
        *,
        worker_id: str,
        slots: Slots,
        names: Sequence[str],
        suspects_only: bool,
        settings: Settings,
        seam: Seam,
    ) -> None:
        self._worker_id = worker_id
        self._slots = slots
        self._names = tuple(names)
        self._suspects_only = suspects_only
        self._settings = settings
        self._seam = seam
        self._booted_at = seam.monotonic()
        self._is_known = False
        self._fails = False

    async def tell(self, store: Store) -> None:
        book = capability(store, WorkerPresence)
        if book is None:
            return
        try:
            async with asyncio.timeout(self._settings.renewal_seconds / 2):
                await self._tell(book)
        except (HoldfastError, TimeoutError) as error:
            if not self._fails:
                text = str(error) or "the database did not answer in time"
                logs.event(WARNING, "presence_failed", text, worker_id=self._worker_id)
            self._fails = True
        else:
            self._fails = False

    async def _tell(self, book: WorkerPresence) -> None:
        load = self._slots.load
        # It may have been forgotten, after a time in which nobody saw it.
        self._is_known = self._is_known and await book.heartbeat(self._worker_id, load)
        if not self._is_known:
            await book.register(self._introduction(), load)
            self._is_known = True

    async def end(self, store: Store) -> None:
        """Leave; if that can't be told, others see a lost worker for a while."""
        book = capability(store, WorkerPresence)
        if book is None:
            return
        try:
            async with asyncio.timeout(LEAVE_SECONDS_MAX):
                await book.deregister(self._worker_id)
        except (HoldfastError, TimeoutError):
            pass

    def _introduction(self) -> NewWorker:
        return NewWorker(
            id=self._worker_id,
            host=self._seam.host(),
            pid=self._seam.process_id(),
            version=_version(),
            queues=self._slots.served,
            names=self._names,
            concurrency=self._slots.concurrency,
            suspects_only=self._suspects_only,
            lease_seconds=self._settings.lease_seconds,
            up_seconds=self._seam.monotonic() - self._booted_at,
        )


@cache
def _version() -> str:
    try:
        return version("holdfast")
    except PackageNotFoundError:
        return "unknown"
