"""The core of the store protocol on Salesforce records, without any capability.

An organization has no transactions that include anything besides records, no wake-ups, no
tenants, no parents, and no objects for attempts, breakers, paused queues or workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from math import inf
from uuid import UUID

from holdfast.store_api import (
    DEFAULT_TENANT,
    Canceled,
    Claim,
    Claimed,
    Count,
    Filter,
    Job,
    Lease,
    Lost,
    NewJob,
    NotInThisStore,
    Page,
    QueueStatus,
    Receipt,
    Reclaimed,
    SchemaMismatch,
    Seam,
    Settings,
    Settlement,
    cancel_reason,
)
from holdfast_systems.documents.salesforce.client import Salesforce, SalesforceRefused
from holdfast_systems.documents.salesforce.store import claim, enqueue, queries, reclaim
from holdfast_systems.documents.salesforce.store.limits import DEPTH_SECONDS
from holdfast_systems.documents.salesforce.store.pace import Pace, pace_of
from holdfast_systems.documents.salesforce.store.write import Records

_NO_SCHEMA = frozenset({"INVALID_FIELD", "INVALID_TYPE"})


class SalesforceStore:
    """Keep jobs as records of Generated_Document__c, by Salesforce's clock.

    A record has no field for its maximum number of attempts, so all records share one.
    """

    def __init__(
        self, url: str, seam: Seam, *, max_attempts: int, pace: Pace | None = None
    ) -> None:
        self._salesforce = Salesforce(url, seam)
        self._records = Records(self._salesforce, max_attempts)
        self._seam = seam
        self._queues: Sequence[QueueStatus] = ()
        self._queues_until = -inf
        self._pace = pace
        self._claiming = claim.Claiming(self._records, seam, pace)
        self._settling = claim.Settling(self._records, self._end)

    async def open(self) -> None:
        """Log in and check that the object has all its fields."""
        await self._salesforce.open()
        try:
            await self._records.check()
        except BaseException as error:
            await self.close()
            if isinstance(error, SalesforceRefused) and error.code in _NO_SCHEMA:
                raise SchemaMismatch(
                    f"the organization at {self._salesforce.host} lacks an object or a field of"
                    f" the documents system, or hides it from this user: {error}"
                ) from error
            raise

    async def close(self) -> None:
        await self._salesforce.close()

    def abandon(self) -> None:
        """Do nothing: connections close when they are garbage-collected."""

    async def migrate(self) -> Sequence[str]:
        """Only check the fields: the organization's administrator deploys its objects."""
        await self.open()
        return []

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        receipts = await enqueue.enqueue(self._records, jobs)
        self._wake()
        return receipts

    async def claim(self, request: Claim) -> Sequence[Claimed]:
        return await self._claiming.claim(request)

    async def claim_by_id(self, job_id: UUID, worker: str, lease_seconds: float) -> Claimed | None:
        return await claim.claim_by_id(self._records, job_id, worker, lease_seconds)

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lost]:
        return await claim.renew(self._records, leases, lease_seconds)

    async def release_strays(self, worker: str, known: Sequence[Lease], limit: int) -> int:
        return await claim.release_strays(self._records, worker, known, limit)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Lost]:
        return await self._settling.settle(settlements)

    async def reclaim(
        self, limit: int, dead_worker: str | None = None, reason: str = ""
    ) -> Sequence[Reclaimed]:
        if dead_worker is None and self._pace and not self._pace.is_reclaim_due(self._salesforce):
            return []
        taken = await reclaim.reclaim(self._records, limit, dead_worker, reason)
        if self._pace and limit:
            self._pace.reclaimed(len(taken))
        return taken

    async def cancel(
        self,
        job_ids: Sequence[UUID],
        *,
        waiting_only: bool = False,
        by: str | None = None,
        because: str | None = None,
    ) -> Sequence[Canceled]:
        reason = cancel_reason(by, because)
        return await reclaim.cancel(self._records, job_ids, waiting_only, reason)

    async def retry(self, job_id: UUID) -> bool:
        is_due = await reclaim.retry(self._records, job_id)
        self._wake()
        return is_due

    async def requeue(
        self, job_id: UUID, new_id: UUID, *, arguments: bytes | None = None, once: bool = False
    ) -> bool:
        if arguments is not None:
            raise NotInThisStore(
                "in Salesforce the same record is queued again, so its arguments can't change;"
                " create a new record instead"
            )
        is_queued = await reclaim.requeue(self._records, job_id)
        self._wake()
        return is_queued

    async def get(self, job_id: UUID) -> Job | None:
        record = await queries.find(self._records, job_id)
        return record.job(self._records.max_attempts) if record else None

    async def page(self, filter: Filter, limit: int, after: UUID | None = None) -> Page:
        return await queries.page(self._records, filter, limit, after)

    async def counts(self, tenant: str | None = None) -> Sequence[Count]:
        if tenant not in (None, DEFAULT_TENANT):
            return []
        return await queries.counts(self._records)

    async def now(self) -> datetime:
        return self._records.salesforce.now()

    async def queues(self) -> Sequence[QueueStatus]:
        """With a pace, remember the answer for a while: metrics are scraped all the time."""
        now = self._seam.monotonic()
        if self._pace is None or now >= self._queues_until:
            self._queues = await queries.queues(self._records)
            self._queues_until = now + DEPTH_SECONDS
        return self._queues

    def _wake(self) -> None:
        if self._pace is not None:
            self._pace.wake()

    def _end(self, leases: Iterable[Lease]) -> None:
        # What could not start beside them may be able to now.
        if self._claiming.company.ended(leases):
            self._wake()

    async def awaited(
        self, names: Sequence[str], queues: Sequence[str] | None, within_seconds: float
    ) -> bool:
        return await queries.awaited(self._records, names, queues, within_seconds)


def make_store(url: str, seam: Seam, settings: Settings) -> SalesforceStore:
    """Make the store for a `salesforce://` URL."""
    pace = pace_of(seam, url)
    return SalesforceStore(url, seam, max_attempts=settings.max_attempts, pace=pace)
