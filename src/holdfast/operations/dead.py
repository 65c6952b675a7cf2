"""List, group and requeue the jobs that ended as dead or failed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast.domain.errors import ConfigurationError, WrongState
from holdfast.domain.groups import (
    ACKNOWLEDGE,
    REOPEN,
    RESOLVE,
    ErrorGroup,
    ErrorGroups,
    Gathering,
    GroupCounts,
    GroupFilter,
    GroupJobs,
    GroupOrder,
    GroupPage,
)
from holdfast.domain.job import Filter, Job, Page
from holdfast.domain.limits import GROUPS_LOOK_MAX
from holdfast.domain.states import DEAD_STATES, UNSUCCESSFUL, State
from holdfast.operations.group_fold import GroupFold
from holdfast.operations.groups import Groups
from holdfast.operations.jobs import Jobs, pages
from holdfast.operations.own_tables import OwnTables
from holdfast.operations.steps import Progress
from holdfast.runtime.blocking import blocking


class Dead:
    """`hf.dead`: list, group and requeue the jobs that ended as dead or failed."""

    def __init__(self, jobs: Jobs, own: OwnTables) -> None:
        self._jobs = jobs
        self._groups = Groups(jobs, own)
        self._fold = GroupFold(own)
        self._run_sync = jobs._run_sync

    async def list(
        self, filter: Filter | None = None, limit: int = 50, after: UUID | None = None
    ) -> Page:
        """Like `hf.jobs.list`, for jobs that ended as dead or failed."""
        return await self._jobs.list(_of_states(filter, DEAD_STATES), limit, after)

    async def groups(
        self,
        filter: GroupFilter | None = None,
        limit: int = 50,
        after: UUID | None = None,
        *,
        order: GroupOrder = GroupOrder.RECENT,
    ) -> GroupPage:
        """Return a page of the groups of dead and failed jobs: what went wrong, how often, since
        when, and whether somebody has dealt with it.

        Servers keep the groups up to date; without one, call `count_groups` first.
        """
        return await self._groups.list(filter or GroupFilter(), limit, after, order)

    async def group(self, fingerprint: str) -> ErrorGroup:
        """Return the group, or raise ErrorGroupNotFound."""
        return await self._groups.get(fingerprint)

    async def group_jobs(
        self, fingerprint: str, limit: int = 50, after: UUID | None = None
    ) -> GroupJobs:
        """Return a page of the jobs of a group that are still in the history, newest first."""
        return await self._groups.jobs(fingerprint, limit, after)

    async def group_counts(self) -> GroupCounts:
        """Count the groups by state, up to GROUPS_COUNTED_MAX."""
        return await self._groups.counts()

    async def groups_behind_since(self) -> datetime | None:
        """Return the end of the first job that should be in a group by now and is not, if any: no
        server keeps the groups up to date."""
        return await self._groups.behind_since()

    async def count_groups(self) -> None:
        """Bring the groups up to date, for all tenants. Servers do this all the time."""
        await self._fold.catch_up()

    async def acknowledge(
        self, *fingerprints: str, by: str | None = None, note: str | None = None
    ) -> Sequence[ErrorGroup]:
        """Note that somebody works on these groups."""
        return await self._groups.change(ACKNOWLEDGE, fingerprints, by=by, note=note)

    async def resolve(
        self,
        *fingerprints: str,
        version: str | None = None,
        by: str | None = None,
        note: str | None = None,
    ) -> Sequence[ErrorGroup]:
        """Note that the cause of these groups is gone, from a version of the application on.

        A job that fails later brings its group back, unless it ran in an older version: one with a
        smaller dotted number, as the worker's `app_version` tells.
        """
        return await self._groups.change(RESOLVE, fingerprints, by=by, note=note, version=version)

    async def reopen(
        self, *fingerprints: str, by: str | None = None, note: str | None = None
    ) -> Sequence[ErrorGroup]:
        """Make these groups new again."""
        return await self._groups.change(REOPEN, fingerprints, by=by, note=note)

    async def grouped(
        self, filter: Filter | None = None, *, look_max: int = GROUPS_LOOK_MAX
    ) -> ErrorGroups:
        """Group the newest `look_max` jobs that match a filter, and say whether those were all.

        The groups count only these jobs. Their states are those of `groups`.
        """
        if look_max < 1:
            raise ConfigurationError(f"look_max must be at least 1, not {look_max}")
        wanted = _of_states(filter, DEAD_STATES)
        gathering = Gathering()
        looked_at, is_all = 0, False
        async for page in pages(self._jobs, wanted, look_max):
            gathering.add(page.jobs)
            looked_at += len(page.jobs)
            is_all = page.after is None
        return ErrorGroups(await self._groups.with_states(gathering.groups()), looked_at, is_all)

    async def requeue(
        self,
        job_id: UUID,
        *,
        arguments: Mapping[str, Any] | None = None,
        again: bool = True,
        connection: Any = None,
    ) -> Job:
        """Like `hf.jobs.requeue`, for a job that ended without success."""
        job = await self._jobs.get(job_id)
        if job.state not in UNSUCCESSFUL:
            raise WrongState(
                f"job {job_id} is {job.state}, not dead or failed; use: holdfast jobs retry"
            )
        return await self._jobs.requeue(
            job_id, arguments=arguments, again=again, connection=connection
        )

    def requeue_many(
        self,
        jobs: Filter | Sequence[UUID],
        *,
        again: bool = False,
        jobs_per_second: float | None = None,
    ) -> AsyncIterator[Progress]:
        """Like `hf.jobs.requeue_many`; a filter matches dead and failed jobs only."""
        if isinstance(jobs, Filter):
            jobs = _of_states(jobs, DEAD_STATES)
        return self._jobs.requeue_many(jobs, again=again, jobs_per_second=jobs_per_second)

    list_sync = blocking(list)
    groups_sync = blocking(groups)
    group_sync = blocking(group)
    group_jobs_sync = blocking(group_jobs)
    group_counts_sync = blocking(group_counts)
    groups_behind_since_sync = blocking(groups_behind_since)
    count_groups_sync = blocking(count_groups)
    acknowledge_sync = blocking(acknowledge)
    resolve_sync = blocking(resolve)
    reopen_sync = blocking(reopen)
    grouped_sync = blocking(grouped)
    requeue_sync = blocking(requeue)
    requeue_many_sync = blocking(requeue_many)


def _of_states(filter: Filter | None, states: tuple[State, ...]) -> Filter:
    wanted = filter or Filter()
    return wanted if wanted.states else msgspec.structs.replace(wanted, states=states)
