"""Workers that are there, and what surrounds a job that waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec

from holdfast.domain.breakers import BreakerSeen
from holdfast.domain.job import Job
from holdfast.domain.limits import AHEAD_COUNTED_MAX, HELD_COUNTED_MAX, WORKERS_LISTED_MAX
from holdfast.domain.queues import QueueSeen
from holdfast.domain.why import Circumstances
from holdfast.domain.workers import Load, NewWorker, WorkerSeen, is_lost
from holdfast.stores.postgres.records import fetch, to_attempt, to_job
from holdfast.stores.statements import Statement

_QUEUES = msgspec.json.Decoder(dict[str, int | None])


def greeting(worker: NewWorker, load: Load) -> dict[str, object]:
    """The values of the statement `greet`."""
    return {
        "worker": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "queues": None if worker.queues is None else msgspec.json.encode(worker.queues),
        "names": worker.names,
        "concurrency": worker.concurrency,
        "suspects_only": worker.suspects_only,
        "lease_seconds": worker.lease_seconds,
        "up_seconds": worker.up_seconds,
        "running": load.running,
        "full_queues": load.full_queues,
    }


def to_worker(row: Any) -> WorkerSeen:
    values = dict(row)
    unseen_seconds = values["unseen_seconds"]
    if values["queues"] is not None:
        values["queues"] = _QUEUES.decode(values["queues"])
    for name in ("names", "full_queues"):
        values[name] = tuple(values[name])
    return WorkerSeen(**values, lost=is_lost(unseen_seconds, values["lease_seconds"]))


class Surroundings:
    """Reads all that `explain` wants to know in one snapshot."""

    def __init__(self, statements: Mapping[str, Statement]) -> None:
        self._statements = statements

    async def read(self, connection: Any, job_id: UUID) -> Circumstances | None:
        async with _snapshot(connection):
            jobs = await self._fetch(connection, "get", job_id=job_id)
            if not jobs:
                return None
            job = to_job(jobs[0])
            attempts = await self._fetch(connection, "attempts", job_id=job_id)
            workers = await self._fetch(connection, "workers", limit=WORKERS_LISTED_MAX)
            (around,) = await self._fetch(
                connection,
                "surroundings",
                job_id=job_id,
                queues=[job.queue],
                limit=AHEAD_COUNTED_MAX + 1,
            )
            queues = await self._fetch(connection, "queue", queue=job.queue)
            breakers = await self._breakers(connection, job)
        return Circumstances(
            job=job,
            now=around["now"],
            suspect=around["suspect"],
            held=around["held"],
            ahead=around["ahead"],
            last_attempt=to_attempt(attempts[-1]) if attempts else None,
            workers=[to_worker(row) for row in workers],
            queue=QueueSeen(**dict(queues[0])) if queues else None,
            breaker=BreakerSeen(**dict(breakers[0])) if breakers else None,
        )

    async def _breakers(self, connection: Any, job: Job) -> Sequence[Any]:
        if job.breaker is None:
            return []
        return await self._fetch(
            connection, "breakers", key=job.breaker, limit=1, held_max=HELD_COUNTED_MAX
        )

    async def _fetch(self, connection: Any, name: str, **values: object) -> Sequence[Any]:
        return await fetch(connection, self._statements[name], **values)


@asynccontextmanager
async def _snapshot(connection: Any) -> AsyncIterator[None]:
    """See one moment in all that is read."""
    if connection.is_in_transaction():  # behind a pooler, where every work has one of its own
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield
        return
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        yield
