"""New records, and the request hashes that keep them from being created twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.store_api import BadArguments, IdempotencyConflict, NewJob, Receipt, StoreUnavailable
from holdfast_systems.documents.salesforce.client.ids import job_id_of
from holdfast_systems.documents.salesforce.client.limits import RECORDS_IN_CALL_MAX
from holdfast_systems.documents.salesforce.store.limits import HASHES_IN_QUERY_MAX, WRITE_TRIES_MAX
from holdfast_systems.documents.salesforce.store.records import (
    OBJECT,
    Fields,
    Record,
    new_fields,
    same_body,
)
from holdfast_systems.documents.salesforce.store.write import Records

Wanted = Sequence[tuple[NewJob, Fields]]

_HASH = "RequestHash__c"
_DUPLICATE = "DUPLICATE_VALUE"
_ROLLED_BACK = "ALL_OR_NONE_OPERATION_ROLLED_BACK"


async def enqueue(records: Records, jobs: Sequence[NewJob]) -> list[Receipt]:
    """Create all records or none; a job whose hash exists gets the receipt of that record."""
    if len(jobs) > RECORDS_IN_CALL_MAX:
        raise BadArguments(
            f"{len(jobs)} jobs are too many for one call: Salesforce creates at most"
            f" {RECORDS_IN_CALL_MAX} records at once, all or none"
        )
    now = records.salesforce.now()
    wanted = [(job, new_fields(job, now)) for job in jobs]
    hashes = [fields[_HASH] for job, fields in wanted if job.idempotency_key]
    for _ in range(WRITE_TRIES_MAX):
        existing = await _existing(records, hashes)
        _refuse_conflicts(wanted, existing)
        missing = {fields[_HASH]: fields for _, fields in wanted if fields[_HASH] not in existing}
        created = await _create(records, missing)
        if created is not None:
            return _receipts(wanted, created, existing)
    raise StoreUnavailable("others keep creating and deleting records with the same hashes")


async def _existing(records: Records, hashes: Sequence[str]) -> dict[str, Record]:
    found: list[Record] = []
    for start in range(0, len(hashes), HASHES_IN_QUERY_MAX):
        part = hashes[start : start + HASHES_IN_QUERY_MAX]
        found += await records.find("records_of_hashes", hashes=part)
    return {record.hash: record for record in found}


async def _create(records: Records, missing: Mapping[str, Fields]) -> dict[str, str] | None:
    """Return the new ids by their hashes; None if somebody else has just created one."""
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


def _refuse_conflicts(wanted: Wanted, existing: Mapping[str, Record]) -> None:
    first: dict[str, NewJob] = {}
    for job, fields in wanted:
        record = existing.get(fields[_HASH])
        if record is not None and not same_body(record, fields):
            raise IdempotencyConflict(job.idempotency_key or "", record.job_id)
        before = first.setdefault(fields[_HASH], job)
        if before.body_hash != job.body_hash:
            raise IdempotencyConflict(job.idempotency_key or "", before.id)


def _receipts(
    wanted: Wanted, created: Mapping[str, str], existing: Mapping[str, Record]
) -> list[Receipt]:
    """Return one receipt for each job; of two jobs with the same hash, only the first is new."""
    ids = {request_hash: record.job_id for request_hash, record in existing.items()}
    ids |= {request_hash: job_id_of(record_id) for request_hash, record_id in created.items()}
    seen = set(existing)
    receipts = []
    for _, fields in wanted:
        request_hash = fields[_HASH]
        receipts.append(Receipt(ids[request_hash], request_hash not in seen))
        seen.add(request_hash)
    return receipts
