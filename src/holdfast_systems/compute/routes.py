"""The routes: POST /jobs/run, GET /jobs/status|result|artifact|counters, behind the keys of the
service."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from fastapi import Request
from starlette.responses import Response

from holdfast.api import AsCaller, At, Caller, Problem, Router, answer, describes, read_body
from holdfast_systems.compute.answers import MEDIA_TYPES
from holdfast_systems.compute.contract import ContractBroken, ContractUnknown
from holdfast_systems.compute.counters import Counts, total
from holdfast_systems.compute.limits import BODY_BYTES_MAX
from holdfast_systems.compute.records import JobRow, Records
from holdfast_systems.compute.service import Compute, RunRequest

# A picture from elsewhere must not run scripts on this origin.
_HARMLESS: Final = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"
}
_ARTIFACT: Final = {
    "description": "OK",
    "content": {each: {"schema": {"type": "string"}} for each in MEDIA_TYPES},
}


class Accepted(msgspec.Struct, frozen=True):
    """The job that computes these inputs, or has already computed them."""

    job_id: UUID


class Status(msgspec.Struct, frozen=True):
    """The status of a job: queued, running, succeeded, failed or canceled."""

    job_id: UUID
    status: str
    attempts: int
    last_error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class Counters(msgspec.Struct, frozen=True):
    """Attempts: received, completed, abandoned (to be retried) and failed. The latency is that of
    the AppServer; it is null until there was an answer."""

    received: int
    completed: int
    abandoned: int
    failed: int
    average_latency_ms: float | None


class DefinitionCounters(Counters, frozen=True, kw_only=True):
    """The same, of one version of a definition."""

    definition: str
    version: str


class AllCounters(Counters, frozen=True, kw_only=True):
    """Those of the tenant's jobs, and of each version of a definition."""

    definitions: list[DefinitionCounters]


def routes(compute: Compute) -> Router:
    router = Router(prefix="/jobs", tags=["Compute"])
    _add_run(router, compute)
    _add_reading(router, compute.records)
    _add_counters(router, compute.records)
    return router


def _add_run(router: Router, compute: Compute) -> None:
    @router.post(
        "/run",
        **describes("enqueue", {202: Accepted}, ["not-found", "bad-arguments"], body=RunRequest),
    )
    async def run(request: Request, caller: AsCaller) -> Response:
        """Run a computation, unless the same inputs have already been computed."""
        wanted = await read_body(request, RunRequest, BODY_BYTES_MAX)
        tenant = caller.tenant_for(None)
        try:
            job_id = await compute.run(wanted, tenant, request.state.correlation_id)
        except ContractUnknown as error:
            raise Problem("not-found", str(error), reason="CONTRACT_UNKNOWN") from None
        except ContractBroken as error:
            places = [At(each.text, pointer=f"/inputs{each.pointer}") for each in error.flaws]
            text = "the inputs violate the contract"
            raise Problem("bad-arguments", text, places, reason="INPUTS_INVALID") from None
        return answer(Accepted(job_id), 202)


def _add_reading(router: Router, records: Records) -> None:
    async def own_job(job_id: UUID, caller: Caller) -> JobRow:
        job = await records.job(job_id, caller.tenant_for(None))
        if job is None:
            raise Problem("job-not-found", f"job {job_id} does not exist", job_id=job_id)
        return job

    @router.get("/status/{job_id}", **describes("read", {200: Status}, ["job-not-found"]))
    async def status(job_id: UUID, caller: AsCaller) -> Response:
        """Get the status of a job, and why its last attempt failed."""
        return answer(_status(await own_job(job_id, caller)))

    @router.get(
        "/result/{job_id}",
        **describes("read", {200: dict[str, Any]}, ["job-not-found", "wrong-state"]),
    )
    async def result(job_id: UUID, caller: AsCaller) -> Response:
        """Get the outputs of a job."""
        job = await own_job(job_id, caller)
        outputs = await records.outputs(job.id, caller.tenant_for(None))
        if outputs is None:
            text = f"job {job.id} has no result; it is {job.status}"
            raise Problem("wrong-state", text, job_id=job.id, reason="NO_RESULT")
        return Response(outputs, media_type="application/json")

    shown = describes("read", {200: None}, ["not-found"])
    shown["responses"][200] = _ARTIFACT

    @router.get("/artifact/{artifact_id}", **shown)
    async def artifact(artifact_id: UUID, caller: AsCaller) -> Response:
        """Get one artifact of a result, such as a picture."""
        found = await records.content(artifact_id, caller.tenant_for(None))
        if found is None:
            raise Problem("not-found", f"artifact {artifact_id} does not exist")
        return Response(found.content, media_type=found.media_type, headers=_HARMLESS)


def _add_counters(router: Router, records: Records) -> None:
    @router.get("/counters", **describes("read", {200: AllCounters}))
    async def counters(caller: AsCaller) -> Response:
        """Get how many attempts workers received, completed and abandoned, and how long the
        AppServer takes."""
        rows = await records.counters(caller.tenant_for(None))
        each = [
            DefinitionCounters(definition=row.definition, version=row.version, **_counters(row))
            for row in rows
        ]
        return answer(AllCounters(definitions=each, **_counters(total(rows))))


def _counters(counts: Counts) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in Counters.__struct_fields__}


def _status(job: JobRow) -> Status:
    return Status(
        job_id=job.id,
        status=job.status,
        attempts=job.attempts,
        last_error=None if job.last_error is None else msgspec.json.decode(job.last_error),
        created_at=job.created_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
    )
