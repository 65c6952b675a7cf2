"""What happens to records from outside: reclaim, cancel, retry, requeue."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.store_api import LIVE, Canceled, Reclaimed, State
from holdfast_systems.documents.salesforce.client.ids import record_id_of
from holdfast_systems.documents.salesforce.store.records import (
    JOB_NAME,
    QUEUE,
    STATUSES,
    Fields,
    Record,
    write_error,
)
from holdfast_systems.documents.salesforce.store.write import Change, Decide, Outcome, Records


async def reclaim(
    records: Records, limit: int, max_attempts: int, dead_worker: str | None, reason: str
) -> list[Reclaimed]:
    """Take back what ran out, or what a dead worker held; who else wrote meanwhile wins."""
    if limit == 0:
        return []
    if dead_worker is None:
        found = await records.find("lapsed", now=records.salesforce.now(), limit=limit)
        code, reason = "LEASE_LOST", "stopped renewing its lease"
    else:
        found = await records.find("held_by", worker=dead_worker, limit=limit)
        code = "CRASHED"
    changes: list[Change] = []
    taken: list[Reclaimed] = []
    for record in found:
        state = State.DEAD if record.attempts >= max_attempts else State.QUEUED
        text = f"the worker {record.locked_by} {reason}"
        changes.append((record, _taken_back(record, state, code, text)))
        taken.append(_reclaimed(record, state, code))
    refusals = await records.write(changes)
    return [job for job, refusal in zip(taken, refusals, strict=True) if refusal is None]


async def cancel(records: Records, job_ids: Sequence[UUID], waiting_only: bool) -> list[Canceled]:
    stopped = {State.QUEUED} if waiting_only else LIVE

    def decide(record: Record) -> Fields | None:
        if record.state not in stopped:
            return None
        doing = "ran" if record.state is State.RUNNING else "waited"
        text = f"the job was canceled while it {doing}"
        return {
            "Status__c": STATUSES[State.CANCELED],
            "LockedUntil__c": None,
            "Fence__c": record.fence + 1,
            "Error__c": write_error("CANCELED", text, exhausted=False),
        }

    ids = [record_id for job_id in job_ids if (record_id := record_id_of(job_id))]
    outcome = Outcome({}, {})
    await records.change(ids, decide, outcome)
    return [
        Canceled(record.job_id, record.state is State.RUNNING)
        for record in outcome.changed.values()
    ]


async def retry(records: Records, job_id: UUID) -> bool:
    def decide(record: Record) -> Fields | None:
        return {"ScheduledAfter__c": None} if record.state is State.QUEUED else None

    return await _change_one(records, job_id, decide)


async def requeue(records: Records, job_id: UUID) -> bool:
    """In place, because the request hash is unique: the same record waits again."""

    def decide(record: Record) -> Fields | None:
        if record.state is None or record.state in LIVE:
            return None
        return {
            "Status__c": STATUSES[State.QUEUED],
            "Attempts__c": 0,
            "Fence__c": record.fence + 1,
            "ScheduledAfter__c": None,
            "Error__c": None,
            "OutputFileId__c": None,
        }

    return await _change_one(records, job_id, decide)


async def _change_one(records: Records, job_id: UUID, decide: Decide) -> bool:
    record_id = record_id_of(job_id)
    if record_id is None:
        return False
    outcome = Outcome({}, {})
    await records.change([record_id], decide, outcome)
    return bool(outcome.changed)


def _taken_back(record: Record, state: State, code: str, text: str) -> Fields:
    return {
        "Status__c": STATUSES[state],
        "LockedUntil__c": None,
        "Fence__c": record.fence + 1,
        "ScheduledAfter__c": None,
        "Error__c": write_error(code, text, exhausted=state is State.DEAD),
    }


def _reclaimed(record: Record, state: State, code: str) -> Reclaimed:
    return Reclaimed(
        job_id=record.job_id,
        name=JOB_NAME,
        queue=QUEUE,
        tenant=None,
        correlation_id=record.correlation_id,
        attempt=record.attempts,
        fence=record.fence + 1,
        state=state,
        worker=record.locked_by,
        error_code=code,
    )
