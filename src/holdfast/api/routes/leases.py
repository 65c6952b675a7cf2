"""/v1/leases: workers in any language lease jobs, renew their leases and report outcomes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated

from fastapi import Path, Request
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.bodies import convert, read_body, read_json
from holdfast.api.callers import AsCaller, Router
from holdfast.api.leases.lease_ids import CHARS
from holdfast.api.leases.messages import (
    LeaseOutcome,
    LeaseRequest,
    Leases,
    RecordedOutcome,
    Renewal,
    Renewed,
)
from holdfast.api.openapi import describes
from holdfast.api.service import Service

LeaseId = Annotated[str, Path(min_length=1, max_length=2 * CHARS)]


def routes(service: Service) -> Router:
    router = Router(prefix="/v1/leases", tags=["Leases"])
    leases = service.leases
    outcome_bytes_max = service.hf.settings.result_bytes_max + 64 * 1024

    @router.post(
        "", **describes("work", {200: Leases, 204: None}, ["unknown-name"], body=LeaseRequest)
    )
    async def take_leases(request: Request, caller: AsCaller) -> Response:
        """Lease jobs that are due, or wait for some. Returns 204 if there are none in time.

        A job is leased at the moment of the response, to a client that is still connected. If the
        response can't be written, the job is released and gets its attempt back.
        """
        wanted = await read_body(request, LeaseRequest)
        waiting = service.waiting.counted(caller) if wanted.wait_seconds else nullcontext()
        return leases.take(caller, wanted, waiting, lambda: service.gate.check_again(request))

    @router.post("/renew", **describes("work", {200: Renewed}, body=Renewal))
    async def renew_leases(request: Request, caller: AsCaller) -> Response:
        """Renew leases, many at once, and report the progress of their jobs."""
        return answer(await leases.renew(caller, await read_body(request, Renewal)))

    @router.put(
        "/{lease_id}/outcome",
        **describes(
            "work",
            {200: RecordedOutcome},
            ["not-found", "lease-lost", "bad-result", "unknown-name"],
            body=LeaseOutcome,
        ),
    )
    async def end_lease(lease_id: LeaseId, request: Request, caller: AsCaller) -> Response:
        """Report how the attempt ended. If the response is lost, send the request again: the same
        outcome gets the same response.

        A result that does not fit the type that the job declares is rejected with `bad-result`, and
        the lease stays: report another outcome.
        """
        body = await read_json(request, outcome_bytes_max)
        told: LeaseOutcome = convert(body, LeaseOutcome)  # type: ignore[arg-type]
        return answer(await leases.end(caller, lease_id, told))

    return router
