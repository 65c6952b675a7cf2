"""Record and list who did what. Entries can't be changed or deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.domain.audit import Actor, AuditEntry, AuditFilter, AuditPage, Outcome
from holdfast.domain.errors import ConfigurationError, NotInThisStore
from holdfast.domain.limits import PAGE_ROWS_MAX
from holdfast.domain.secrets import masked
from holdfast.domain.texts import check_name, check_range, check_text, storable_text
from holdfast.domain.times import EARLIEST, LATEST, check_time
from holdfast.operations.desk import Desk
from holdfast.operations.own_tables import OwnTables
from holdfast.runtime.blocking import blocking

TARGET_CHARS_MAX: Final = 500
_FIRST: Final = UUID(int=0)
_LAST: Final = UUID(int=2**128 - 1)
# On SQLite, the process that adds an entry makes its ID, a moment before the time of the entry.
_ID_SLACK: Final = timedelta(minutes=1)


class Audit:
    """`hf.audit`: record and list who did what, when, from where, and to how many jobs."""

    def __init__(self, desk: Desk, own: OwnTables) -> None:
        self._desk = desk
        self._own = own
        self._run_sync = desk.run_sync

    async def record(
        self,
        by: str | Actor,
        action: str,
        target: str | None = None,
        *,
        jobs: int = 1,
        because: str | None = None,
        outcome: Outcome = "allowed",
    ) -> None:
        """Add an entry: `await hf.audit.record("ann", "queue.pause", "images", jobs=0)`.

        Record before you act, so that nothing happens without an entry.
        """
        if self._desk.settings.read_only:
            raise NotInThisStore("the database is open for reading only")
        async with self._own.transaction() as (connection, _):
            await self.record_on(
                connection, by, action, target, jobs=jobs, because=because, outcome=outcome
            )

    async def record_on(
        self,
        connection: Any,
        by: str | Actor,
        action: str,
        target: str | None = None,
        *,
        jobs: int = 1,
        because: str | None = None,
        outcome: Outcome = "allowed",
    ) -> None:
        """Add an entry on the connection of an `hf.transaction()`, to commit it with the change."""
        actor = Actor.of(by)
        check_name("actor", actor.name)
        check_name("action", action)
        if because is not None:
            check_name("reason", because)
        await (await self._own.on(connection)).execute(
            "insert_audit_entry",
            id=self._desk.new_id(),
            actor=actor.name,
            key_id=actor.key_id,
            tenant=actor.tenant,
            action=action,
            outcome=outcome,
            target=None if target is None else storable_text(masked(target), TARGET_CHARS_MAX),
            jobs=jobs,
            address=actor.address,
            correlation_id=actor.correlation_id,
            because=because,
        )

    async def list(
        self, filter: AuditFilter | None = None, limit: int = 50, after: UUID | None = None
    ) -> AuditPage:
        """Return a page of the entries that match, newest first.

        To get the next page, pass the `after` of this one.
        """
        check_range("limit", limit, 1, PAGE_ROWS_MAX, int, ConfigurationError)
        values = _values(filter or AuditFilter())
        values["before"] = min(after or _LAST, values["before"])
        async with self._own.transaction(read_only=True) as (_, statements):
            entries = await statements.all(
                "audit_log_newest_first", AuditEntry, rows=limit + 1, **values
            )
        page = entries[:limit]
        return AuditPage(page, page[-1].id if len(entries) > limit else None)

    async def export(
        self, filter: AuditFilter | None = None, after: UUID | None = None
    ) -> AsyncIterator[AuditEntry]:
        """Yield all entries that match, oldest first, or those after the entry with this ID.

        Reads a page at a time, so that a log of any length fits into memory.
        """
        values = _values(filter or AuditFilter())
        values["after"] = max(after or _FIRST, values["after"])
        while True:
            async with self._own.transaction(read_only=True) as (_, statements):
                entries = await statements.all(
                    "audit_log_oldest_first", AuditEntry, rows=PAGE_ROWS_MAX, **values
                )
            for entry in entries:
                yield entry
            if len(entries) < PAGE_ROWS_MAX:
                return
            values["after"] = entries[-1].id

    record_sync = blocking(record)
    list_sync = blocking(list)


def _values(filter: AuditFilter) -> dict[str, Any]:
    """The parameters of the statements: what was asked for, and the IDs that can match it."""
    for name in ("actor", "key_id", "tenant", "action", "target", "outcome"):
        check_text(name, getattr(filter, name))
    since, until = filter.since or EARLIEST, filter.until or LATEST
    check_time("since", since)
    check_time("until", until)
    return {
        **msgspec.structs.asdict(filter),
        "since": since,
        "until": until,
        "after": _id_at(since - _ID_SLACK) if filter.since else _FIRST,
        "before": _id_at(until + _ID_SLACK) if filter.until else _LAST,
    }


def _id_at(moment: datetime) -> UUID:
    """The first ID that can be made at this time. IDs begin with the milliseconds."""
    return UUID(int=max(int(moment.timestamp() * 1000), 0) << 80)
