"""List, group and requeue the jobs that ended as dead or failed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.domain.errors import ConfigurationError, WrongState
from holdfast.domain.groups import ErrorGroups, Gathering
from holdfast.domain.job import Filter, Job, Page
from holdfast.domain.limits import GROUPS_LOOK_MAX
from holdfast.domain.states import DEAD_STATES, UNSUCCESSFUL, State
from holdfast.operations.jobs import Jobs, pages
from holdfast.operations.steps import Progress
from holdfast.runtime.blocking import blocking


class Dead:
    """`hf.dead`: list, group and requeue the jobs that ended as dead or failed."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._run_sync = jobs._run_sync

    async def list(
        self, filter: Filter | None = None, limit: int = 50, after: UUID | None = None
    ) -> Page:
        """Like `hf.jobs.list`, for jobs that ended as dead or failed."""
        return await self._jobs.list(_of_states(filter, DEAD_STATES), limit, after)

    async def groups(
        self, filter: Filter | None = None, *, look_max: int = GROUPS_LOOK_MAX
    ) -> ErrorGroups:
        """Group the jobs that ended without success by what went wrong.

        Looks at the newest `look_max` jobs that match, and says whether those were all.
        """
        if look_max < 1:
            raise ConfigurationError(f"look_max must be at least 1, not {look_max}")
        wanted = _of_states(filter, UNSUCCESSFUL)
        gathering = Gathering()
        looked_at, is_all = 0, False
        async for page in pages(self._jobs, wanted, look_max):
            gathering.add(page.jobs)
            looked_at += len(page.jobs)
            is_all = page.after is None
        return ErrorGroups(gathering.groups(), looked_at, is_all)

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
    requeue_sync = blocking(requeue)
    requeue_many_sync = blocking(requeue_many)


def _of_states(filter: Filter | None, states: tuple[State, ...]) -> Filter:
    wanted = filter or Filter()
    return wanted if wanted.states else msgspec.structs.replace(wanted, states=states)
