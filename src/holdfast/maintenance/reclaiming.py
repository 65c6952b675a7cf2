"""Take back what workers that died had leased."""

from __future__ import annotations

from collections.abc import Sequence
from logging import ERROR, WARNING

from holdfast.domain.errors import StoreRefused, StoreUnavailable
from holdfast.domain.job import Reclaimed
from holdfast.domain.limits import RECLAIM_BATCH_MAX
from holdfast.observability import logs
from holdfast.stores.protocol import Store


async def take_back(store: Store, worker_id: str, reason: str) -> Sequence[Reclaimed] | None:
    """Free what this worker, which has died, had leased. None: the database could not be asked, or
    refused; then the leases run out."""
    freed: list[Reclaimed] = []
    try:
        while reclaimed := await _reclaim(store, worker_id, reason):
            freed += reclaimed
        await store.leave(worker_id)
    except StoreUnavailable as error:
        logs.event(WARNING, "sweep_failed", str(error))
        return freed or None
    except StoreRefused as error:
        _log_refusal(error)
        return freed or None
    return freed


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
        "the job runs alone in a process from now on" if job.suspect else "",
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
