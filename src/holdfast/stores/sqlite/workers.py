"""Workers and their heartbeats."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.domain.limits import WORKERS_LISTED_MAX
from holdfast.domain.messengers import STATUSES
from holdfast.domain.workers import Load, NewWorker, WorkerStatus, is_lost
from holdfast.stores.sqlite.rows import after, fetch, seconds_since, text, to_json, to_time
from holdfast.stores.sqlite.threads import Transaction

_QUEUES = msgspec.json.Decoder(dict[str, int | None])
_TEXTS = msgspec.json.Decoder(tuple[str, ...])


def register(transaction: Transaction, worker: NewWorker, load: Load) -> None:
    values = {
        "host": text(worker.host),
        "pid": worker.pid,
        "version": text(worker.version),
        "app_version": text(worker.app_version),
        "queues": None if worker.queues is None else text(to_json(worker.queues)),
        "names": text(to_json(worker.names)),
        "concurrency": worker.concurrency,
        "suspects_only": int(worker.suspects_only),
        "lease_seconds": worker.lease_seconds,
        "started_at": after(transaction.now, -worker.up_seconds),
    }
    transaction.execute("register", **values, **_heartbeat(worker.id, load))


def heartbeat(transaction: Transaction, worker_id: str, load: Load) -> bool:
    return transaction.execute("heartbeat", **_heartbeat(worker_id, load)).rowcount == 1


def deregister(transaction: Transaction, worker_id: str) -> None:
    transaction.execute("deregister", worker=text(worker_id))


def workers(connection: sqlite3.Connection, now: int) -> Sequence[WorkerStatus]:
    rows = fetch(connection, "workers", limit=WORKERS_LISTED_MAX)
    return [_worker(row, now) for row in rows]


def _heartbeat(worker_id: str, load: Load) -> dict[str, object]:
    return {
        "worker": text(worker_id),
        "running": load.running,
        "full_queues": text(to_json(load.full_queues)),
        "messengers": text(to_json(load.messengers)),
    }


def _worker(row: dict[str, Any], now: int) -> WorkerStatus:
    unseen_seconds = seconds_since(row["seen_at"], now)
    row |= {name: to_time(row[name]) for name in ("started_at", "seen_at")}
    row |= {name: _TEXTS.decode(row[name]) for name in ("names", "full_queues")}
    row["messengers"] = STATUSES.decode(row["messengers"])
    if row["queues"] is not None:
        row["queues"] = _QUEUES.decode(row["queues"])
    row["suspects_only"] = bool(row["suspects_only"])
    lost = is_lost(unseen_seconds, row["lease_seconds"])
    return WorkerStatus(**row, unseen_seconds=unseen_seconds, lost=lost)
