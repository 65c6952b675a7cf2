"""The store protocol on records of a customer's Salesforce.

There are no transactions over a record and anything else, no wake-ups, no tenants, no history of
attempts, no suspects and no list of workers here: what needs one of them says so, or answers that
there are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any
from uuid import UUID

from holdfast.domain.breakers import BreakerSeen, Holding, Strike
from holdfast.domain.errors import NotInThisStore, SchemaMismatch
from holdfast.domain.health.vitals import Patience, Vitals
from holdfast.domain.job import (
    Attempt,
    Claimed,
    Count,
    Filter,
    Job,
    Lease,
    Lost,
    NewJob,
    Page,
    Receipt,
    Reclaimed,
    Settlement,
    Standing,
)
from holdfast.domain.overview import Pulse
from holdfast.domain.queues import QueueSeen
from holdfast.domain.why import Circumstances
from holdfast.domain.workers import Load, NewWorker, WorkerSeen
from holdfast.salesforce import Salesforce, SalesforceRefused
from holdfast.seam import Seam
from holdfast.stores.foreign import Driver
from holdfast.stores.protocol import Canceled, Claim, Enrolled
from holdfast.stores.salesforce import enqueueing, interventions, leasing, reading
from holdfast.stores.salesforce.aside import Aside
from holdfast.stores.salesforce.writing import Records
from holdfast.wakeups.protocol import Heard, Listener

_NO_SCHEMA = frozenset({"INVALID_FIELD", "INVALID_TYPE"})

_NO_HOLDS = "no object of the organisation says so"


class SalesforceStore:
    """Keep jobs as records of Generated_Document__c. The clock is Salesforce's.

    A record has no room for its most attempts, so that is one number for all.
    """

    def __init__(self, url: str, seam: Seam, *, max_attempts: int) -> None:
        self._seam = seam
        self._salesforce = Salesforce(url, seam)
        self._records = Records(self._salesforce)
        self._aside = Aside(seam)
        self._settling = leasing.Settling(self._records)
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
                    f"the organisation at {self._salesforce.host} lacks an object or a field of"
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
        """Only look: an organisation's objects are deployed by its administrator."""
        await self.open()
        return []

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        return await enqueueing.enqueue(self._records, jobs)

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        return await leasing.claim(self._records, self._aside, claim, self._max_attempts)

    async def claim_suspect(self, claim: Claim) -> Claimed | None:
        return None

    async def suspects(self, names: Sequence[str], queues: Sequence[str] | None) -> int:
        return 0

    async def claim_by_id(self, job_id: UUID, worker: str, lease_seconds: float) -> Claimed | None:
        return await leasing.claim_by_id(
            self._records, job_id, worker, lease_seconds, self._max_attempts
        )

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lost]:
        return await leasing.renew(self._records, leases, lease_seconds)

    async def release_strays(self, worker: str, known: Sequence[Lease], limit: int) -> int:
        return await leasing.release_strays(self._records, worker, known, limit)

    async def progress(self, lease: Lease, progress: bytes) -> bool:
        raise _missing("progress", "a record has no field for it")

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Lost]:
        return await self._settling.settle(settlements)

    def lend(self, *, read_only: bool = False) -> AbstractAsyncContextManager[Any]:
        raise _missing("ctx.completing, hf.transaction and own tables", "it has no transactions")

    def enrol(self, driver: Driver) -> Enrolled:
        raise _missing("options(connection=...)", "it is in no transaction of a database")

    def holding(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def standing(self, job_id: UUID) -> Standing | None:
        return await reading.standing(self._records, job_id)

    async def reclaim(
        self, limit: int, dead_worker: str | None = None, reason: str = ""
    ) -> Sequence[Reclaimed]:
        return await interventions.reclaim(
            self._records, limit, self._max_attempts, dead_worker, reason
        )

    async def tidy(self, limit: int) -> int:
        return 0

    async def cancel(
        self, job_ids: Sequence[UUID], *, waiting_only: bool = False
    ) -> Sequence[Canceled]:
        return await interventions.cancel(self._records, job_ids, waiting_only)

    async def retry(self, job_id: UUID) -> bool:
        return await interventions.retry(self._records, job_id)

    async def requeue(
        self, job_id: UUID, new_id: UUID, *, arguments: bytes | None = None, once: bool = False
    ) -> bool:
        """Queue the same record anew: the request hash is unique, so there can't be a second."""
        if arguments is not None:
            raise _missing("a requeue with other arguments", "the same record is queued again")
        return await interventions.requeue(self._records, job_id)

    async def requeued(self, job_ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
        return {}

    async def get(self, job_id: UUID) -> Job | None:
        record = await reading.find(self._records, job_id)
        return None if record is None else record.job(self._max_attempts)

    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        return []

    async def page(self, filter: Filter, limit: int, after: UUID | None = None) -> Page:
        return await reading.page(self._records, filter, limit, after, self._max_attempts)

    async def counts(self, tenant: str | None = None) -> Sequence[Count]:
        return [] if tenant is not None else await reading.counts(self._records)

    async def queues(self) -> Sequence[QueueSeen]:
        raise _missing("a view of its queues", "records are counted by state only")

    async def pause(self, queue: str, by: str | None, because: str | None) -> bool:
        raise _missing("paused queues", _NO_HOLDS)

    async def resume(self, queue: str) -> bool:
        raise _missing("paused queues", _NO_HOLDS)

    async def cap(self, queue: str, running_max: int | None) -> None:
        raise _missing("limits of its queues", _NO_HOLDS)

    async def strike(self, strikes: Sequence[Strike]) -> Sequence[bool]:
        return [False] * len(strikes)

    async def open_breaker(self, key: str, by: str | None, because: str | None) -> None:
        raise _missing("breakers", _NO_HOLDS)

    async def close_breaker(self, key: str, *, forget: bool = False, by_hand: bool = True) -> bool:
        raise _missing("breakers", _NO_HOLDS)

    async def hold(self, limit: int) -> Holding:
        return Holding(0, None)

    async def claim_probes(self, claim: Claim) -> Sequence[Claimed]:
        return []

    async def breakers(self) -> Sequence[BreakerSeen]:
        return []

    async def pulse(self, newest_max: int) -> Pulse:
        raise _missing("a view of its queues", "records are counted by state only")

    async def greet(self, worker: NewWorker, load: Load) -> None:
        """Nothing: a worker works without being seen."""

    async def see(self, worker_id: str, load: Load) -> bool:
        return True

    async def leave(self, worker_id: str) -> None:
        """Nothing: it was not seen before either."""

    async def workers(self) -> Sequence[WorkerSeen]:
        raise _missing("a list of its workers", "no object of the organisation holds them")

    async def circumstances(self, job_id: UUID) -> Circumstances | None:
        raise _missing("an answer to why a job waits", "it does not know its workers")

    async def vitals(self, patience: Patience) -> Vitals:
        """Only that it answers, and has all its fields: `open` refuses what has not."""
        began = self._seam.monotonic()
        await self.open()
        seconds = self._seam.monotonic() - began
        return Vitals(product=f"Salesforce at {self._salesforce.host}", answer_seconds=seconds)

    async def awaited(
        self, names: Sequence[str], queues: Sequence[str] | None, within_seconds: float
    ) -> bool:
        return await reading.awaited(self._records, names, queues, within_seconds)

    async def unknown_names(
        self, names: Sequence[str], queues: Sequence[str] | None
    ) -> Sequence[str]:
        return []

    async def listen(self, heard: Heard) -> Listener | None:
        return None


def _missing(capability: str, reason: str) -> NotInThisStore:
    return NotInThisStore(f"a queue in Salesforce does not have {capability}: {reason}")
