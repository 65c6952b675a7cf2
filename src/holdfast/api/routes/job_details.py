"""/v1/jobs/{id}/...: the attempts of a job, why it is not running, and related jobs."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode
from uuid import UUID

import msgspec
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.callers import AsCaller, Router
from holdfast.api.examples import EXAMPLES, JOB_ID, WHEN
from holdfast.api.limits import RELATED_JOBS_MAX
from holdfast.api.openapi import describes
from holdfast.api.service import Service
from holdfast.domain.attempts import JobAttempt
from holdfast.domain.job import Job
from holdfast.domain.states import State
from holdfast.domain.why import Why
from holdfast.operations.job_details import attempts_of, related_to


class JobAttempts(msgspec.Struct, frozen=True):
    """The attempts of a job, oldest first."""

    attempts: list[JobAttempt]


class RelatedJob(msgspec.Struct, frozen=True):
    """A summary of a job."""

    id: UUID
    name: str
    state: State


class RelatedJobs(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs related to a job. `children` are the newest jobs that its handler enqueued, and
    `same_correlation` the newest others with its correlation ID. The links list all of them."""

    requeued_from: UUID | None
    requeued_as: UUID | None
    parent_id: UUID | None
    children: list[RelatedJob]
    children_link: str
    same_correlation: list[RelatedJob]
    same_correlation_link: str | None


EXAMPLES[JobAttempts] = {
    "attempts": [
        {
            "attempt": 1,
            "fence": 1,
            "outcome": "retried",
            "worker": "web-1:4711:9f3a",
            "started_at": WHEN,
            "ended_at": "2026-11-17T09:30:02Z",
            "error_code": "TimeoutError",
            "error_text": "TimeoutError: no answer within 2 s",
        }
    ]
}
EXAMPLES[RelatedJobs] = {
    "requeued_from": None,
    "requeued_as": None,
    "parent_id": None,
    "children": [{"id": JOB_ID, "name": "resize", "state": "succeeded"}],
    "children_link": f"/v1/jobs?parent_id={JOB_ID}",
    "same_correlation": [],
    "same_correlation_link": None,
}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/jobs/{job_id}", tags=["Jobs"])

    @router.get("/attempts", **describes("read", {200: JobAttempts}, ["job-not-found"]))
    async def list_attempts(job_id: UUID, caller: AsCaller) -> Response:
        """List the attempts of a job, with workers, fences and errors."""
        job = await caller.jobs.get(job_id)
        return answer(JobAttempts(await attempts_of(caller.jobs, job)))

    @router.get("/why", **describes("read", {200: Why}, ["job-not-found"]))
    async def explain_job(job_id: UUID, caller: AsCaller) -> Response:
        """Explain why a job is not running. Returns a code, a sentence and the facts."""
        return answer(await caller.jobs.why(job_id))

    @router.get("/related", **describes("read", {200: RelatedJobs}, ["job-not-found"]))
    async def list_related_jobs(job_id: UUID, caller: AsCaller) -> Response:
        """List the jobs related to a job. Includes its parent, children and copies, and jobs with
        the same correlation ID."""
        found = await related_to(caller.jobs, await caller.jobs.get(job_id), RELATED_JOBS_MAX)
        correlation_id = found.job.correlation_id
        return answer(
            RelatedJobs(
                requeued_from=found.job.requeued_from,
                requeued_as=found.requeued_as,
                parent_id=found.job.parent_id,
                children=_summaries(found.children),
                children_link=_link(parent_id=str(job_id)),
                same_correlation=_summaries(found.same_correlation),
                same_correlation_link=correlation_id and _link(correlation_id=correlation_id),
            )
        )

    return router


def _summaries(jobs: Sequence[Job]) -> list[RelatedJob]:
    return [RelatedJob(each.id, each.name, each.state) for each in jobs]


def _link(**filter: str) -> str:
    return f"/v1/jobs?{urlencode(filter)}"
