"""Claims, and what the holder of a lease may write.

LockVersion__c rises with every write, so it can't name a lease that is renewed. Fence__c does: a
claim sets it to the new LockVersion__c, and whatever ends a lease raises it by one. It stays at or
below LockVersion__c, unless people set that back, so the next claim is always higher.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from holdfast.store_api import (
    Claim,
    Claimed,
    Lease,
    Lost,
    Settlement,
    State,
    StoreError,
    StoreUnavailable,
)
from holdfast_systems.documents.salesforce.client import SalesforceRefused
from holdfast_systems.documents.salesforce.client.ids import record_id_of
from holdfast_systems.documents.salesforce.client.rest import PASSING_CODES
from holdfast_systems.documents.salesforce.store.aside import Aside
from holdfast_systems.documents.salesforce.store.limits import (
    CLAIM_LOOKS_MAX,
    DUE_ROWS_MAX,
    LEASE_MARGIN_SECONDS,
)
from holdfast_systems.documents.salesforce.store.records import (
    JOB_NAME,
    QUEUE,
    STATUSES,
    Fields,
    Record,
    write_error,
    write_time,
)
from holdfast_systems.documents.salesforce.store.write import (
    NO_RECORD,
    Change,
    Outcome,
    Records,
    asking,
)


async def claim(records: Records, aside: Aside, claim: Claim, max_attempts: int) -> list[Claimed]:
    """Claim from the head of the queue; look again if others took what was found there."""
    claimed: list[Claimed] = []
    if not concerns(claim.names, claim.queues) or QUEUE in claim.except_queues:
        return claimed
    with asking():
        for _ in range(CLAIM_LOOKS_MAX):
            found = await _look(records, aside, claim, max_attempts, claimed)
            if len(claimed) == claim.limit or found < DUE_ROWS_MAX:
                break
    if not claimed and (news := aside.take_news()):
        raise StoreUnavailable(news)  # The one way in which people hear of it.
    return claimed


async def claim_by_id(
    records: Records, job_id: UUID, worker: str, lease_seconds: float, max_attempts: int
) -> Claimed | None:
    record_id = record_id_of(job_id)
    if record_id is None:
        return None
    due = await records.find("due_one", id=record_id, now=records.salesforce.now())
    claim = Claim(worker=worker, limit=1, lease_seconds=lease_seconds, names=())
    leased = await _lease(records, due, claim, max_attempts)
    return next((job for job in leased if isinstance(job, Claimed)), None)


async def renew(records: Records, leases: Sequence[Lease], lease_seconds: float) -> list[Lost]:
    held = set(leases)

    def decide(record: Record) -> Fields | None:
        if not _is_held(record) or Lease(record.job_id, record.fence) not in held:
            return None
        return {"LockedUntil__c": _until(records, lease_seconds)}

    outcome = Outcome({}, {})
    with asking():
        await records.change(_ids_of(leases), decide, outcome)
    return _lost(leases, outcome, ())


async def release_strays(records: Records, worker: str, known: Sequence[Lease], limit: int) -> int:
    found = await records.find("held_by", worker=worker, limit=limit + len(known))
    ours = set(known)
    strays = [record for record in found if Lease(record.job_id, record.fence) not in ours][:limit]
    with asking():
        refusals = await records.write([(record, _released(record)) for record in strays])
    return refusals.count(None)


class Settling:
    """Settles what is still held.

    Records are written one independently of the other, so an error may leave some settled. Whoever
    gets it tries again; what was written by then is remembered, and not told as lost.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._written: set[Lease] = set()

    async def settle(self, settlements: Sequence[Settlement]) -> list[Lost]:
        by_lease = {Lease(one.job_id, one.fence): one for one in settlements}

        def decide(record: Record) -> Fields | None:
            settlement = by_lease.get(Lease(record.job_id, record.fence))
            if settlement is None or not _is_held(record):
                return None
            return _end(record, settlement, self._records.salesforce.now())

        outcome = Outcome({}, {})
        try:
            await self._records.change(_ids_of(list(by_lease)), decide, outcome)
        except StoreError:
            changed = outcome.changed.values()
            self._written |= {Lease(record.job_id, record.fence) for record in changed}
            raise
        lost = _lost(list(by_lease), outcome, self._written)
        given = Counter(Lease(one.job_id, one.fence) for one in settlements)
        twice = (given - Counter(by_lease.keys())).elements()
        lost += [Lost(*lease, by_lease[lease].state) for lease in twice]
        self._written -= by_lease.keys()
        return lost


def concerns(names: Sequence[str], queues: Sequence[str] | None) -> bool:
    return JOB_NAME in names and (queues is None or QUEUE in queues)


async def _lease(
    records: Records, due: Sequence[Record], claim: Claim, max_attempts: int
) -> list[Claimed | SalesforceRefused]:
    """Lease each; answer for each the job, or why it was refused."""
    changes: list[Change] = []
    claimed: list[Claimed] = []
    for record in due:
        fence = record.next_fence
        correlation_id = record.correlation_id or str(record.job_id)
        claimed.append(record.claimed(fence, correlation_id, max_attempts))
        fields = {
            "Status__c": STATUSES[State.RUNNING],
            "LockedUntil__c": _until(records, claim.lease_seconds),
            "LockedBy__c": claim.worker,
            "Attempts__c": record.attempts + 1,
            "CorrelationId__c": correlation_id,
            "RequestHash__c": record.hash,
            "Fence__c": fence,
        }
        changes.append((record, fields))
    refusals = await records.write(changes)
    return [refusal or job for job, refusal in zip(claimed, refusals, strict=True)]


async def _look(
    records: Records, aside: Aside, claim: Claim, max_attempts: int, claimed: list[Claimed]
) -> int:
    """Claim of what is due, down to what nobody else took; answer how many were seen."""
    look = aside.begin_look()
    due, unreadable = await records.look(
        "due",
        now=records.salesforce.now(),
        limit=max(DUE_ROWS_MAX, claim.limit),
        aside=[NO_RECORD, *aside.ids()],
    )
    for record_id in unreadable:
        aside.put(record_id, "its fields can't be read")
    seen = len(due) + len(unreadable)
    while due and len(claimed) < claim.limit:
        wanted = claim.limit - len(claimed)
        leased = await _lease(records, due[:wanted], claim, max_attempts)
        for record, job in zip(due, leased, strict=False):
            if isinstance(job, Claimed):
                claimed.append(job)
            elif job.code not in PASSING_CODES:
                aside.refuse(record, look, str(job))
        due = due[wanted:]
    return seen


def _is_held(record: Record) -> bool:
    return record.status == STATUSES[State.RUNNING]


def _until(records: Records, lease_seconds: float) -> str:
    # The clock that we know may be a second behind that of another worker.
    seconds = lease_seconds + LEASE_MARGIN_SECONDS
    return write_time(records.salesforce.now() + timedelta(seconds=seconds))


def _released(record: Record) -> Fields:
    return {
        "Status__c": STATUSES[State.QUEUED],
        "LockedUntil__c": None,
        "Fence__c": record.fence + 1,
        "Attempts__c": record.attempts - 1,
        "ScheduledAfter__c": None,
    }


def _end(record: Record, settlement: Settlement, now: datetime) -> Fields:
    fields: Fields = {
        "Status__c": STATUSES[settlement.state],
        "LockedUntil__c": None,
        "Fence__c": record.fence + 1,
        "Attempts__c": record.attempts - 1 if settlement.attempt_back else record.attempts,
        "ScheduledAfter__c": _due(settlement.delay_seconds, now),
    }
    if settlement.state is State.SUCCEEDED:
        fields |= {"OutputFileId__c": _file_id(settlement.result), "Error__c": None}
    elif settlement.error_code is not None:
        fields["Error__c"] = write_error(
            settlement.error_code,
            settlement.error_text or "",
            exhausted=settlement.state is State.DEAD,
        )
    return fields


def _due(delay_seconds: float, now: datetime) -> str | None:
    return write_time(now + timedelta(seconds=delay_seconds)) if delay_seconds > 0 else None


def _file_id(result: bytes | None) -> str | None:
    answer: Any = msgspec.json.decode(result or b"null")
    file_id = answer.get("file_id") if isinstance(answer, dict) else None
    return file_id if isinstance(file_id, str) else None


def _ids_of(leases: Sequence[Lease]) -> list[str]:
    found = [record_id_of(lease.job_id) for lease in leases]
    return list(dict.fromkeys(record_id for record_id in found if record_id))


def _lost(leases: Sequence[Lease], outcome: Outcome, written: Collection[Lease]) -> list[Lost]:
    """Which of the leases were not found as they should be, and how they were found."""
    lost = []
    for lease in leases:
        record_id = record_id_of(lease.job_id) or ""
        changed = outcome.changed.get(record_id)
        if (changed and changed.fence == lease.fence) or lease in written:
            continue
        found = changed or outcome.left.get(record_id)
        lost.append(Lost(*lease, found.state if found else None))
    return lost
