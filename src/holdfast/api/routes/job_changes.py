"""/v1/jobs/{id}/...: cancel, retry and requeue a job."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec
from fastapi import Request
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.bodies import read_optional_body
from holdfast.api.callers import AsCaller, Caller, Router
from holdfast.api.examples import EXAMPLES
from holdfast.api.fields import Because
from holdfast.api.idempotency import idempotent
from holdfast.api.new_jobs import bad_arguments
from holdfast.api.openapi import describes
from holdfast.api.service import Service
from holdfast.domain.errors import BadArguments
from holdfast.domain.job import Job

_OPTIONAL: Final[dict[str, Any]] = {"body_required": False, "idempotency": "optional"}
_NOT_NOW: Final = ("job-not-found", "wrong-state", "already-requeued")
_LOCATION: Final = {"location": "The path of the job"}


class Cancel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a job is canceled."""

    because: Because | None = None


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With `again`, an ended job is requeued even if it was already requeued."""

    again: bool = True


class Requeue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`arguments` replaces all arguments. With `again`, a job can be requeued more than once."""

    arguments: dict[str, Any] | None = None
    again: bool = True


EXAMPLES[Cancel] = {"because": "wrong file"}
EXAMPLES[Retry] = {"again": False}
EXAMPLES[Requeue] = {"arguments": {"image": 18}}

# The description of the routes that requeue a job, here and under /v1/dead.
DESCRIBES_REQUEUE: Final = describes(
    "operate",
    {201: Job},
    [*_NOT_NOW, "bad-arguments"],
    body=Requeue,
    headers=_LOCATION,
    **_OPTIONAL,
)


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/jobs/{job_id}", tags=["Jobs"])

    @router.post(
        "/cancel",
        **describes(
            "operate", {200: Job}, ["job-not-found", "wrong-state"], body=Cancel, **_OPTIONAL
        ),
    )
    async def cancel_job(job_id: UUID, request: Request, caller: AsCaller) -> Response:
        """Cancel a waiting or running job. Stops a running handler and discards its result."""
        body = await read_optional_body(request, Cancel)

        async def work(connection: Any) -> Response:
            why = {"because": body.because, "connection": connection}
            async with caller.audited("job.cancel", job_id, **why):
                return answer(await caller.jobs.cancel(job_id, by=caller.name, **why))

        await caller.jobs.get(job_id)
        return await idempotent(request, caller, body, work)

    @router.post(
        "/retry",
        **describes("operate", {200: Job}, _NOT_NOW, body=Retry, headers=_LOCATION, **_OPTIONAL),
    )
    async def retry_job(job_id: UUID, request: Request, caller: AsCaller) -> Response:
        """Make a waiting job due now, or requeue an ended one and return the new job."""
        body = await read_optional_body(request, Retry)

        async def work(connection: Any) -> Response:
            async with caller.audited("job.retry", job_id, connection=connection):
                job = await caller.jobs.retry(job_id, again=body.again, connection=connection)
            return answer(job, headers={"location": f"/v1/jobs/{job.id}"})

        await caller.jobs.get(job_id)
        return await idempotent(request, caller, body, work)

    @router.post("/requeue", **DESCRIBES_REQUEUE)
    async def requeue_job(job_id: UUID, request: Request, caller: AsCaller) -> Response:
        """Enqueue a copy of an ended job, optionally with new arguments, and return the new job."""
        return await requeue(request, caller, job_id, caller.jobs.requeue)

    return router


async def requeue(request: Request, caller: Caller, job_id: UUID, apply: Any) -> Response:
    """Requeue with `caller.jobs.requeue` or `caller.dead.requeue`."""
    body = await read_optional_body(request, Requeue)
    job = await caller.jobs.get(job_id)
    encrypted = body.arguments is not None and caller.jobs._encrypts(job)

    async def work(connection: Any) -> Response:
        async with caller.audited("job.requeue", job_id, connection=connection):
            job = await apply(
                job_id, arguments=body.arguments, again=body.again, connection=connection
            )
        return answer(job, 201, {"location": f"/v1/jobs/{job.id}"})

    try:
        return await idempotent(request, caller, body, work, encrypted=encrypted)
    except BadArguments as error:
        raise bad_arguments(error, "/arguments") from None
