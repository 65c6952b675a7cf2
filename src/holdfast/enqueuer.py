"""Turn calls into rows: ids, traces, and the transaction that records them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from holdfast.domain.encrypted_jobs import ENCRYPTED
from holdfast.domain.errors import ConfigurationError, JobNotFound
from holdfast.domain.ids import IdMaker
from holdfast.domain.job import Job, NewJob, Receipt
from holdfast.domain.limits import ENQUEUE_BATCH_MAX
from holdfast.domain.scope import scoped_tenant
from holdfast.job_function import Call
from holdfast.observability import tracing
from holdfast.observability.metrics import Metrics
from holdfast.operations.desk import Desk
from holdfast.stores.protocol import Enrolled
from holdfast.transactions.hooks import wake_after
from holdfast.wakeups.messengers import hints_of

Record = Callable[[Sequence[NewJob]], Awaitable[Sequence[Receipt]]]


class Enqueued(NamedTuple):
    """A job, and whether this call recorded it: another one may have the same idempotency key."""

    job: Job
    is_new: bool


class Enqueuer:
    def __init__(self, desk: Desk, metrics: Metrics, random: Random) -> None:
        self._desk = desk
        self._metrics = metrics
        self._ids = IdMaker(random)

    def new_id(self, now: datetime) -> UUID:
        return self._ids.make(_milliseconds(now), scoped_tenant())

    def new_jobs(
        self, calls: Sequence[Call], span: tracing.Enqueuing, now: datetime
    ) -> list[NewJob]:
        if len(calls) > ENQUEUE_BATCH_MAX:
            raise ConfigurationError(
                f"{len(calls)} jobs are more than {ENQUEUE_BATCH_MAX}; use several calls"
            )
        kept_seconds = self._desk.settings.keys_kept_seconds
        ids = self._ids.make_many(_milliseconds(now), len(calls), scoped_tenant())
        jobs = [
            self._encrypted(call.new_job(job_id, kept_seconds, span.trace))
            if call.definition.encrypted
            else call.new_job(job_id, kept_seconds, span.trace)
            for call, job_id in zip(calls, ids, strict=True)
        ]
        span.describe(jobs)
        return jobs

    def _encrypted(self, job: NewJob) -> NewJob:
        try:
            return self._desk.cipher.encrypted(job)
        except ConfigurationError as error:
            raise ConfigurationError(f"{job.name} is encrypted: {error}") from None

    async def enqueue(
        self, jobs: Sequence[NewJob], now: datetime, record: Record | None = None
    ) -> list[Enqueued]:
        """Enqueue in a transaction. `record` replaces the store's verb."""
        if not jobs:
            return []
        store = await self._desk.store()
        receipts = await (record or store.enqueue)(jobs)
        if self._metrics.counting:
            self._metrics.enqueued(jobs, receipts)
        if self._desk.messengers:
            self._desk.messengers.post(hints_of(jobs, receipts, now))
        return await self._enqueued(jobs, receipts, store.get, now)

    async def enqueue_through(
        self, connection: Any, jobs: Sequence[NewJob], now: datetime
    ) -> list[Enqueued]:
        """Enqueue in the transaction of the caller's connection."""

        async def enqueue(enrolled: Enrolled) -> list[Enqueued]:
            receipts = await enrolled.enqueue(jobs)
            if self._desk.messengers:
                messengers = self._desk.messengers.after_commit(wake_after(connection))
                messengers.post(hints_of(jobs, receipts, now))
            return await self._enqueued(jobs, receipts, enrolled.get, now)

        return await self._desk.through(connection, "enqueue", enqueue) if jobs else []

    async def _enqueued(
        self,
        jobs: Sequence[NewJob],
        receipts: Sequence[Receipt],
        get: Callable[[UUID], Awaitable[Job | None]],
        now: datetime,
    ) -> list[Enqueued]:
        found = []
        for job, receipt in zip(jobs, receipts, strict=True):
            known = None if receipt.created else await get(receipt.id)
            if known is None and not receipt.created:
                raise JobNotFound(receipt.id)
            made = known or job.enqueued(receipt.id, now)
            if known is not None or job.arguments.startswith(ENCRYPTED):
                made = self._desk.cipher.shown(made)
            found.append(Enqueued(made, receipt.created))
        return found


def _milliseconds(now: datetime) -> int:
    return int(now.timestamp() * 1000)
