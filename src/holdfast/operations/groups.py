"""Read the groups of errors, and note what becomes of them."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.domain.errors import BadArguments, ConfigurationError, ErrorGroupNotFound
from holdfast.domain.fingerprint import is_fingerprint
from holdfast.domain.groups import (
    ErrorGroup,
    GroupCounts,
    GroupFilter,
    GroupJob,
    GroupJobs,
    GroupOrder,
    GroupPage,
    GroupState,
    GroupVerb,
    changed,
)
from holdfast.domain.limits import (
    GROUP_TENANTS_MAX,
    GROUPS_CHANGED_MAX,
    GROUPS_COUNTED_MAX,
    GROUPS_PAGE_LOOK_MAX,
    PAGE_ROWS_MAX,
)
from holdfast.domain.scope import scope
from holdfast.domain.texts import check_name, check_range, check_text
from holdfast.operations.desk import check_operator
from holdfast.operations.group_rows import (
    ALL_TENANTS,
    CountRow,
    EndRow,
    GroupKey,
    GroupRow,
    PlacedRow,
    PlaceRow,
    key_values,
)
from holdfast.operations.jobs import Jobs
from holdfast.operations.own_tables import OwnTables
from holdfast.stores.protocol import Requeues, capability
from holdfast.transactions.tables import Statements

BEHIND_SECONDS: Final = 60
_LAST: Final = UUID(int=2**128 - 1)
_BY_ORDER: Final = {
    GroupOrder.RECENT: "recent_error_groups",
    GroupOrder.LARGEST: "largest_error_groups",
}
# The microseconds of a time near the last one that databases know; more than any number of jobs.
_PLACE_MAX: Final = 253_370_000_000_000_000
_AFTER_ALL: Final = "g"
_LIFE: Final = ("state", "state_since", "state_by", "note", "resolved_in")


class Groups:
    """The groups of a tenant, or those of all tenants together."""

    def __init__(self, jobs: Jobs, own: OwnTables) -> None:
        self._jobs = jobs
        self._desk = jobs._desk
        self._own = own
        self._tenant = jobs._tenant
        self._of = ALL_TENANTS if jobs._tenant is None else jobs._tenant

    async def list(
        self, filter: GroupFilter, limit: int, after: UUID | None, order: GroupOrder
    ) -> GroupPage:
        check_range("limit", limit, 1, PAGE_ROWS_MAX, int, ConfigurationError)
        _check_filter(filter)
        values = msgspec.structs.asdict(filter)
        values["code"] = values.pop("error_code")
        place, last = _read_place(after)
        finds_all = filter == GroupFilter()
        with scope(self._tenant):
            async with self._own.transaction(read_only=True) as (_, statements):
                rows = await statements.all(
                    _BY_ORDER[order],
                    PlacedRow,
                    tenant=self._of,
                    place=place,
                    after=last,
                    look_max=limit + 1 if finds_all else GROUPS_PAGE_LOOK_MAX,
                    rows_max=limit + 1,
                    **values,
                )
                matches = [row for row in rows if row.is_match]
                shown = matches[:limit]
                groups = await self._found(statements, [row.fingerprint for row in shown])
        following: PlacedRow | None
        if len(matches) > limit:
            following = shown[-1]
        else:
            following = rows[-1] if rows and rows[-1].is_last else None
        return GroupPage(
            [groups[row.fingerprint] for row in shown if row.fingerprint in groups],
            None if following is None else _make_place(following),
        )

    async def get(self, fingerprint: str) -> ErrorGroup:
        _check_fingerprint(fingerprint)
        with scope(self._tenant):
            async with self._own.transaction(read_only=True) as (_, statements):
                return await self._get(statements, fingerprint)

    async def with_states(self, groups: Sequence[ErrorGroup]) -> builtins.list[ErrorGroup]:
        """These groups with the states of those in the tables."""
        with scope(self._tenant):
            async with self._own.transaction(read_only=True) as (_, statements):
                known = await self._found(statements, [group.fingerprint for group in groups])
        return [
            msgspec.structs.replace(
                group, **{name: getattr(known[group.fingerprint], name) for name in _LIFE}
            )
            if group.fingerprint in known
            else group
            for group in groups
        ]

    async def jobs(self, fingerprint: str, limit: int, after: UUID | None) -> GroupJobs:
        check_range("limit", limit, 1, PAGE_ROWS_MAX, int, ConfigurationError)
        _check_fingerprint(fingerprint)
        with scope(self._tenant):
            async with self._own.transaction(read_only=True) as (_, statements):
                found = await jobs_of_group(statements, fingerprint, self._tenant, after, limit + 1)
            shown = found[:limit]
            store = capability(await self._desk.store(), Requeues)
            known = {} if store is None else await store.requeued([job.job_id for job in shown])
        jobs = [msgspec.structs.replace(job, requeued_as=known.get(job.job_id)) for job in shown]
        return GroupJobs(jobs, jobs[-1].job_id if len(found) > limit else None)

    async def counts(self) -> GroupCounts:
        with scope(self._tenant):
            async with self._own.transaction(read_only=True) as (_, statements):
                rows = await statements.all(
                    "error_group_counts",
                    CountRow,
                    tenant=self._of,
                    look_max=GROUPS_COUNTED_MAX,
                )
        counts = {row.state: row.error_groups for row in rows}
        return GroupCounts(
            {state: counts.get(state, 0) for state in GroupState},
            sum(counts.values()) == GROUPS_COUNTED_MAX,
        )

    async def behind_since(self) -> datetime | None:
        with scope(self._tenant):
            async with self._own.transaction(read_only=True) as (_, statements):
                place = await statements.one("error_group_place", PlaceRow, name="newest")
                assert place is not None
                row = await statements.one(
                    "oldest_uncounted_failure",
                    EndRow,
                    ended_at=place.ended_at,
                    job_id=place.job_id,
                    seconds=BEHIND_SECONDS,
                )
        return None if row is None else row.ended_at

    async def change(
        self,
        verb: GroupVerb,
        fingerprints: Sequence[str],
        *,
        by: str | None,
        note: str | None,
        version: str | None = None,
        connection: Any = None,
    ) -> builtins.list[ErrorGroup]:
        """Change all of these groups, or none. They are locked in the order in which the fold locks
        them."""
        check_operator(by, None)
        for kind, text in (("note", note), ("version", version)):
            if text is not None:
                check_name(kind, text)
        wanted = sorted(set(fingerprints))
        if not 0 < len(wanted) <= GROUPS_CHANGED_MAX:
            raise BadArguments(f"name 1 to {GROUPS_CHANGED_MAX} error groups, not {len(wanted)}")
        for fingerprint in wanted:
            _check_fingerprint(fingerprint)
        with scope(self._tenant):
            async with self._own.joined(connection) as statements:
                for fingerprint in wanted:
                    await self._change(statements, verb, fingerprint, by, note, version)
                known = await self._found(statements, wanted)
        return [known[fingerprint] for fingerprint in wanted]

    async def _change(
        self,
        statements: Statements,
        verb: GroupVerb,
        fingerprint: str,
        by: str | None,
        note: str | None,
        version: str | None,
    ) -> None:
        key = GroupKey(self._of, fingerprint)
        rows = await statements.all("locked_error_groups", GroupRow, keys=key_values([key]))
        if not rows:
            raise _not_found(fingerprint)
        place = await statements.one("error_group_place", PlaceRow, name="newest")
        assert place is not None
        after = changed(rows[0].group(), verb, now=place.read_at, by=by, note=note, version=version)
        await statements.execute(
            "change_error_group",
            **key._asdict(),
            **{name: getattr(after, name) for name in _LIFE},
        )

    async def _get(self, statements: Statements, fingerprint: str) -> ErrorGroup:
        found = await self._found(statements, [fingerprint])
        if fingerprint not in found:
            raise _not_found(fingerprint)
        return found[fingerprint]

    async def _found(
        self, statements: Statements, fingerprints: Sequence[str]
    ) -> dict[str, ErrorGroup]:
        rows = await find_groups(statements, self._of, fingerprints)
        return {fingerprint: row.group() for fingerprint, row in rows.items()}


async def find_groups(
    statements: Statements, tenant: str, fingerprints: Sequence[str]
) -> dict[str, GroupRow]:
    rows = await statements.all(
        "find_error_groups",
        GroupRow,
        tenant=tenant,
        fingerprints=msgspec.json.encode(fingerprints).decode(),
        tenants_max=GROUP_TENANTS_MAX,
    )
    return {row.fingerprint: row for row in rows}


async def jobs_of_group(
    statements: Statements, fingerprint: str, tenant: str | None, after: UUID | None, rows_max: int
) -> list[GroupJob]:
    values = {"fingerprint": fingerprint, "before": after or _LAST, "rows_max": rows_max}
    if tenant is None:
        return await statements.all("jobs_of_error_group", GroupJob, **values)
    return await statements.all("jobs_of_error_group_and_tenant", GroupJob, tenant=tenant, **values)


def _check_fingerprint(fingerprint: str) -> None:
    check_text("fingerprint", fingerprint)
    if not is_fingerprint(fingerprint):
        raise _not_found(fingerprint)


def _not_found(fingerprint: str) -> ErrorGroupNotFound:
    return ErrorGroupNotFound(f"error group {fingerprint} does not exist")


def _check_filter(filter: GroupFilter) -> None:
    for name in ("queue", "name", "error_code", "text"):
        check_text(name, getattr(filter, name))


def _make_place(row: PlacedRow) -> UUID:
    """Where the next page starts, in the form of other lists' places."""
    return UUID(bytes=row.place.to_bytes(8) + bytes.fromhex(row.fingerprint).rjust(8, b"\0"))


def _read_place(after: UUID | None) -> tuple[int, str]:
    if after is None:
        return _PLACE_MAX, _AFTER_ALL
    return min(int.from_bytes(after.bytes[:8]), _PLACE_MAX), after.bytes[10:].hex()
