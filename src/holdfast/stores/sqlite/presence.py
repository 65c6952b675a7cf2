"""Workers that are there, and what surrounds a job that waits."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.domain.breakers import BreakerSeen
from holdfast.domain.job import Job
from holdfast.domain.limits import AHEAD_COUNTED_MAX, WORKERS_LISTED_MAX
from holdfast.domain.why import Circumstances
from holdfast.domain.workers import Load, NewWorker, WorkerSeen, is_lost
from holdfast.stores.sqlite import breakers, queues, reading
from holdfast.stores.sqlite.lanes import Transaction
from holdfast.stores.sqlite.values import after, seconds_since, text, to_json, to_time
from holdfast.stores.statements import load as load_sql
from holdfast.stores.statements import read_sql

_SQL = load_sql(read_sql("sqlite", "workers.sql"), numbered=False)
_QUEUES = msgspec.json.Decoder(dict[str, int | None])
_TEXTS = msgspec.json.Decoder(tuple[str, ...])


def greet(transaction: Transaction, worker: NewWorker, load: Load) -> None:
    values = {
        "host": text(worker.host),
        "pid": worker.pid,
        "version": text(worker.version),
        "queues": None if worker.queues is None else text(to_json(worker.queues)),
        "names": text(to_json(worker.names)),
        "concurrency": worker.concurrency,
        "suspects_only": int(worker.suspects_only),
        "lease_seconds": worker.lease_seconds,
        "started_at": after(transaction.now, -worker.up_seconds),
    }
    sight = _sight(transaction, worker.id, load)
    transaction.connection.execute(_SQL["greet"].sql, {**values, **sight})


def see(transaction: Transaction, worker_id: str, load: Load) -> bool:
    sight = _sight(transaction, worker_id, load)
    return transaction.connection.execute(_SQL["see"].sql, sight).rowcount == 1


def leave(transaction: Transaction, worker_id: str) -> None:
    transaction.connection.execute(_SQL["leave"].sql, {"worker": text(worker_id)})


def workers(connection: sqlite3.Connection, now: int) -> Sequence[WorkerSeen]:
    rows = connection.execute(_SQL["workers"].sql, {"limit": WORKERS_LISTED_MAX}).fetchall()
    return [_worker(row, now) for row in rows]


def circumstances(connection: sqlite3.Connection, job_id: UUID, now: int) -> Circumstances | None:
    """Read all that `explain` wants to know in one snapshot."""
    connection.execute("BEGIN")
    try:
        return _circumstances(connection, job_id, now)
    finally:
        connection.execute("COMMIT")


def _circumstances(connection: sqlite3.Connection, job_id: UUID, now: int) -> Circumstances | None:
    job = reading.get(connection, job_id)
    if job is None:
        return None
    bounds = {"id": str(job_id), "now": now, "limit": AHEAD_COUNTED_MAX + 1}
    suspect, held = connection.execute(_SQL["suspect"].sql, bounds).fetchone() or (0, 0)
    attempts = reading.attempts(connection, job_id)
    return Circumstances(
        job=job,
        now=to_time(now),
        suspect=bool(suspect),
        held=bool(held),
        ahead=connection.execute(_SQL["ahead"].sql, bounds).fetchone()[0],
        last_attempt=attempts[-1] if attempts else None,
        workers=workers(connection, now),
        queue=queues.said_of(connection, job.queue),
        breaker=_breaker(connection, job, now),
    )


def _breaker(connection: sqlite3.Connection, job: Job, now: int) -> BreakerSeen | None:
    found = [] if job.breaker is None else breakers.breakers(connection, now, job.breaker)
    return next(iter(found), None)


def _sight(transaction: Transaction, worker_id: str, load: Load) -> dict[str, object]:
    return {
        "worker": text(worker_id),
        "now": transaction.now,
        "running": load.running,
        "full_queues": text(to_json(load.full_queues)),
    }


def _worker(row: Sequence[Any], now: int) -> WorkerSeen:
    (
        worker_id,
        host,
        pid,
        version,
        queues,
        names,
        concurrency,
        running,
        full_queues,
        suspects_only,
        lease_seconds,
        started_at,
        seen_at,
    ) = row
    unseen_seconds = seconds_since(seen_at, now)
    return WorkerSeen(
        id=worker_id,
        host=host,
        pid=pid,
        version=version,
        queues=None if queues is None else _QUEUES.decode(queues),
        names=_TEXTS.decode(names),
        concurrency=concurrency,
        running=running,
        full_queues=_TEXTS.decode(full_queues),
        suspects_only=bool(suspects_only),
        lease_seconds=lease_seconds,
        started_at=to_time(started_at),
        seen_at=to_time(seen_at),
        unseen_seconds=unseen_seconds,
        lost=is_lost(unseen_seconds, lease_seconds),
    )
