"""New records, and the request hashes that keep them from being created twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from holdfast.store_api import BadArguments, IdempotencyConflict, NewJob, Receipt, StoreUnavailable
from holdfast_systems.documents.salesforce.client.ids import job_id_of
from holdfast_systems.documents.salesforce.client.limits import RECORDS_IN_CALL_MAX
from holdfast_systems.documents.salesforce.store.limits import (
    HASHES_IN_QUERY_MAX,
    WRITE_TRIES_MAX,
)
from holdfast_systems.documents.salesforce.store.records import (
    OBJECT,
    Fields,
    Record,
    new_fields,
    same_body,
)
from holdfast_systems.documents.salesforce.store.write import Records

_DUPLICATE = "DUPLICATE_VALUE"
_ROLLED_BACK = "ALL_OR_NONE_OPERATION_ROLLED_BACK"


async def enqueue(records: Records, jobs: Sequence[NewJob]) -> list[Receipt]:
    """Create all or none; a hash that exists already gives the receipt of its record."""
    if len(jobs) > RECORDS_IN_CALL_MAX:
        raise BadArguments(
            f"Salesforce creates {RECORDS_IN_CALL_MAX} records at once, all or none;"
            f" {len(jobs)} are too many"
        )
    now = records.salesforce.now()
    wanted = {job.id: new_fields(job, now) for job in jobs}
    hashes = [wanted[job.id]["RequestHash__c"] for job in jobs if job.idempotency_key]
    for _ in range(WRITE_TRIES_MAX):
        existing = await _existing(records, hashes)
        _refuse_conflicts(jobs, wanted, existing)
        missing = {
            fields["RequestHash__c"]: fields
            for fields in wanted.values()
            if fields["RequestHash__c"] not in existing
        }
        created = await _create(records, missing)
        if created is not None:
            return _receipts(jobs, wanted, created, existing)
    raise StoreUnavailable("others keep creating and deleting records with the same hashes")


async def _existing(records: Records, hashes: Sequence[str]) -> dict[str, Record]:
    found: list[Record] = []
    for start in range(0, len(hashes), HASHES_IN_QUERY_MAX):
        part = hashes[start : start + HASHES_IN_QUERY_MAX]
        found += await records.find("records_of_hashes", hashes=part)
    return {record.hash: record for record in found}


async def _create(records: Records, missing: Mapping[str, Fields]) -> dict[str, str] | None:
    """Answer the new ids by their hashes; None if others created one of them in the meantime."""
    if not missing:
        return {}
    written = await records.salesforce.insert_all(OBJECT, list(missing.values()))
    refusals = [each.refusal for each in written if each.refusal is not None]
    if any(refusal.code == _DUPLICATE for refusal in refusals):
        return None
    if refusals:
        raise next((each for each in refusals if each.code != _ROLLED_BACK), refusals[0])
    return {
        request_hash: each.id
        for request_hash, each in zip(missing, written, strict=True)
        if each.id
    }


def _refuse_conflicts(
    jobs: Sequence[NewJob], wanted: Mapping[UUID, Fields], existing: Mapping[str, Record]
) -> None:
    first: dict[str, NewJob] = {}
    for job in jobs:
        fields = wanted[job.id]
        record = existing.get(fields["RequestHash__c"])
        if record is not None and not same_body(record, fields):
            raise IdempotencyConflict(job.idempotency_key or "", record.job_id)
        before = first.setdefault(fields["RequestHash__c"], job)
        if before.body_hash != job.body_hash:
            raise IdempotencyConflict(job.idempotency_key or "", before.id)


def _receipts(
    jobs: Sequence[NewJob],
    wanted: Mapping[UUID, Fields],
    created: dict[str, str],
    existing: Mapping[str, Record],
) -> list[Receipt]:
    receipts = []
    told: set[str] = set()
    for job in jobs:
        request_hash = wanted[job.id]["RequestHash__c"]
        if request_hash in created:
            new = request_hash not in told
            receipts.append(Receipt(job_id_of(created[request_hash]), new))
        else:
            receipts.append(Receipt(existing[request_hash].job_id, False))
        told.add(request_hash)
    return receipts
