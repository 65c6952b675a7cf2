"""The store protocol on records of a customer's Salesforce: its core, and no capability.

An organization has no transaction over a record and anything else, no wake-ups, no tenants, and no
object for attempts, breakers, paused queues or workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.store_api import (
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
)
from holdfast_systems.documents.salesforce.client import Salesforce, SalesforceRefused
from holdfast_systems.documents.salesforce.store import claim, enqueue, queries, reclaim
from holdfast_systems.documents.salesforce.store.aside import Aside
from holdfast_systems.documents.salesforce.store.write import Records

_NO_SCHEMA = frozenset({"INVALID_FIELD", "INVALID_TYPE"})


class SalesforceStore:
    """Keep jobs as records of Generated_Document__c. The clock is Salesforce's.

    A record has no room for its most attempts, so that is one number for all.
    """

    def __init__(self, url: str, seam: Seam, *, max_attempts: int) -> None:
        self._seam = seam
        self._salesforce = Salesforce(url, seam)
        self._records = Records(self._salesforce)
        self._aside = Aside(seam)
        self._settling = claim.Settling(self._records)
        self._max_attempts = max_attempts

    async def open(self) -> None:
        """Log in, and see that the object has all its fields."""
        await self._salesforce.open()
        try:
            await self._records.check()
        except SalesforceRefused as error:
            await self.close()
            if error.code in _NO_SCHEMA:
                raise SchemaMismatch(
                    f"the organization at {self._salesforce.host} lacks an object or a field of"
                    f" the documents system, or its user may not see it: {error}"
                ) from error
            raise
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._salesforce.close()

    def abandon(self) -> None:
        """Its connections are closed when they are collected."""

    async def migrate(self) -> Sequence[str]:
        """Only look: an organization's objects are deployed by its administrator."""
        await self.open()
        return []

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        return await enqueue.enqueue(self._records, jobs)

    async def claim(self, request: Claim) -> Sequence[Claimed]:
        return await claim.claim(self._records, self._aside, request, self._max_attempts)

    async def claim_by_id(self, job_id: UUID, worker: str, lease_seconds: float) -> Claimed | None:
        return await claim.claim_by_id(
            self._records, job_id, worker, lease_seconds, self._max_attempts
        )

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lost]:
        return await claim.renew(self._records, leases, lease_seconds)

    async def release_strays(self, worker: str, known: Sequence[Lease], limit: int) -> int:
        return await claim.release_strays(self._records, worker, known, limit)

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Lost]:
        return await self._settling.settle(settlements)

    async def reclaim(
        self, limit: int, dead_worker: str | None = None, reason: str = ""
    ) -> Sequence[Reclaimed]:
        return await reclaim.reclaim(self._records, limit, self._max_attempts, dead_worker, reason)

    async def cancel(
        self, job_ids: Sequence[UUID], *, waiting_only: bool = False
    ) -> Sequence[Canceled]:
        return await reclaim.cancel(self._records, job_ids, waiting_only)

    async def retry(self, job_id: UUID) -> bool:
        return await reclaim.retry(self._records, job_id)

    async def requeue(
        self, job_id: UUID, new_id: UUID, *, arguments: bytes | None = None, once: bool = False
    ) -> bool:
        """Queue the same record anew: the request hash is unique, so there can't be a second."""
        if arguments is not None:
            raise NotInThisStore("in Salesforce the same record is queued again, as it is")
        return await reclaim.requeue(self._records, job_id)

    async def get(self, job_id: UUID) -> Job | None:
        record = await queries.find(self._records, job_id)
        return None if record is None else record.job(self._max_attempts)

    async def page(self, filter: Filter, limit: int, after: UUID | None = None) -> Page:
        return await queries.page(self._records, filter, limit, after, self._max_attempts)

    async def counts(self, tenant: str | None = None) -> Sequence[Count]:
        return [] if tenant is not None else await queries.counts(self._records)

    async def queues(self) -> Sequence[QueueStatus]:
        return await queries.queues(self._records)

    async def awaited(
        self, names: Sequence[str], queues: Sequence[str] | None, within_seconds: float
    ) -> bool:
        return await queries.awaited(self._records, names, queues, within_seconds)


def make_store(url: str, seam: Seam, settings: Settings) -> SalesforceStore:
    """The entry point for `salesforce://`."""
    return SalesforceStore(url, seam, max_attempts=settings.max_attempts)
