"""Workers and their heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain.limits import WORKERS_LISTED_MAX
from holdfast.domain.messengers import STATUSES
from holdfast.domain.workers import Load, NewWorker, WorkerStatus, is_lost
from holdfast.stores.postgres.rows import Fetch

_QUEUES = msgspec.json.Decoder(dict[str, int | None])


async def register(fetch: Fetch, worker: NewWorker, load: Load) -> None:
    await fetch(
        "register",
        host=worker.host,
        pid=worker.pid,
        version=worker.version,
        app_version=worker.app_version,
        queues=None if worker.queues is None else msgspec.json.encode(worker.queues),
        names=worker.names,
        concurrency=worker.concurrency,
        suspects_only=worker.suspects_only,
        lease_seconds=worker.lease_seconds,
        up_seconds=worker.up_seconds,
        **_heartbeat(worker.id, load),
    )


async def heartbeat(fetch: Fetch, worker_id: str, load: Load) -> bool:
    return bool(await fetch("heartbeat", **_heartbeat(worker_id, load)))


async def deregister(fetch: Fetch, worker_id: str) -> None:
    await fetch("deregister", worker=worker_id)


async def workers(fetch: Fetch) -> Sequence[WorkerStatus]:
    return [_worker(row) for row in await fetch("workers", limit=WORKERS_LISTED_MAX)]


def _heartbeat(worker_id: str, load: Load) -> dict[str, object]:
    return {
        "worker": worker_id,
        "running": load.running,
        "full_queues": load.full_queues,
        "messengers": msgspec.json.encode(load.messengers),
    }


def _worker(row: Any) -> WorkerStatus:
    values = dict(row)
    if values["queues"] is not None:
        values["queues"] = _QUEUES.decode(values["queues"])
    values["messengers"] = STATUSES.decode(values["messengers"])
    for name in ("names", "full_queues"):
        values[name] = tuple(values[name])
    return WorkerStatus(**values, lost=is_lost(row["unseen_seconds"], row["lease_seconds"]))
