"""Batches: thousands of records with one name, their progress, and their cancelation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast import BadArguments, Holdfast, JobFunction
from holdfast.store_api import cancel_reason
from holdfast_systems.documents import limits
from holdfast_systems.documents.salesforce.client import Salesforce
from holdfast_systems.documents.salesforce.client.limits import RECORDS_IN_CALL_MAX
from holdfast_systems.documents.salesforce.store import reclaim
from holdfast_systems.documents.salesforce.store.write import Records

STATUSES = ("QUEUED", "PROCESSING", "SUCCEEDED", "FAILED", "CANCELED")


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One document of a batch."""

    template: str
    data: dict[str, Any] = {}
    request_hash: str | None = None


class Progress(msgspec.Struct, frozen=True):
    """How many documents of a batch have each status."""

    batch: str
    total: int
    ended: int
    statuses: dict[str, int]


class Batches:
    """The batch's name is the `CorrelationId__c` of its records."""

    def __init__(
        self, hf: Holdfast, salesforce: Salesforce, generate: JobFunction[..., Any]
    ) -> None:
        self._hf = hf
        self._records = Records(salesforce, max_attempts=1)
        self._generate = generate

    async def create(
        self, batch: str, documents: Sequence[Wanted], priority: int = 0
    ) -> list[UUID]:
        """Create the records, 200 at a time. The same batch sent again creates what is missing:
        a document without a request hash has one of the batch and its place in it."""
        if len(documents) > limits.BATCH_DOCUMENTS_MAX:
            raise BadArguments(
                f"{len(documents):,} documents are too many for one batch; the limit is"
                f" {limits.BATCH_DOCUMENTS_MAX:,}"
            )
        calls = [
            self._generate.options(
                idempotency_key=each.request_hash or f"{batch}/{number}",
                correlation_id=batch,
                priority=priority,
            ).call(each.template, each.data)
            for number, each in enumerate(documents)
        ]
        made: list[UUID] = []
        for start in range(0, len(calls), RECORDS_IN_CALL_MAX):
            part = calls[start : start + RECORDS_IN_CALL_MAX]
            made += [job.id for job in await self._hf.enqueue_many(part)]
        return made

    async def progress(self, batch: str) -> Progress:
        counts = await asyncio.gather(
            *[
                self._records.count("count_of_batch", batch=batch, status=status)
                for status in STATUSES
            ]
        )
        statuses = dict(zip(STATUSES, counts, strict=True))
        live = statuses["QUEUED"] + statuses["PROCESSING"]
        return Progress(batch, sum(counts), sum(counts) - live, statuses)

    async def cancel(self, batch: str, *, by: str | None = None) -> int:
        """Cancel what has not ended; workers stop at their next renewal. Return how many."""
        canceled = 0
        for _ in range(limits.BATCH_DOCUMENTS_MAX // RECORDS_IN_CALL_MAX):
            live = await self._records.find("live_of_batch", batch=batch, limit=RECORDS_IN_CALL_MAX)
            ids = [record.job_id for record in live]
            reason = cancel_reason(by, None)
            stopped = await reclaim.cancel(self._records, ids, waiting_only=False, reason=reason)
            canceled += len(stopped)
            if len(ids) < RECORDS_IN_CALL_MAX or not stopped:
                break
        return canceled
