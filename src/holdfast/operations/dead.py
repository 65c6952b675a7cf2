"""`hf.dead`: jobs that ended as dead or failed, grouped by what went wrong, and requeued."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast.domain.errors import ConfigurationError, WrongState
from holdfast.domain.groups import ErrorGroups, Gathering
from holdfast.domain.job import Filter, Job, Page
from holdfast.domain.limits import GROUPS_LOOK_MAX, PAGE_ROWS_MAX
from holdfast.domain.states import DEAD_STATES, UNSUCCESSFUL, State
from holdfast.operations.bulk import Progress
from holdfast.operations.jobs import Jobs


class Dead:
    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    async def list(
        self, filter: Filter | None = None, limit: int = 50, after: UUID | None = None
    ) -> Page:
        """Jobs that ended as dead or failed, newest first; like `hf.jobs.list`."""
        return await self._jobs.list(_of_states(filter, DEAD_STATES), limit, after)

    async def groups(
        self, filter: Filter | None = None, *, look_max: int = GROUPS_LOOK_MAX
    ) -> ErrorGroups:
        """Gather jobs that ended without success by their errors' fingerprints.

        It looks at the newest `look_max` jobs that match, and says whether these were all.
        """
        if look_max < 1:
            raise ConfigurationError(f"look_max must be at least 1, not {look_max}")
        wanted = _of_states(filter, UNSUCCESSFUL)
        gathering = Gathering()
        looked_at = 0
        after: UUID | None = None
        while looked_at < look_max:
            page = await self.list(wanted, min(PAGE_ROWS_MAX, look_max - looked_at), after)
            gathering.add(page.jobs)
            looked_at += len(page.jobs)
            after = page.after
            if after is None:
                break
        return ErrorGroups(gathering.groups(), looked_at, after is None)

    async def requeue(
        self, job_id: UUID, *, arguments: Mapping[str, Any] | None = None, again: bool = True
    ) -> Job:
        """Enqueue a job that ended without success anew; like `hf.jobs.requeue`."""
        job = await self._jobs.get(job_id)
        if job.state not in UNSUCCESSFUL:
            raise WrongState(
                f"job {job_id} is {job.state}, not dead or failed; see: holdfast jobs retry"
            )
        return await self._jobs.requeue(job_id, arguments=arguments, again=again)

    def requeue_many(
        self,
        jobs: Filter | Sequence[UUID],
        *,
        again: bool = False,
        jobs_per_second: float | None = None,
    ) -> AsyncIterator[Progress]:
        """Requeue all dead and failed jobs that match, or these; yield how far it has come.

        It may be broken off and run again: what was requeued is left out then, unless `again`.
        """
        if isinstance(jobs, Filter):
            jobs = _of_states(jobs, DEAD_STATES)
        return self._jobs.requeue_many(jobs, again=again, jobs_per_second=jobs_per_second)


def _of_states(filter: Filter | None, states: tuple[State, ...]) -> Filter:
    wanted = filter or Filter()
    return wanted if wanted.states else msgspec.structs.replace(wanted, states=states)
