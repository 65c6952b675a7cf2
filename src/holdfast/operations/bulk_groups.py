"""Find the jobs of a bulk change that is about one group of errors, without reading the jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from holdfast.domain.bulk import BulkCount
from holdfast.domain.groups import GroupJob
from holdfast.domain.job import Filter
from holdfast.domain.limits import BULK_JOBS_MAX
from holdfast.domain.scope import scope
from holdfast.domain.states import DEAD_STATES, State
from holdfast.operations.bulk_preview import Found
from holdfast.operations.group_fold import GroupFold
from holdfast.operations.group_rows import ALL_TENANTS, GroupRow
from holdfast.operations.groups import find_groups, jobs_of_group
from holdfast.operations.jobs import Jobs
from holdfast.operations.own_tables import OwnTables
from holdfast.stores.protocol import Requeues, capability

ROWS_MAX: Final = 10_000
# What a group knows about its jobs. Other filters need the jobs themselves.
_KNOWN: Final = {"states", "queue", "tenant", "fingerprint", "since", "until"}


def is_about_group(filter: Filter) -> bool:
    others = (name for name in Filter.__struct_fields__ if name not in _KNOWN)
    return (
        filter.fingerprint is not None
        and set(filter.states) <= set(DEAD_STATES)
        and all(getattr(filter, name) is None for name in others)
    )


async def find_in_group(
    jobs: Jobs,
    own: OwnTables,
    wanted: Filter,
    *,
    unless_requeued: bool,
    jobs_max: int = BULK_JOBS_MAX,
) -> Found:
    """The newest jobs of the group that match, after counting those that have ended since."""
    await GroupFold(own).catch_up()
    with scope(jobs._tenant):
        finding = _Finding(jobs, own, wanted, unless_requeued)
        return await finding.find(jobs_max)


class _Finding:
    def __init__(self, jobs: Jobs, own: OwnTables, wanted: Filter, unless_requeued: bool) -> None:
        self._desk = jobs._desk
        self._own = own
        self._wanted = wanted
        self._tenant = jobs._tenant or wanted.tenant
        self._unless_requeued = unless_requeued
        self._found: list[GroupJob] = []
        self._requeued_before = 0

    async def find(self, jobs_max: int) -> Found:
        assert self._wanted.fingerprint is not None
        capped, after = False, None
        while not capped:
            async with self._own.transaction(read_only=True) as (_, statements):
                rows = await jobs_of_group(
                    statements, self._wanted.fingerprint, self._tenant, after, ROWS_MAX
                )
            self._found += await self._choose([row for row in rows if self._matches(row)])
            capped = len(self._found) > jobs_max
            if len(rows) < ROWS_MAX:
                break
            after = rows[-1].job_id
        del self._found[jobs_max:]
        job_ids = [job.job_id for job in reversed(self._found)]
        return Found(job_ids, await self._counts(), self._requeued_before, capped)

    def _matches(self, job: GroupJob) -> bool:
        wanted = self._wanted
        return (
            (not wanted.states or job.state in wanted.states)
            and wanted.queue in (None, job.queue)
            and wanted.tenant in (None, job.tenant)
            and (wanted.since is None or job.ended_at >= wanted.since)
            and (wanted.until is None or job.ended_at < wanted.until)
        )

    async def _choose(self, jobs: Sequence[GroupJob]) -> Sequence[GroupJob]:
        store = capability(await self._desk.store(), Requeues)
        if not self._unless_requeued or store is None:
            return jobs
        known: dict[UUID, UUID] = dict(await store.requeued([job.job_id for job in jobs]))
        self._requeued_before += len(known)
        return [job for job in jobs if job.job_id not in known]

    async def _counts(self) -> tuple[BulkCount, ...]:
        async with self._own.transaction(read_only=True) as (_, statements):
            assert self._wanted.fingerprint is not None
            groups: dict[str, GroupRow] = await find_groups(
                statements, self._tenant or ALL_TENANTS, [self._wanted.fingerprint]
            )
        names = [row.name for row in groups.values()]
        by_state = Counter(job.state for job in self._found)
        return tuple(
            BulkCount(State(state), name, count)
            for name in names
            for state, count in by_state.most_common()
        )
