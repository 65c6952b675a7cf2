"""/v1/jobs/{id}/...: the attempts of a job, why it is not running, and related jobs."""

from __future__ import annotations

from datetime import datetime
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
from holdfast.domain.job import Attempt, Filter, Job
from holdfast.domain.states import State
from holdfast.domain.why import Why


class JobAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt: its fence, worker, times, and error if there was one.

    An attempt in progress has the outcome `running`. If a Python worker releases or snoozes a job,
    that leaves no attempt; over HTTP, it leaves one with the outcome `released`.
    """

    attempt: int
    fence: int
    outcome: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime | None
    error_code: str | None = None
    error_text: str | None = None


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
        ended = await caller.jobs.attempts(job_id)
        job = await caller.jobs.get(job_id)
        running = [_running(job)] if job.state is State.RUNNING else []
        return answer(JobAttempts([*map(_ended, ended), *running]))

    @router.get("/why", **describes("read", {200: Why}, ["job-not-found"]))
    async def explain_job(job_id: UUID, caller: AsCaller) -> Response:
        """Explain why a job is not running. Returns a code, a sentence and the facts."""
        return answer(await caller.jobs.why(job_id))

    @router.get("/related", **describes("read", {200: RelatedJobs}, ["job-not-found"]))
    async def list_related_jobs(job_id: UUID, caller: AsCaller) -> Response:
        """List the jobs related to a job. Includes its parent, children and copies, and jobs with
        the same correlation ID."""
        job = await caller.jobs.get(job_id)

        async def find(filter: Filter) -> list[RelatedJob]:
            page = await caller.jobs.list(filter, RELATED_JOBS_MAX)
            return [RelatedJob(each.id, each.name, each.state) for each in page.jobs]

        correlation_id = job.correlation_id
        same = (
            []
            if correlation_id is None
            else await find(Filter(correlation_id=correlation_id, tenant=job.tenant))
        )
        return answer(
            RelatedJobs(
                requeued_from=job.requeued_from,
                requeued_as=await caller.jobs.requeued_as(job_id),
                parent_id=job.parent_id,
                children=await find(Filter(parent_id=job_id)),
                children_link=_link(parent_id=str(job_id)),
                same_correlation=[each for each in same if each.id != job_id],
                same_correlation_link=correlation_id and _link(correlation_id=correlation_id),
            )
        )

    return router


def _ended(attempt: Attempt) -> JobAttempt:
    values = msgspec.structs.asdict(attempt)
    del values["job_id"]
    return JobAttempt(**values)


def _running(job: Job) -> JobAttempt:
    return JobAttempt(
        attempt=job.attempts,
        fence=job.fence,
        outcome="running",
        worker=job.lease_owner,
        started_at=job.started_at,
        ended_at=None,
    )


def _link(**filter: str) -> str:
    return f"/v1/jobs?{urlencode(filter)}"
