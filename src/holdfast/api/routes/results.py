"""/v1/jobs/{id}/result: the result of a job, optionally waiting for it."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from uuid import UUID

import msgspec
from fastapi import Request
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.callers import AsCaller, Router
from holdfast.api.examples import EXAMPLES, JOB_ID
from holdfast.api.limits import RETRY_AFTER_SECONDS, WAIT_SECONDS_MAX
from holdfast.api.openapi import describes
from holdfast.api.queries import read_query
from holdfast.api.service import Service
from holdfast.api.streams import while_connected
from holdfast.domain.errors import JobFailed
from holdfast.domain.states import State


class JobResult(msgspec.Struct, frozen=True):
    """The result of a job that succeeded, as its handler returned it."""

    job_id: UUID
    state: State
    result: Any


class NoResultYet(msgspec.Struct, frozen=True):
    """The state of a job that has not ended."""

    job_id: UUID
    state: State


EXAMPLES[JobResult] = {"job_id": JOB_ID, "state": "succeeded", "result": {"width": 64}}
EXAMPLES[NoResultYet] = {"job_id": JOB_ID, "state": "running"}


class Wait(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    wait_seconds: Annotated[
        float,
        msgspec.Meta(ge=0, le=WAIT_SECONDS_MAX, description="How long to wait for the job to end."),
    ] = 0.0


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/jobs", tags=["Jobs"])

    @router.get(
        "/{job_id}/result",
        **describes(
            "read",
            {200: JobResult, 202: NoResultYet},
            ["job-not-found", "job-failed"],
            query=Wait,
            headers={"Retry-After": "With 202: how many seconds to wait before asking again"},
        ),
    )
    async def get_result(request: Request, job_id: UUID, caller: AsCaller) -> Response:
        """Get the result of a job. Returns 202 if the job has not ended, and 409 `job-failed` if it
        did not succeed. With `wait_seconds`, the response comes as soon as the job ends."""
        wait_seconds = read_query(request, Wait).wait_seconds
        job = await caller.jobs.get(job_id)
        if wait_seconds and not job.state.ended:
            with service.waiting.counted(caller):
                await while_connected(request.receive, until_ended(job_id, wait_seconds))
            await service.gate.check_again(request)
            job = await caller.jobs.get(job_id)
        if not job.state.ended:
            retry_after = {"retry-after": str(RETRY_AFTER_SECONDS)}
            return answer(NoResultYet(job_id, job.state), 202, retry_after)
        if job.state is not State.SUCCEEDED:
            raise JobFailed(job)
        return answer(JobResult(job_id, job.state, job.result))

    async def until_ended(job_id: UUID, seconds_max: float) -> None:
        clock = asyncio.get_running_loop().time
        until = clock() + seconds_max
        with service.watch.watching([job_id]) as watcher:
            while not watcher.stopped and (left := until - clock()) > 0:
                for status in (await watcher.changes(left)).values():
                    if status is None or status.state.ended:
                        return

    return router
