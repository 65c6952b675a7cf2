"""Heartbeats: record in the database that this worker is alive, for others to see."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from logging import WARNING

import msgspec

from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import MESSENGERS_REPORTED_MAX
from holdfast.domain.workers import NewWorker
from holdfast.observability import logs
from holdfast.stores.protocol import Store, WorkerPresence, capability
from holdfast.version import VERSION
from holdfast.wakeups.status import with_fallback
from holdfast.worker.setup import Setup

DEREGISTER_SECONDS_MAX = 0.5


class Heartbeat:
    """Uses the keeper's thread and store, after each renewal. If a heartbeat fails, the worker
    continues, and renewals don't wait long for it."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._worker_id = setup.worker_id
        self._booted_at = setup.seam.monotonic()
        self._is_registered = False
        self._fails = False

    async def send(self, store: Store) -> None:
        presence = capability(store, WorkerPresence)
        if presence is None:
            return
        try:
            async with asyncio.timeout(self._setup.settings.renewal_seconds / 2):
                await self._send(presence)
        except (HoldfastError, TimeoutError) as error:
            if not self._fails:
                text = str(error) or "the database did not answer in time"
                logs.event(WARNING, "presence_failed", text, worker_id=self._worker_id)
            self._fails = True
        else:
            self._fails = False

    async def _send(self, presence: WorkerPresence) -> None:
        poll_seconds = self._setup.settings.poll_seconds
        statuses = with_fallback(self._setup.messengers.statuses(), poll_seconds)
        statuses = statuses[:MESSENGERS_REPORTED_MAX]
        load = msgspec.structs.replace(self._setup.slots.load, messengers=statuses)
        # The database deletes a worker that it has not heard from for a while.
        if not (self._is_registered and await presence.heartbeat(self._worker_id, load)):
            self._is_registered = False
            await presence.register(self._new_worker(), load)
            self._is_registered = True

    async def deregister(self, store: Store) -> None:
        """Deregister. If that fails, others see a lost worker for a while."""
        presence = capability(store, WorkerPresence)
        if presence is not None:
            with suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(DEREGISTER_SECONDS_MAX):
                    await presence.deregister(self._worker_id)

    def _new_worker(self) -> NewWorker:
        slots, seam = self._setup.slots, self._setup.seam
        return NewWorker(
            id=self._worker_id,
            host=seam.host(),
            pid=seam.process_id(),
            version=VERSION,
            app_version=self._setup.settings.app_version,
            queues=slots.served,
            names=self._setup.names,
            concurrency=slots.concurrency,
            suspects_only=self._setup.suspects_only,
            lease_seconds=self._setup.settings.lease_seconds,
            up_seconds=seam.monotonic() - self._booted_at,
        )
