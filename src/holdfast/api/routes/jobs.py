"""/v1/jobs: enqueue, find and change jobs."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec
from fastapi import Request
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.bodies import read_body
from holdfast.api.callers import AsCaller, Router
from holdfast.api.examples import EXAMPLES, JOB_ID
from holdfast.api.idempotency import KEPT_HEADER, REPLAYED_HEADER, idempotent, read_key
from holdfast.api.new_jobs import NewJob, NewJobs, enqueue, make_calls
from holdfast.api.openapi import describes
from holdfast.api.pages import JobPage, PageOfJobs, answer_page
from holdfast.api.service import Service
from holdfast.domain.job import Job

LOCATION: Final = {"location": "The path of the job"}
LINK: Final = {"link": 'The next page, as `rel="next"`'}
_ENQUEUE: Final = ("bad-arguments", "unknown-name", "duplicate-job", "idempotency-conflict")


class EnqueuedJob(msgspec.Struct, frozen=True):
    """A job of a batch. `is_new` is false if an earlier job has its idempotency key."""

    id: UUID
    is_new: bool


class EnqueuedJobs(msgspec.Struct, frozen=True):
    """The jobs of a batch, in the same order."""

    jobs: list[EnqueuedJob]


EXAMPLES[EnqueuedJobs] = {"jobs": [{"id": JOB_ID, "is_new": True}]}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/jobs", tags=["Jobs"])
    hf = service.hf
    kept_seconds = str(int(hf.settings.keys_kept_seconds))

    @router.post(
        "",
        **describes(
            "enqueue",
            {201: Job, 200: Job},
            _ENQUEUE,
            body=NewJob,
            headers=LOCATION,
            idempotency="optional",
        ),
    )
    async def enqueue_job(request: Request, caller: AsCaller) -> Response:
        """Enqueue a job. Once this returns 201, the job can't be lost.

        Returns 200 and the existing job if the Idempotency-Key was used before.
        """
        new = await read_body(request, NewJob)
        key = read_key(request)
        enqueued = await enqueue(caller, request, new, key, service.intake.record)
        headers = {"location": f"/v1/jobs/{enqueued.job.id}"}
        if key is not None:
            headers[KEPT_HEADER] = kept_seconds
        if enqueued.is_new:
            return answer(enqueued.job, 201, headers)
        return answer(enqueued.job, 200, headers | {REPLAYED_HEADER: "true"})

    @router.post(
        "/batch",
        **describes("enqueue", {201: EnqueuedJobs}, _ENQUEUE, body=NewJobs, idempotency="required"),
    )
    async def enqueue_jobs(request: Request, caller: AsCaller) -> Response:
        """Enqueue up to 1,000 jobs, all or none."""
        batch = await read_body(request, NewJobs)
        calls = make_calls(caller, request, batch)

        async def work(connection: Any) -> Response:
            enqueued = await hf._enqueue(calls, connection)
            return answer(EnqueuedJobs([EnqueuedJob(job.id, new) for job, new in enqueued]), 201)

        encrypted = any(call.definition.encrypted for call in calls)
        return await idempotent(request, caller, batch, work, required=True, encrypted=encrypted)

    @router.get("", **describes("read", {200: JobPage}, query=PageOfJobs, headers=LINK))
    async def list_jobs(request: Request, caller: AsCaller) -> Response:
        """List jobs, newest first. New jobs don't shift the pages."""
        return await answer_page(request, caller, PageOfJobs, caller.jobs.list)

    @router.get("/{job_id}", **describes("read", {200: Job}, ["job-not-found"]))
    async def get_job(job_id: UUID, caller: AsCaller) -> Response:
        """Get a job, live or ended."""
        return answer(await caller.jobs.get(job_id))

    return router
