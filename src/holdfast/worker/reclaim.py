"""Reclaim one batch of expired leases, or all leases of one dead worker, and log it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from logging import ERROR, WARNING

from holdfast.domain.errors import HoldfastError, StoreRefused, StoreUnavailable
from holdfast.domain.job import Reclaimed
from holdfast.domain.limits import RECLAIM_BATCH_MAX
from holdfast.observability import logs
from holdfast.stores.protocol import Store, WorkerPresence, capability

RECLAIM_SECONDS_MAX = 5.0


async def reclaim_worker(store: Store, worker_id: str, reason: str) -> Sequence[Reclaimed] | None:
    """Reclaim the jobs of a dead worker at once. Return None if the database did not answer or
    refused; then the leases expire."""
    freed: list[Reclaimed] = []
    try:
        while reclaimed := await _reclaim(store, worker_id, reason):
            freed += reclaimed
        if (presence := capability(store, WorkerPresence)) is not None:
            await presence.deregister(worker_id)
    except StoreUnavailable as error:
        logs.event(WARNING, "sweep_failed", str(error))
        return freed or None
    except StoreRefused as error:
        logs.event(ERROR, "reclaim_refused", str(error))
        return freed or None
    return freed


async def reclaim_worker_in_time(
    open_store: Callable[[], Awaitable[Store]], worker_id: str, reason: str
) -> Sequence[Reclaimed] | None:
    """`reclaim_worker` on a new connection. The caller has a worker to start, or has to stop, so
    this does not wait long for a database that does not answer."""
    try:
        async with asyncio.timeout(RECLAIM_SECONDS_MAX):
            store = await open_store()
            try:
                return await reclaim_worker(store, worker_id, reason)
            finally:
                store.abandon()
    except (HoldfastError, TimeoutError) as error:
        text = str(error) or f"the database did not answer within {RECLAIM_SECONDS_MAX:g} s"
        logs.event(WARNING, "sweep_failed", text)
        return None


async def reclaim_expired(store: Store) -> Sequence[Reclaimed]:
    """Reclaim one batch of expired leases. Log and leave what the database refuses to change."""
    try:
        return await _reclaim(store)
    except StoreRefused as error:
        logs.event(ERROR, "reclaim_refused", str(error))
        return []


async def _reclaim(
    store: Store, dead_worker: str | None = None, reason: str = ""
) -> Sequence[Reclaimed]:
    reclaimed = await store.reclaim(RECLAIM_BATCH_MAX, dead_worker, reason)
    for job in reclaimed:
        logs.event(
            WARNING,
            "reclaim",
            "from now on the job runs in quarantine" if job.suspect else "",
            job_id=job.job_id,
            name=job.name,
            queue=job.queue,
            tenant=job.tenant,
            attempt=job.attempt,
            fence=job.fence,
            state=job.state,
            worker_id=job.worker,
            error_code=job.error_code,
            correlation_id=job.correlation_id,
        )
    return reclaimed
