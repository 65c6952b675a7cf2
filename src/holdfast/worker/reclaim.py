"""Take back what workers that died had leased."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from logging import ERROR, WARNING

from holdfast.domain.errors import HoldfastError, StoreRefused, StoreUnavailable
from holdfast.domain.job import Reclaimed
from holdfast.domain.limits import RECLAIM_BATCH_MAX
from holdfast.observability import logs
from holdfast.stores.protocol import Store, WorkerPresence, capability

TAKE_BACK_SECONDS_MAX = 5.0


async def take_back(store: Store, worker_id: str, reason: str) -> Sequence[Reclaimed] | None:
    """Free what this worker, which has died, had leased. None: the database could not be asked, or
    refused; then the leases run out."""
    freed: list[Reclaimed] = []
    try:
        while reclaimed := await _reclaim(store, worker_id, reason):
            freed += reclaimed
        if (book := capability(store, WorkerPresence)) is not None:
            await book.deregister(worker_id)
    except StoreUnavailable as error:
        logs.event(WARNING, "sweep_failed", str(error))
        return freed or None
    except StoreRefused as error:
        _log_refusal(error)
        return freed or None
    return freed


async def take_back_in_time(
    open_store: Callable[[], Awaitable[Store]], worker_id: str, reason: str
) -> Sequence[Reclaimed] | None:
    """`take_back` on a connection for this moment. Whoever waits for it has a worker to start, or
    is to stop, so it does not wait long for a database that does not answer."""
    try:
        async with asyncio.timeout(TAKE_BACK_SECONDS_MAX):
            store = await open_store()
            try:
                return await take_back(store, worker_id, reason)
            finally:
                store.abandon()
    except (HoldfastError, TimeoutError) as error:
        text = str(error) or f"the database did not answer within {TAKE_BACK_SECONDS_MAX:g} s"
        logs.event(WARNING, "sweep_failed", text)
        return None


async def take_back_some(store: Store) -> Sequence[Reclaimed]:
    """Take back one batch that ran out; what the database does not let end is told, and left."""
    try:
        return await _reclaim(store)
    except StoreRefused as error:
        _log_refusal(error)
        return []


async def _reclaim(
    store: Store, dead_worker: str | None = None, reason: str = ""
) -> Sequence[Reclaimed]:
    reclaimed = await store.reclaim(RECLAIM_BATCH_MAX, dead_worker, reason)
    for job in reclaimed:
        _log_reclaim(job)
    return reclaimed


def _log_refusal(error: StoreRefused) -> None:
    logs.event(ERROR, "reclaim_refused", str(error))


def _log_reclaim(job: Reclaimed) -> None:
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
