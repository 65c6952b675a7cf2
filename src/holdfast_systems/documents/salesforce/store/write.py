"""Compare-and-set on records.

Every write raises LockVersion__c by one, and a validation rule of the organization refuses any
that does not raise it by exactly one: of two who read the same record and write, one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from holdfast.store_api import StoreUnavailable, load, read_sql
from holdfast_systems.documents.salesforce.client import Salesforce, SalesforceRefused, bind
from holdfast_systems.documents.salesforce.client.ids import is_record_id
from holdfast_systems.documents.salesforce.client.limits import RECORDS_IN_CALL_MAX
from holdfast_systems.documents.salesforce.client.rest import PASSING_CODES
from holdfast_systems.documents.salesforce.store.limits import WRITE_TRIES_MAX
from holdfast_systems.documents.salesforce.store.records import (
    OBJECT,
    Fields,
    Record,
    read_record,
)

QUERIES = load(read_sql(__package__, "queries.sql"), numbered=False)

NO_RECORD: Final = "0" * 15
_RULE = "FIELD_CUSTOM_VALIDATION_EXCEPTION"
# The record was written, locked or deleted by somebody since it was read.
_WORTH_A_LOOK = PASSING_CODES | {_RULE, "ENTITY_IS_DELETED", "NOT_FOUND"}

Change = tuple[Record, Fields]
Decide = Callable[[Record], Fields | None]


class Outcome(NamedTuple):
    """Records by their id, as they were read: those that were changed, and those let alone."""

    changed: dict[str, Record]
    left: dict[str, Record]


class Look(NamedTuple):
    """What a query found: records, and the ids of those that can't be read."""

    records: list[Record]
    unreadable: list[str]


class Records:
    """The organization's records, as this store reads and writes them."""

    def __init__(self, salesforce: Salesforce) -> None:
        self.salesforce = salesforce

    async def check(self) -> None:
        """Ask for every field; a refusal says what the organization lacks."""
        await self.salesforce.query(bind(QUERIES["records"].sql, {"ids": [NO_RECORD]}))

    async def find(self, query: str, **values: object) -> list[Record]:
        return (await self.look(query, **values)).records

    async def look(self, query: str, **values: object) -> Look:
        """Read each row for itself: one that can't be used keeps nobody from the others."""
        with asking():
            rows = await self.salesforce.query(bind(QUERIES[query].sql, values))
        read = [(row.get("Id"), read_record(row)) for row in rows]
        return Look(
            [record for _, record in read if record is not None],
            [row_id for row_id, record in read if record is None and is_record_id(row_id)],
        )

    async def count(self, query: str, **values: object) -> int:
        with asking():
            return await self.salesforce.count(bind(QUERIES[query].sql, values))

    async def write(self, changes: Sequence[Change]) -> list[SalesforceRefused | None]:
        """Write each change unless somebody wrote the record since it was read; answer for each
        why it was refused."""
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
        """Write what `decide` says of each record, anew where somebody wrote in between.

        The outcome also tells what was written before an error.
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
                if refusal.code not in _WORTH_A_LOOK:
                    raise refusal
            if not refused:
                return
            ids = list(refused)
        record, refusal = next(iter(refused.values()))
        raise StoreUnavailable(
            f"{len(refused)} records could not be written in {WRITE_TRIES_MAX} tries;"
            f" {record.id}: {refusal}"
        )


def _check_race(record: Record, before: tuple[Record, SalesforceRefused] | None) -> None:
    """A rule that refuses although nobody wrote in between is another one than ours."""
    if before and before[0].raised_version == record.raised_version and before[1].code == _RULE:
        raise before[1]


@contextmanager
def asking() -> Iterator[None]:
    """A call that no value of a job is part of is refused for reasons that may pass: a right that
    was taken away, or something else than Salesforce that answers."""
    try:
        yield
    except SalesforceRefused as error:
        raise StoreUnavailable(str(error)) from error
