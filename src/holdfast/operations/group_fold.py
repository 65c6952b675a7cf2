"""Keep the groups of errors up to date: fold the jobs that died or failed into them.

Any number of processes may do this. A step reads the next jobs by the times of their ends, and then
one transaction adds them to the groups' jobs, counts those that were not there yet, and advances
the place in the history. So each job is counted once, whatever crashes: a step whose place another
one has advanced writes nothing, and a job that is read again is already there.

Commits don't come in the order of these times: a job's end has the time at which its transaction
began. The place therefore stays OVERLAP_SECONDS behind the clock, and what lies between is read
again. A second place walks through the whole history again and again. It finds the jobs of
transactions that took longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from holdfast.domain.groups import ErrorGroup, Failure, grown, shrunk
from holdfast.domain.limits import GROUP_RESOLVED_SECONDS, GROUP_STEP_JOBS_MAX, TIDY_ROWS_MAX
from holdfast.domain.scope import all_tenants
from holdfast.domain.times import EARLIEST
from holdfast.operations.bulk_rows import JobIdRow
from holdfast.operations.group_rows import (
    ALL_TENANTS,
    FailureRow,
    GroupKey,
    GroupRow,
    KeyRow,
    PlaceRow,
    group_values,
    job_values,
    key_values,
)
from holdfast.operations.own_tables import OwnTables
from holdfast.transactions.tables import Statements

OVERLAP_SECONDS: Final = 5.0
FORGET_AFTER_SECONDS: Final = 3600.0
_STEPS_MAX: Final = 1000
_FIRST: Final = UUID(int=0)

Place = Literal["newest", "late"]
Position = tuple[datetime, UUID]


class GroupFold:
    """What keeps the groups up to date, for all tenants."""

    def __init__(self, own: OwnTables) -> None:
        self._own = own

    async def catch_up(self) -> None:
        """Count all jobs that have ended by now, in as many steps as it takes."""
        for _ in range(_STEPS_MAX):
            if await self.newest() < GROUP_STEP_JOBS_MAX:
                return

    async def newest(self) -> int:
        """Count the next jobs; return how many. GROUP_STEP_JOBS_MAX means there may be more."""
        with all_tenants():
            place, rows = await self._look("newest", "uncounted_failures")
            if rows:
                settled = (place.read_at - timedelta(seconds=OVERLAP_SECONDS), _FIRST)
                end = _end_of(rows) if len(rows) == GROUP_STEP_JOBS_MAX else settled
                await self._write("newest", place, max(_position(place), min(end, settled)), rows)
        return len(rows)

    async def late(self) -> bool:
        """Count the jobs that were missed among the next ones. Return False if it has reached the
        end of the history: the next step starts again at its beginning."""
        with all_tenants():
            place, rows = await self._look("late", "failures_after")
            goes_on = bool(rows) and rows[-1].is_last
            end = _end_of(rows) if goes_on else (EARLIEST, _FIRST)
            uncounted = [row for row in rows if not row.is_counted]
            if uncounted or end != _position(place):
                await self._write("late", place, end, uncounted)
        return goes_on

    async def forget(self) -> int:
        """Subtract jobs that have left the history from their groups, and delete groups that have
        none. Fewer than TIDY_ROWS_MAX means that all are deleted."""
        with all_tenants():
            async with self._own.transaction() as (_, statements):
                await statements.execute("hold_error_group_place", name="newest")
                gone = await statements.all(
                    "forget_error_group_jobs",
                    KeyRow,
                    after_seconds=FORGET_AFTER_SECONDS,
                    rows_max=TIDY_ROWS_MAX,
                )
                await self._shrink(statements, gone)
                deleted = await statements.execute(
                    "forget_error_groups",
                    resolved_seconds=float(GROUP_RESOLVED_SECONDS),
                    rows_max=TIDY_ROWS_MAX,
                )
        return max(len(gone), deleted)

    async def _look(self, name: Place, statement: str) -> tuple[PlaceRow, list[FailureRow]]:
        async with self._own.transaction(read_only=True) as (_, statements):
            place = await statements.one("error_group_place", PlaceRow, name=name)
            assert place is not None
            ended_at, job_id = _position(place)
            rows = await statements.all(
                statement,
                FailureRow,
                ended_at=ended_at,
                job_id=job_id,
                look_max=GROUP_STEP_JOBS_MAX,
            )
        return place, rows

    async def _write(
        self, name: Place, place: PlaceRow, end: Position, rows: Sequence[FailureRow]
    ) -> None:
        async with self._own.transaction() as (_, statements):
            await self._record(statements, name, place, end, rows)

    async def _record(
        self,
        statements: Statements,
        name: Place,
        place: PlaceRow,
        end: Position,
        rows: Sequence[FailureRow],
    ) -> None:
        # Both lock a row, so that there is one step at a time.
        if not await statements.execute(
            "advance_error_group_place",
            name=name,
            ended_at=end[0],
            job_id=end[1],
            turn=place.turn,
        ):
            return
        if name != "newest":
            await statements.execute("hold_error_group_place", name="newest")
        failures = {row.job_id: (row, row.failure()) for row in rows}
        added = await statements.all(
            "insert_error_group_jobs", JobIdRow, jobs=job_values(failures.values())
        )
        await self._grow(statements, [failures[row.job_id][1] for row in added])

    async def _grow(self, statements: Statements, failures: Sequence[Failure]) -> None:
        keys = {key for failure in failures for key in _keys(failure.tenant, failure.fingerprint)}
        groups: dict[GroupKey, ErrorGroup | None] = dict.fromkeys(keys)
        groups.update(await self._locked(statements, keys))
        for failure in sorted(failures, key=lambda failure: failure.ended_at):
            for key in _keys(failure.tenant, failure.fingerprint):
                groups[key] = grown(groups[key], failure)
        await self._save(statements, groups)

    async def _shrink(self, statements: Statements, gone: Sequence[KeyRow]) -> None:
        jobs = Counter(key for row in gone for key in _keys(row.tenant, row.fingerprint))
        known = await self._locked(statements, jobs)
        await self._save(
            statements, {key: shrunk(group, jobs[key]) for key, group in known.items()}
        )

    async def _locked(
        self, statements: Statements, keys: Iterable[GroupKey]
    ) -> dict[GroupKey, ErrorGroup]:
        rows = await statements.all("locked_error_groups", GroupRow, keys=key_values(keys))
        return {row.key: row.group() for row in rows}

    async def _save(
        self, statements: Statements, groups: dict[GroupKey, ErrorGroup | None]
    ) -> None:
        known = [(key, group) for key, group in sorted(groups.items()) if group is not None]
        if known:
            await statements.execute("save_error_groups", groups=group_values(known))


def _keys(tenant: str, fingerprint: str) -> tuple[GroupKey, GroupKey]:
    """A job counts for its tenant, and for all tenants together."""
    return GroupKey(tenant, fingerprint), GroupKey(ALL_TENANTS, fingerprint)


def _position(place: PlaceRow) -> Position:
    return place.ended_at, place.job_id


def _end_of(rows: Sequence[FailureRow]) -> Position:
    return rows[-1].ended_at, rows[-1].job_id
