"""Claim, renew, settle and release.

LockVersion__c rises with every write, renewals included, so it can't identify a lease. Fence__c
does: a claim sets it to the new LockVersion__c, and whatever ends the lease raises it by one. It
never exceeds LockVersion__c unless somebody sets that back, so the next claim's fence is higher.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from holdfast.store_api import (
    Claim,
    Claimed,
    Lease,
    Lost,
    Seam,
    Settlement,
    State,
    StoreError,
    StoreUnavailable,
)
from holdfast_systems.documents.salesforce.client import SalesforceRefused
from holdfast_systems.documents.salesforce.client.ids import record_id_of
from holdfast_systems.documents.salesforce.client.rest import TRANSIENT_CODES
from holdfast_systems.documents.salesforce.store import limits
from holdfast_systems.documents.salesforce.store.aside import Aside
from holdfast_systems.documents.salesforce.store.company import Company
from holdfast_systems.documents.salesforce.store.pace import Pace
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
    as_unavailable,
)


class Claiming:
    """Claims from the head of the queue, at its pace; without one, whenever it is asked."""

    def __init__(self, records: Records, seam: Seam, pace: Pace | None) -> None:
        self._records = records
        self._aside = Aside(seam)
        self._pace = pace
        self.company = Company(seam)

    async def claim(self, claim: Claim) -> list[Claimed]:
        """Claim, and poll again if others took what was there."""
        claimed: list[Claimed] = []
        if not concerns(claim.names, claim.queues) or QUEUE in claim.except_queues:
            return claimed
        salesforce = self._records.salesforce
        if self._pace is None or self._pace.is_poll_due(salesforce):
            with as_unavailable():
                for _ in range(limits.CLAIM_POLLS_MAX):
                    found = await self._poll(claim, claimed)
                    if len(claimed) == claim.limit or found < limits.DUE_ROWS_MAX:
                        break
        if not claimed and (news := self._aside.take_news() or self._pace_news()):
            raise StoreUnavailable(news)  # The worker logs it; the store can't.
        return claimed

    def _pace_news(self) -> str:
        return self._pace.take_news(self._records.salesforce) if self._pace else ""

    async def _poll(self, claim: Claim, claimed: list[Claimed]) -> int:
        """Claim due records that nobody else takes first; return how many were found."""
        poll = self._aside.begin_poll()
        limit = max(limits.DUE_ROWS_MAX, claim.limit)
        seen, unreadable = await self._records.read(
            "due",
            now=self._records.salesforce.now(),
            limit=limit,
            aside=[NO_RECORD, *self._aside.ids()],
        )
        for record_id in unreadable:
            self._aside.add(record_id, "its fields can't be read")
        found = len(seen) + len(unreadable)
        due = [record for record in seen if record.state is not State.RUNNING]
        left = self.company.choose(due)
        while left and len(claimed) < claim.limit:
            wanted = claim.limit - len(claimed)
            await self._take(left[:wanted], claim, poll, claimed)
            left = left[wanted:]
        if self._pace is not None:
            self._pace.polled(
                saw_all=found < limit,
                is_idle=len(claimed) < claim.limit and not unreadable,
                lapsed=len(due) < len(seen),
            )
        return found

    async def _take(
        self, due: Sequence[Record], claim: Claim, poll: int, claimed: list[Claimed]
    ) -> None:
        leased = await _lease(self._records, due, claim)
        for record, job in zip(due, leased, strict=True):
            if isinstance(job, Claimed):
                claimed.append(job)
                self.company.began([(record, job.lease)])
            elif job.code not in TRANSIENT_CODES:
                self._aside.refuse(record, poll, str(job))


async def claim_by_id(
    records: Records, job_id: UUID, worker: str, lease_seconds: float
) -> Claimed | None:
    record_id = record_id_of(job_id)
    if record_id is None:
        return None
    due = await records.find("due_one", id=record_id, now=records.salesforce.now())
    claim = Claim(worker=worker, limit=1, lease_seconds=lease_seconds, names=())
    leased = await _lease(records, due, claim)
    return next((job for job in leased if isinstance(job, Claimed)), None)


async def renew(records: Records, leases: Sequence[Lease], lease_seconds: float) -> list[Lost]:
    ours = set(leases)

    def decide(record: Record) -> Fields | None:
        if record.state is not State.RUNNING or record.lease not in ours:
            return None
        return {"LockedUntil__c": _locked_until(records, lease_seconds)}

    outcome = Outcome({}, {})
    with as_unavailable():
        await records.change(_ids_of(leases), decide, outcome)
    return _lost(leases, outcome, ())


async def release_strays(records: Records, worker: str, known: Sequence[Lease], limit: int) -> int:
    found = await records.find("leased_by", worker=worker, limit=limit + len(known))
    ours = set(known)
    strays = [record for record in found if record.lease not in ours][:limit]
    with as_unavailable():
        refusals = await records.write([(record, _released(record)) for record in strays])
    return refusals.count(None)


class Settling:
    """Settles jobs whose lease is still ours.

    Records are written independently of each other, so an error may leave some of them settled.
    These are remembered, so that they don't count as lost when the caller tries again.
    """

    def __init__(self, records: Records, ended: Callable[[Iterable[Lease]], None]) -> None:
        self._records = records
        self._ended = ended
        self._written: set[Lease] = set()

    async def settle(self, settlements: Sequence[Settlement]) -> list[Lost]:
        by_lease = {Lease(one.job_id, one.fence): one for one in settlements}

        def decide(record: Record) -> Fields | None:
            settlement = by_lease.get(record.lease)
            if settlement is None or record.state is not State.RUNNING:
                return None
            return _settled(record, settlement, self._records.salesforce.now())

        outcome = Outcome({}, {})
        try:
            await self._records.change(_ids_of(by_lease), decide, outcome)
        except StoreError:
            self._written |= {record.lease for record in outcome.changed.values()}
            raise
        lost = _lost(list(by_lease), outcome, self._written)
        given = Counter(Lease(one.job_id, one.fence) for one in settlements)
        twice = (given - Counter(by_lease.keys())).elements()
        lost += [Lost(*lease, by_lease[lease].state) for lease in twice]
        self._written -= by_lease.keys()
        self._ended(by_lease)
        return lost


def concerns(names: Sequence[str], queues: Sequence[str] | None) -> bool:
    """Can jobs with these names, in these queues, be records?"""
    return JOB_NAME in names and (queues is None or QUEUE in queues)


async def _lease(
    records: Records, due: Sequence[Record], claim: Claim
) -> list[Claimed | SalesforceRefused]:
    """Lease these records; return for each the job, or why Salesforce refused."""
    changes: list[Change] = []
    claimed: list[Claimed] = []
    for record in due:
        fence = record.next_fence
        correlation_id = record.correlation_id or str(record.job_id)
        claimed.append(record.claimed(fence, correlation_id, records.max_attempts))
        fields = {
            "Status__c": STATUSES[State.RUNNING],
            "LockedUntil__c": _locked_until(records, claim.lease_seconds),
            "LockedBy__c": claim.worker,
            "Attempts__c": record.attempts + 1,
            "CorrelationId__c": correlation_id,
            "RequestHash__c": record.hash,
            "Fence__c": fence,
        }
        changes.append((record, fields))
    refusals = await records.write(changes)
    return [refusal or job for job, refusal in zip(claimed, refusals, strict=True)]


def _locked_until(records: Records, lease_seconds: float) -> str:
    # Another worker may see Salesforce's clock a second ahead of us.
    seconds = lease_seconds + limits.LEASE_MARGIN_SECONDS
    return write_time(records.salesforce.now() + timedelta(seconds=seconds))


def _released(record: Record) -> Fields:
    attempts = record.attempts - 1
    return record.unlocked(State.QUEUED, Attempts__c=attempts, ScheduledAfter__c=None)


def _settled(record: Record, settlement: Settlement, now: datetime) -> Fields:
    due = now + timedelta(seconds=settlement.delay_seconds)
    fields = record.unlocked(
        settlement.state,
        Attempts__c=record.attempts - 1 if settlement.attempt_back else record.attempts,
        ScheduledAfter__c=write_time(due) if due > now else None,
        Releases__c=record.releases + settlement.released,
        Snoozes__c=record.snoozes + settlement.snoozed,
        Crashes__c=record.crashes + settlement.crashed,
    )
    if settlement.state is State.SUCCEEDED:
        fields |= {"OutputFileId__c": _file_id(settlement.result), "Error__c": None}
    elif settlement.error_code is not None:
        fields["Error__c"] = write_error(
            settlement.error_code,
            settlement.error_text or "",
            exhausted=settlement.state is State.DEAD,
        )
    return fields


def _file_id(result: bytes | None) -> str | None:
    answer: Any = msgspec.json.decode(result or b"null")
    file_id = answer.get("file_id") if isinstance(answer, dict) else None
    return file_id if isinstance(file_id, str) else None


def _ids_of(leases: Iterable[Lease]) -> list[str]:
    found = (record_id_of(lease.job_id) for lease in leases)
    return list(dict.fromkeys(filter(None, found)))


def _lost(leases: Sequence[Lease], outcome: Outcome, written: Collection[Lease]) -> list[Lost]:
    """Return the leases that nothing was written for, with the states of their records."""
    lost = []
    for lease in leases:
        record_id = record_id_of(lease.job_id) or ""
        changed = outcome.changed.get(record_id)
        if (changed and changed.fence == lease.fence) or lease in written:
            continue
        found = changed or outcome.left.get(record_id)
        lost.append(Lost(*lease, found.state if found else None))
    return lost
