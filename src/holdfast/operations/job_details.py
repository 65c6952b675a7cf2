"""What belongs to one job: its attempts, and the jobs that it came from and led to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from holdfast.domain.attempts import JobAttempt, all_attempts
from holdfast.domain.job import Filter, Job
from holdfast.operations.jobs import Jobs


class Related(NamedTuple):
    """The jobs related to a job; of its children, and of those with the same correlation ID, the
    newest."""

    job: Job
    requeued_as: UUID | None
    children: Sequence[Job]
    same_correlation: Sequence[Job]


async def attempts_of(jobs: Jobs, job: Job) -> list[JobAttempt]:
    """The attempts of a job that was just read, oldest first."""
    return all_attempts(job, await jobs.attempts(job.id))


async def related_to(jobs: Jobs, job: Job, jobs_max: int) -> Related:
    """The jobs related to a job that was just read, at most `jobs_max` of each kind."""
    children = await jobs.list(Filter(parent_id=job.id), jobs_max)
    same: Sequence[Job] = []
    if job.correlation_id is not None:
        filter = Filter(correlation_id=job.correlation_id, tenant=job.tenant)
        same = (await jobs.list(filter, jobs_max)).jobs
    return Related(
        job=job,
        requeued_as=(await jobs.requeued([job])).get(job.id),
        children=children.jobs,
        same_correlation=[each for each in same if each.id != job.id],
    )
