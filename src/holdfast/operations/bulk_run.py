"""Run bulk changes: lease one, change its jobs step by step, continue it after a crash.

Each step is one transaction: it locks the change's row, changes the next jobs, and advances
`done`. So each job is changed once, whatever crashes and however many runners there are. The lease
only keeps runners out of each other's way. The time of the next step is in the row, so that a
change keeps its rate when another runner takes over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from holdfast.domain.bulk import BulkAction, BulkState, Tally, next_step
from holdfast.domain.errors import (
    AlreadyRequeued,
    DuplicateJob,
    JobNotFound,
    StoreRefused,
    WrongState,
)
from holdfast.domain.limits import BULK_LEASE_SECONDS, BULK_STEP_JOBS_MAX, TIDY_ROWS_MAX
from holdfast.operations.bulk_rows import BulkRow, JobIdRow
from holdfast.operations.desk import Desk
from holdfast.operations.jobs import Jobs
from holdfast.operations.own_tables import OwnTables
from holdfast.operations.steps import Pace
from holdfast.transactions.tables import Statements

# SQLite reports only that some constraint failed, and a requeue blames the new ID.
REFUSED: Final = (StoreRefused, DuplicateJob)


class BulkLease(NamedTuple):
    """A runner's claim on a running change. Another runner that takes over has a higher fence."""

    change_id: UUID
    owner: str
    fence: int


class Step(NamedTuple):
    """One step: how many jobs it took, and when the next one is due. None means no next step: the
    change is completed, paused, canceled, or leased by another runner."""

    jobs: int
    wait_seconds: float | None


class _IdRow(msgspec.Struct, frozen=True):
    id: UUID


class BulkRuns:
    """What runners do to bulk changes, of all tenants."""

    def __init__(self, desk: Desk, own: OwnTables) -> None:
        self._desk = desk
        self._own = own

    async def claim(self, owner: str, changes_max: int) -> list[BulkLease]:
        """Lease changes that no runner has and whose next step is due, fairly among tenants."""
        async with self._own.transaction(read_only=True) as (_, statements):
            rows = await statements.all("due_bulk_changes", _IdRow, rows_max=changes_max)
        leases = [await self._claim(owner, row.id) for row in rows]
        return [lease for lease in leases if lease is not None]

    async def _claim(self, owner: str, change_id: UUID) -> BulkLease | None:
        async with self._own.transaction() as (_, statements):
            if not await statements.execute(
                "claim_bulk_change", id=change_id, owner=owner, lease_seconds=BULK_LEASE_SECONDS
            ):
                return None
            fence = await statements.value("fence_of_bulk_change", id=change_id)
        return BulkLease(change_id, owner, fence)

    async def step(self, lease: BulkLease) -> Step:
        """Renew the lease, and change the next jobs if they are due.

        A job that the database refuses rolls back its transaction, so it gets its own.
        """
        try:
            return await self._step(lease, BULK_STEP_JOBS_MAX)
        except REFUSED:
            try:
                return await self._step(lease, 1)
            except REFUSED:
                return await self._step(lease, 1, refused=True)

    async def _step(self, lease: BulkLease, jobs_max: int, *, refused: bool = False) -> Step:
        async with self._own.transaction() as (connection, statements):
            # This locks the row, so that there is one step at a time.
            if not await statements.execute(
                "renew_bulk_change", **lease_values(lease), lease_seconds=BULK_LEASE_SECONDS
            ):
                return Step(0, None)
            row = await statements.one("find_bulk_change", BulkRow, id=lease.change_id, tenant=None)
            assert row is not None
            assert row.next_step_at is not None
            early = (row.next_step_at - row.read_at).total_seconds()
            if early > 0:
                return Step(0, early)
            size = min(jobs_max, Pace(row.jobs_per_second, BULK_STEP_JOBS_MAX).step)
            job_ids = await self._next_jobs(statements, row, size)
            tally = Tally(refused=len(job_ids))
            if not refused:
                tally = await self._change(row, job_ids, connection)
            return await self._advance(statements, lease, row, tally)

    async def _next_jobs(self, statements: Statements, row: BulkRow, size: int) -> list[UUID]:
        rows = await statements.all(
            "jobs_of_bulk_change", JobIdRow, id=row.id, after=row.done, rows_max=size
        )
        return [each.job_id for each in rows]

    async def _change(self, row: BulkRow, job_ids: Sequence[UUID], connection: Any) -> Tally:
        async def change(jobs: Jobs) -> Tally:
            return Tally(**Counter([await _change_one(jobs, row, job_id) for job_id in job_ids]))

        return await Jobs(self._desk, row.tenant)._through(connection, row.action, change)

    async def _advance(
        self, statements: Statements, lease: BulkLease, row: BulkRow, tally: Tally
    ) -> Step:
        assert row.next_step_at is not None
        jobs = sum(tally)
        due = next_step(row.jobs_per_second, jobs, row.next_step_at, row.read_at)
        await statements.execute(
            "advance_bulk_change",
            **lease_values(lease),
            **tally._asdict(),
            jobs=jobs,
            done=row.done,
            next_step_at=due,
        )
        if row.done + jobs < row.total:
            return Step(jobs, max(0.0, (due - row.read_at).total_seconds()))
        await statements.execute(
            "end_bulk_change",
            id=row.id,
            source=BulkState.RUNNING,
            state=BulkState.COMPLETED,
            kept_seconds=self._desk.settings.history_kept_seconds,
        )
        return Step(jobs, None)

    async def fail(self, lease: BulkLease, error_text: str) -> None:
        """Pause a change that can't continue, and record why."""
        async with self._own.transaction() as (_, statements):
            await statements.execute(
                "fail_bulk_change", **lease_values(lease), error_text=error_text
            )

    async def give_back(self, lease: BulkLease) -> None:
        """Give up one lease. When its next step is due, any runner can claim the change."""
        async with self._own.transaction() as (_, statements):
            await statements.execute("release_bulk_change", **lease_values(lease))

    async def release(self, owner: str) -> None:
        """Give up all leases of a stopping runner, so that others can continue immediately."""
        async with self._own.transaction() as (_, statements):
            await statements.execute("release_bulk_changes", owner=owner)

    async def tidy(self) -> int:
        """Delete some expired changes and their jobs. Fewer than TIDY_ROWS_MAX rows means that all
        are deleted."""
        async with self._own.transaction() as (_, statements):
            # From now on nobody can start it, or see that some of its jobs are gone.
            await statements.execute("expire_bulk_changes", rows_max=TIDY_ROWS_MAX)
            change_id = await statements.value("expired_bulk_change")
            if change_id is None:
                return 0
            rows = await statements.execute(
                "delete_bulk_jobs", id=change_id, rows_max=TIDY_ROWS_MAX
            )
            if rows < TIDY_ROWS_MAX:
                await statements.execute("delete_bulk_change", id=change_id)
        return TIDY_ROWS_MAX


def lease_values(lease: BulkLease) -> dict[str, Any]:
    return {"id": lease.change_id, "owner": lease.owner, "fence": lease.fence}


async def _change_one(jobs: Jobs, row: BulkRow, job_id: UUID) -> str:
    """Change the job; return the field of Tally that counts it."""
    try:
        match row.action:
            case BulkAction.CANCEL:
                await jobs.cancel(job_id, by=row.made_by, because=row.because)
            case BulkAction.RETRY:
                await jobs.retry(job_id, again=row.again)
            case BulkAction.REQUEUE:
                await jobs.requeue(job_id, again=row.again)
    except AlreadyRequeued:
        return "requeued_already"
    except (JobNotFound, WrongState):
        return "moved_on"
    return "changed"
