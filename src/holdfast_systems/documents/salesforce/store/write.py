"""Compare-and-set on records.

Every write raises LockVersion__c by one, and a validation rule in the organization refuses any
other write. If two workers read the same record and write it, one of them is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from holdfast.store_api import StoreUnavailable, load, read_sql
from holdfast_systems.documents.salesforce.client import Salesforce, SalesforceRefused, bind
from holdfast_systems.documents.salesforce.client.ids import is_record_id
from holdfast_systems.documents.salesforce.client.limits import RECORDS_IN_CALL_MAX
from holdfast_systems.documents.salesforce.client.rest import TRANSIENT_CODES
from holdfast_systems.documents.salesforce.store.limits import WRITE_TRIES_MAX
from holdfast_systems.documents.salesforce.store.records import OBJECT, Fields, Record, read_record

QUERIES = load(read_sql(__package__, "queries.sql"), numbered=False)

NO_RECORD: Final = "0" * 15
_RULE = "FIELD_CUSTOM_VALIDATION_EXCEPTION"
# Somebody wrote, locked or deleted the record after it was read: read it again.
_RACE_CODES = TRANSIENT_CODES | {_RULE, "ENTITY_IS_DELETED", "NOT_FOUND"}

Change = tuple[Record, Fields]
Decide = Callable[[Record], Fields | None]


class Outcome(NamedTuple):
    """Records by id, as they were read: those that were changed, and those left alone."""

    changed: dict[str, Record]
    left: dict[str, Record]


class Found(NamedTuple):
    """What a query found: records, and the ids of those that can't be read."""

    records: list[Record]
    unreadable: list[str]


class Records:
    """Reads and writes the organization's records."""

    def __init__(self, salesforce: Salesforce, max_attempts: int) -> None:
        self.salesforce = salesforce
        self.max_attempts = max_attempts

    async def check(self) -> None:
        """Query every field; Salesforce's refusal names one that is missing."""
        await self.salesforce.query(bind(QUERIES["records"].sql, {"ids": [NO_RECORD]}))

    async def find(self, query: str, **values: object) -> list[Record]:
        return (await self.read(query, **values)).records

    async def read(self, query: str, **values: object) -> Found:
        """Read each row separately, so that an unusable one doesn't block the others."""
        with as_unavailable():
            rows = await self.salesforce.query(bind(QUERIES[query].sql, values))
        read = [(row.get("Id"), read_record(row)) for row in rows]
        return Found(
            [record for _, record in read if record is not None],
            [row_id for row_id, record in read if record is None and is_record_id(row_id)],
        )

    async def count(self, query: str, **values: object) -> int:
        with as_unavailable():
            return await self.salesforce.count(bind(QUERIES[query].sql, values))

    async def write(self, changes: Sequence[Change]) -> list[SalesforceRefused | None]:
        """Write each change unless somebody else wrote the record after it was read; return for
        each why it was refused, or None."""
        refusals: list[SalesforceRefused | None] = []
        for start in range(0, len(changes), RECORDS_IN_CALL_MAX):
            bodies = [
                {"Id": record.id, **fields, "LockVersion__c": record.raised_version}
                for record, fields in changes[start : start + RECORDS_IN_CALL_MAX]
            ]
            written = await self.salesforce.update_each(OBJECT, bodies)
            refusals += [each.refusal for each in written]
        return refusals

    async def change(self, ids: Sequence[str], decide: Decide, outcome: Outcome) -> None:
        """Write what `decide` returns for each record; decide again if somebody else wrote first.

        After an error, the outcome has what was written before it.
        """
        for start in range(0, len(ids), RECORDS_IN_CALL_MAX):
            await self._change(ids[start : start + RECORDS_IN_CALL_MAX], decide, outcome)

    async def _change(self, ids: Sequence[str], decide: Decide, outcome: Outcome) -> None:
        refused: dict[str, tuple[Record, SalesforceRefused]] = {}
        for _ in range(WRITE_TRIES_MAX):
            changes: list[Change] = []
            for record in await self.find("standing", ids=list(ids)):
                _check_race(record, refused.get(record.id))
                fields = decide(record)
                if fields is None:
                    outcome.left[record.id] = record
                else:
                    changes.append((record, fields))
            refused = {}
            for (record, _), refusal in zip(changes, await self.write(changes), strict=True):
                if refusal is None:
                    outcome.changed[record.id] = record
                else:
                    refused[record.id] = record, refusal
            for _, refusal in refused.values():
                if refusal.code not in _RACE_CODES:
                    raise refusal
            if not refused:
                return
            ids = list(refused)
        record, refusal = next(iter(refused.values()))
        raise StoreUnavailable(
            f"{len(refused)} records could not be written in {WRITE_TRIES_MAX} tries, among them"
            f" {record.id}: {refusal}"
        )


def _check_race(record: Record, before: tuple[Record, SalesforceRefused] | None) -> None:
    """Raise if a validation rule refused although nobody wrote: that rule is not ours."""
    if before and before[0].raised_version == record.raised_version and before[1].code == _RULE:
        raise before[1]


@contextmanager
def as_unavailable() -> Iterator[None]:
    """Treat a refusal as temporary. The call has no values of a job in it, so the reason is a
    missing permission, or a server that is not Salesforce."""
    try:
        yield
    except SalesforceRefused as error:
        raise StoreUnavailable(str(error)) from error
