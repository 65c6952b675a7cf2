"""Records that are generated while a caller waits: created under a lock, and settled by it.

One call creates the record and one ends it. A worker's claim and settlement take two calls each.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from holdfast.store_api import (
    IdempotencyConflict,
    NewJob,
    State,
    StoreUnavailable,
)
from holdfast_systems.documents.salesforce.client import Salesforce, SalesforceRefused
from holdfast_systems.documents.salesforce.store.limits import LEASE_MARGIN_SECONDS
from holdfast_systems.documents.salesforce.store.records import (
    OBJECT,
    STATUSES,
    Fields,
    Record,
    new_fields,
    same_body,
    write_error,
    write_time,
)
from holdfast_systems.documents.salesforce.store.write import Records

_DUPLICATE = "DUPLICATE_VALUE"


class Locked(NamedTuple):
    """A record under our lock, as it was written last."""

    record: Record
    attempt: int

    @property
    def job_id(self) -> UUID:
        return self.record.job_id


class Locks:
    """`worker` is who has the lock, for people who look at the record."""

    def __init__(self, salesforce: Salesforce, worker: str, lock_seconds: float) -> None:
        self._salesforce = salesforce
        self._records = Records(salesforce, max_attempts=1)
        self._worker = worker
        self._lock_seconds = lock_seconds

    async def create(self, job: NewJob) -> Locked | None:
        """Create a locked record; None if its hash exists already."""
        fields = new_fields(job, self._salesforce.now()) | self._lock(attempts=1, fence=1)
        try:
            record_id = await self._salesforce.insert(OBJECT, fields)
        except SalesforceRefused as error:
            if error.code == _DUPLICATE:
                return None
            raise
        record = Record(id=record_id, request_hash=fields["RequestHash__c"], raw_fence=1)
        return Locked(record, 1)

    async def find(self, job: NewJob) -> Record:
        """Find the record with the hash of this job."""
        fields = new_fields(job, self._salesforce.now())
        found = await self._records.find("records_of_hash", hash=fields["RequestHash__c"])
        if not found:
            raise StoreUnavailable("the record with the same request hash has just been deleted")
        if not same_body(found[0], fields):
            raise IdempotencyConflict(job.idempotency_key or "", found[0].job_id)
        return found[0]

    async def take(self, record: Record) -> Locked | None:
        """Lock a queued record; None if somebody else was faster."""
        attempt, fence = record.attempts + 1, record.next_fence
        if not await self._write(record, self._lock(attempts=attempt, fence=fence)):
            return None
        version = record.raised_version
        return Locked(
            msgspec.structs.replace(record, raw_lock_version=version, raw_fence=fence), attempt
        )

    async def succeed(self, locked: Locked, file_id: str) -> bool:
        """False if somebody canceled the record or took the lock."""
        return await self._end(locked, State.SUCCEEDED, OutputFileId__c=file_id, Error__c=None)

    async def fail(self, locked: Locked, code: str, text: str) -> bool:
        error = write_error(code, text, exhausted=False)
        return await self._end(locked, State.FAILED, Error__c=error)

    async def queue(self, locked: Locked, code: str, text: str, delay_seconds: float) -> bool:
        """Leave the record to the workers."""
        due = self._salesforce.now() + timedelta(seconds=delay_seconds)
        error = write_error(code, text, exhausted=False)
        scheduled = write_time(due)
        return await self._end(locked, State.QUEUED, Error__c=error, ScheduledAfter__c=scheduled)

    async def _end(self, locked: Locked, state: State, **fields: object) -> bool:
        return await self._write(locked.record, locked.record.unlocked(state, **fields))

    async def _write(self, record: Record, fields: Fields) -> bool:
        refusals: Sequence[SalesforceRefused | None] = await self._records.write([(record, fields)])
        return refusals == [None]

    def _lock(self, *, attempts: int, fence: int) -> Fields:
        seconds = self._lock_seconds + LEASE_MARGIN_SECONDS
        return {
            "Status__c": STATUSES[State.RUNNING],
            "LockedUntil__c": write_time(self._salesforce.now() + timedelta(seconds=seconds)),
            "LockedBy__c": self._worker,
            "Attempts__c": attempts,
            "Fence__c": fence,
        }
