"""The HTTP API: POST /jobs/run, GET /jobs/status|result|artifact.

There are no keys yet: the header `x-tenant-id` is trusted. Put the API behind something that sets
it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import UUID, uuid4

import msgspec
from fastapi import FastAPI, Header, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from holdfast import StoreUnavailable, Tenant
from holdfast_systems.compute.bodies import TooLarge, read_body
from holdfast_systems.compute.contract import ContractBroken, ContractUnknown
from holdfast_systems.compute.limits import BODY_BYTES_MAX
from holdfast_systems.compute.records import JobRow
from holdfast_systems.compute.service import Compute, RunRequest
from holdfast_systems.compute.solver import CORRELATION_HEADER

TenantId = Annotated[UUID | None, Header(alias="x-tenant-id")]
_CORRELATION_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,100}")
# A picture from elsewhere must not run scripts on this origin.
_HARMLESS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "x-content-type-options": "nosniff",
}
_BODY = {
    "required": True,
    "content": {"application/json": {"schema": msgspec.json.schema_components([RunRequest])[0][0]}},
}


def make_api(compute: Compute, **options: Any) -> FastAPI:
    """Make the application. `options` are passed to FastAPI."""
    api = FastAPI(title="Compute", **options)
    api.middleware("http")(_correlate)
    api.add_exception_handler(StoreUnavailable, _unavailable)
    api.add_exception_handler(ClientDisconnect, _gone)
    records = compute.records

    def asking(tenant_id: UUID | None) -> Tenant:
        return compute.hf.for_tenant("default" if tenant_id is None else str(tenant_id))

    async def own_job(job_id: UUID, tenant: Tenant) -> JobRow:
        job = await records.job(job_id, tenant)
        if job is None:
            raise _refused(404, "NOT_FOUND", f"job {job_id} does not exist")
        return job

    @api.post("/jobs/run", status_code=202, openapi_extra={"requestBody": _BODY})
    async def run(request: Request, tenant_id: TenantId = None) -> dict[str, str]:
        wanted = await _read_request(request)
        try:
            job_id = await compute.run(wanted, asking(tenant_id), request.state.correlation_id)
        except ContractUnknown as error:
            raise _refused(404, "CONTRACT_UNKNOWN", str(error)) from None
        except ContractBroken as error:
            text = "the inputs violate the contract"
            raise _refused(422, "INPUTS_INVALID", text, error.errors) from None
        return {"job_id": str(job_id)}

    @api.get("/jobs/status/{job_id}")
    async def status(job_id: UUID, tenant_id: TenantId = None) -> Response:
        job = await own_job(job_id, asking(tenant_id))
        body = {
            "job_id": job.id,
            "status": job.status,
            "attempts": job.attempts,
            "last_error": msgspec.Raw((job.last_error or "null").encode()),
            "created_at": job.created_at,
            "started_at": job.started_at,
            "ended_at": job.ended_at,
        }
        return Response(msgspec.json.encode(body), media_type="application/json")

    @api.get("/jobs/result/{job_id}")
    async def result(job_id: UUID, tenant_id: TenantId = None) -> Response:
        job = await own_job(job_id, asking(tenant_id))
        outputs = await records.outputs(job.id)
        if outputs is None:
            raise _refused(409, "NO_RESULT", f"job {job.id} has no result; it is {job.status}")
        return Response(outputs, media_type="application/json")

    @api.get("/jobs/artifact/{artifact_id}")
    async def artifact(artifact_id: UUID, tenant_id: TenantId = None) -> Response:
        found = await records.content(artifact_id, asking(tenant_id))
        if found is None:
            raise _refused(404, "NOT_FOUND", f"artifact {artifact_id} does not exist")
        return Response(found.content, media_type=found.media_type, headers=_HARMLESS)

    return api


async def _correlate(
    request: Request, answer: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Use the caller's correlation id, or generate one; return it with every response."""
    given = request.headers.get(CORRELATION_HEADER, "")
    request.state.correlation_id = given if _CORRELATION_ID.fullmatch(given) else str(uuid4())
    response = await answer(request)
    response.headers[CORRELATION_HEADER] = request.state.correlation_id
    return response


async def _unavailable(_request: Request, _error: Exception) -> Response:
    detail = {"code": "STORE_UNAVAILABLE", "text": "can't reach the database; try again later"}
    return JSONResponse({"detail": detail}, status_code=503, headers={"retry-after": "1"})


async def _gone(_request: Request, _error: Exception) -> Response:
    """Respond to a client that disconnected while it was sending."""
    return Response(status_code=400)


async def _read_request(request: Request) -> RunRequest:
    try:
        return msgspec.json.decode(await read_body(request, BODY_BYTES_MAX), type=RunRequest)
    except TooLarge as error:
        raise _refused(413, "TOO_LARGE", str(error)) from None
    except msgspec.ValidationError as error:
        raise _refused(422, "REQUEST_INVALID", str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _refused(400, "NO_JSON", f"the body is not JSON: {error}") from None


def _refused(status: int, code: str, text: str, errors: list[str] | None = None) -> HTTPException:
    detail: dict[str, Any] = {"code": code, "text": text}
    return HTTPException(status, detail | ({"errors": errors} if errors else {}))
