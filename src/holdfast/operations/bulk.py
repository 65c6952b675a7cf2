"""Preview, start, pause, resume and cancel bulk changes. Servers run them: see `bulk_run.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from holdfast.domain.bulk import (
    CANCEL,
    PAUSE,
    RESUME,
    START,
    BulkAction,
    BulkChange,
    BulkPage,
    BulkState,
    Verb,
    wrong_state,
)
from holdfast.domain.errors import BulkChangeNotFound, ConfigurationError
from holdfast.domain.job import Filter
from holdfast.domain.limits import PAGE_ROWS_MAX
from holdfast.domain.scope import scoped
from holdfast.domain.texts import check_range
from holdfast.operations.bulk_groups import find_in_group, is_about_group
from holdfast.operations.bulk_preview import Found, check_action, find, sample, with_states
from holdfast.operations.bulk_rows import BulkRow, JobIdRow, values_of
from holdfast.operations.desk import Desk, check_operator
from holdfast.operations.jobs import SAMPLE_JOBS, Jobs, check_filter, check_id
from holdfast.operations.own_tables import OwnTables
from holdfast.operations.steps import make_pace
from holdfast.runtime.blocking import blocking
from holdfast.transactions.tables import Statements

IDS_PER_STATEMENT: Final = 10_000
_LAST: Final = UUID(int=2**128 - 1)


class BulkPreview(NamedTuple):
    """A bulk change that is not recorded yet, and its jobs in the order it changes them."""

    change: BulkChange
    job_ids: Sequence[UUID]


class Bulk:
    """`hf.bulk`: change many jobs in the background, each exactly once.

    Preview a change, then start it. Servers (`holdfast serve`) run it at its rate limit, and if one
    of them dies, another continues. `hf.for_tenant(...).bulk` has the same methods, and treats jobs
    and changes of other tenants as if they did not exist.
    """

    def __init__(self, desk: Desk, own: OwnTables, tenant: str | None = None) -> None:
        self._desk = desk
        self._own = own
        self._tenant = tenant
        self._jobs = Jobs(desk, tenant)
        self._run_sync = desk.run_sync

    async def create(
        self,
        action: str,
        jobs: Filter | Sequence[UUID],
        *,
        jobs_per_second: float | None = None,
        by: str | None = None,
        because: str | None = None,
        again: bool = False,
        start: bool = False,
    ) -> BulkChange:
        """Preview a change of all jobs that match a filter now, or of a list of IDs.

        `action` is "cancel", "retry" or "requeue". A filter without states matches queued and
        running jobs for "cancel", and dead and failed jobs for "requeue"; "retry" requires states.
        Jobs that were already requeued are left out, unless `again` is set. If more than
        BULK_JOBS_MAX jobs match, the change takes the newest, and `capped` is set. With `start`, it
        starts immediately.
        """
        preview = await self._preview(
            action, jobs, jobs_per_second=jobs_per_second, by=by, because=because, again=again
        )
        return await self._record(preview, start=start)

    @scoped
    async def _preview(
        self,
        action: str,
        jobs: Filter | Sequence[UUID],
        *,
        jobs_per_second: float | None = None,
        by: str | None = None,
        because: str | None = None,
        again: bool = False,
    ) -> BulkPreview:
        """Find the jobs of a change without recording it: the first half of `create`."""
        kind = check_action(action)
        make_pace(jobs_per_second)
        check_operator(by, because)
        wanted = with_states(kind, jobs) if isinstance(jobs, Filter) else jobs
        found = await self._find_jobs(
            wanted, unless_requeued=kind is not BulkAction.CANCEL and not again
        )
        change = BulkChange(
            id=self._desk.new_id(),
            action=kind,
            state=BulkState.PREVIEWED,
            tenant=self._tenant,
            filter=wanted if isinstance(wanted, Filter) else None,
            again=again,
            jobs_per_second=jobs_per_second,
            by=by,
            because=because,
            total=len(found.job_ids),
            capped=found.capped,
            requeued_before=found.requeued_before,
            counts=found.counts,
            sample=await sample(self._jobs, found.job_ids),
            created_at=self._desk.seam().now(),
        )
        return BulkPreview(change, found.job_ids)

    async def _find_jobs(self, wanted: Filter | Sequence[UUID], *, unless_requeued: bool) -> Found:
        if isinstance(wanted, Filter) and is_about_group(wanted):
            check_filter(wanted)
            return await find_in_group(
                self._jobs, self._own, wanted, unless_requeued=unless_requeued
            )
        return await find(self._jobs, wanted, self._desk.seam(), unless_requeued=unless_requeued)

    @scoped
    async def _record(
        self, preview: BulkPreview, *, start: bool = False, connection: Any = None
    ) -> BulkChange:
        """Record a change: the second half of `create`. With `connection`, it is committed by that
        connection's transaction."""
        change, job_ids = preview
        async with self._own.joined(connection) as statements:
            await statements.execute("insert_bulk_change", **values_of(change, self._kept_seconds))
            for begin in range(0, len(job_ids), IDS_PER_STATEMENT):
                some = msgspec.json.encode(job_ids[begin : begin + IDS_PER_STATEMENT]).decode()
                await statements.execute(
                    "insert_bulk_jobs", id=change.id, after=begin, job_ids=some
                )
            if start:
                await self._apply(statements, START, change.id)
            recorded = await self._find(statements, change.id)
        return msgspec.structs.replace(recorded, sample=change.sample)

    async def start(self, change_id: UUID) -> BulkChange:
        """Start a previewed change. Does nothing if it is already running or completed."""
        return await self._change(change_id, START)

    async def pause(self, change_id: UUID) -> BulkChange:
        """Pause a running change. No further job is changed until it is resumed."""
        return await self._change(change_id, PAUSE)

    async def resume(self, change_id: UUID) -> BulkChange:
        """Resume a paused change."""
        return await self._change(change_id, RESUME)

    async def cancel(self, change_id: UUID) -> BulkChange:
        """Stop a change for good. Jobs that it has already changed stay changed."""
        return await self._change(change_id, CANCEL)

    @scoped
    async def get(self, change_id: UUID) -> BulkChange:
        """Return the change and its progress, or raise BulkChangeNotFound."""
        check_id(change_id)
        async with self._own.transaction(read_only=True) as (_, statements):
            found = await self._find(statements, change_id)
            first = await statements.all(
                "jobs_of_bulk_change", JobIdRow, id=change_id, after=0, rows_max=SAMPLE_JOBS
            )
        shown = await sample(self._jobs, [row.job_id for row in first])
        return msgspec.structs.replace(found, sample=shown)

    @scoped
    async def list(self, limit: int = 50, after: UUID | None = None) -> BulkPage:
        """Return a page of changes, newest first, without their samples.

        To get the next page, pass the `after` of this one.
        """
        check_range("limit", limit, 1, PAGE_ROWS_MAX, int, ConfigurationError)
        async with self._own.transaction(read_only=True) as (_, statements):
            rows = await statements.all(
                "page_of_bulk_changes",
                BulkRow,
                before=after or _LAST,
                tenant=self._tenant,
                rows_max=limit + 1,
            )
        changes = [row.change() for row in rows[:limit]]
        return BulkPage(changes, changes[-1].id if len(rows) > limit else None)

    @scoped
    async def _change(self, change_id: UUID, verb: Verb) -> BulkChange:
        check_id(change_id)
        async with self._own.transaction() as (_, statements):
            await self._find(statements, change_id)
            await self._apply(statements, verb, change_id)
            change = await self._find(statements, change_id)
            if change.state not in verb.reached:
                raise wrong_state(verb, change)
        return change

    async def _apply(self, statements: Statements, verb: Verb, change_id: UUID) -> None:
        for source in verb.sources:
            match verb.target:
                case BulkState.RUNNING:
                    await statements.execute("run_bulk_change", id=change_id, source=source)
                case BulkState.PAUSED:
                    await statements.execute("pause_bulk_change", id=change_id, source=source)
                case state:
                    await statements.execute(
                        "end_bulk_change",
                        id=change_id,
                        source=source,
                        state=state,
                        kept_seconds=self._kept_seconds,
                    )

    async def _find(self, statements: Statements, change_id: UUID) -> BulkChange:
        row = await statements.one("find_bulk_change", BulkRow, id=change_id, tenant=self._tenant)
        if row is None:
            raise BulkChangeNotFound(change_id)
        return row.change()

    @property
    def _kept_seconds(self) -> float:
        return self._desk.settings.history_kept_seconds

    create_sync = blocking(create)
    start_sync = blocking(start)
    pause_sync = blocking(pause)
    resume_sync = blocking(resume)
    cancel_sync = blocking(cancel)
    get_sync = blocking(get)
    list_sync = blocking(list)
