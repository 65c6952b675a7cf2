"""What anyone but the worker does to a record: reclaim, cancel, retry, requeue."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from holdfast.store_api import DEFAULT_TENANT, LIVE, Canceled, Reclaimed, State
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
    records: Records, limit: int, dead_worker: str | None, reason: str
) -> list[Reclaimed]:
    """Reclaim expired leases, or those of a dead worker, unless somebody else writes first."""
    if limit == 0:
        return []
    if dead_worker is None:
        found = await records.find("lapsed", now=records.salesforce.now(), limit=limit)
        code, reason = "LEASE_LOST", "stopped renewing its lease"
    else:
        found = await records.find("leased_by", worker=dead_worker, limit=limit)
        code = "CRASHED"
    changes: list[Change] = []
    taken: list[Reclaimed] = []
    for record in found:
        # Beside others it may be innocent, so it gets its last attempt back.
        is_last = record.attempts >= records.max_attempts
        state = State.DEAD if is_last and record.is_suspect else State.QUEUED
        is_given_back = is_last and state is State.QUEUED
        text = f"the worker {record.locked_by} {reason}"
        error = write_error(code, text, exhausted=state is State.DEAD)
        fields = record.unlocked(
            state,
            ScheduledAfter__c=None,
            Error__c=error,
            Attempts__c=record.attempts - is_given_back,
            Crashes__c=record.crashes + 1,
        )
        changes.append((record, fields))
        taken.append(_reclaimed(record, state, code))
    refusals = await records.write(changes)
    return [job for job, refusal in zip(taken, refusals, strict=True) if refusal is None]


async def cancel(
    records: Records, job_ids: Sequence[UUID], waiting_only: bool, reason: str | None
) -> list[Canceled]:
    stopped = {State.QUEUED} if waiting_only else LIVE

    def decide(record: Record) -> Fields | None:
        if record.state not in stopped:
            return None
        doing = "ran" if record.state is State.RUNNING else "waited"
        text = reason or f"the job was canceled while it {doing}"
        error = write_error("CANCELED", text, exhausted=False)
        return record.unlocked(State.CANCELED, Error__c=error)

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
    """Queue the same record again: its request hash is unique, so there can't be a second one."""

    def decide(record: Record) -> Fields | None:
        if record.state is None or record.state in LIVE:
            return None
        return {
            "Status__c": STATUSES[State.QUEUED],
            "Attempts__c": 0,
            "Releases__c": 0,
            "Snoozes__c": 0,
            "Crashes__c": 0,
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


def _reclaimed(record: Record, state: State, code: str) -> Reclaimed:
    return Reclaimed(
        job_id=record.job_id,
        name=JOB_NAME,
        queue=QUEUE,
        tenant=DEFAULT_TENANT,
        correlation_id=record.correlation_id,
        attempt=record.attempts,
        fence=record.fence + 1,
        state=state,
        worker=record.locked_by,
        error_code=code,
    )
