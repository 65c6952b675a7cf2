"""Compute: accept requests, send them to the AppServer, store the results."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import aiohttp
import msgspec
import rfc8785
from msgspec import Meta

from holdfast import Context, Holdfast, Permanent, Tenant, Transient
from holdfast_systems.compute.answers import Answer, read_answer
from holdfast_systems.compute.contract import ContractBroken, ContractUnknown, load_contracts
from holdfast_systems.compute.limits import (
    APP_ID_CHARS_MAX,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    TIMEOUT_MARGIN_SECONDS,
)
from holdfast_systems.compute.records import Records, RequestRow
from holdfast_systems.compute.settings import ComputeSettings
from holdfast_systems.compute.solver import solve

if TYPE_CHECKING:
    from holdfast.api import Router

_log = logging.getLogger(__name__)


class RunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /jobs/run."""

    app_id: Annotated[
        str, Meta(min_length=1, max_length=APP_ID_CHARS_MAX, pattern=r"^[^\x00-\x1f\x7f]*$")
    ]
    definition: str
    version: str
    inputs: dict[str, Any]
    priority: Annotated[int, Meta(ge=0, le=PRIORITY_MAX)] = PRIORITY_DEFAULT


class Compute:
    """The system on one Holdfast object: its tables, its job and its contracts."""

    def __init__(self, hf: Holdfast, settings: ComputeSettings) -> None:
        self.hf = hf
        self.settings = settings
        self.contracts = load_contracts()
        self.records = Records(hf)
        hf.add_routes(self._make_routes)
        hf.resource(compute_http)
        self._job = hf.job(
            name="COMPUTE",
            queue="compute",
            priority=PRIORITY_DEFAULT,
            retry=settings.retry,
            timeout_seconds=settings.timeout_seconds + TIMEOUT_MARGIN_SECONDS,
        )(self._compute)

    def _make_routes(self, _service: object) -> Router:
        # Imported here, because workers and applications need no web framework.
        from holdfast_systems.compute.routes import routes

        return routes(self)

    async def run(self, wanted: RunRequest, tenant: Tenant, correlation_id: str) -> UUID:
        """Return the job for these inputs; enqueue a new one only if there is none."""
        contract = self.contracts.find(wanted.definition, wanted.version)
        inputs = contract.inputs.filled(wanted.inputs)
        name = hash_inputs(tenant.name, wanted.definition, wanted.version, inputs)
        if known := await self.records.answered_by(name, tenant):
            return known
        job_id = self.hf.new_id()
        async with tenant.transaction() as connection:
            holder = await self.records.claim(connection, name, tenant.name, job_id)
            if holder != job_id:
                return holder
            request = RequestRow(
                id=job_id,
                tenant_id=tenant.name,
                app_id=wanted.app_id,
                definition=wanted.definition,
                version=wanted.version,
                inputs_hash=name,
                payload_json=rfc8785.dumps(inputs).decode(),
                priority=wanted.priority,
            )
            await self.records.insert(connection, request)
            job = self._job.options(
                id=job_id,
                connection=connection,
                priority=wanted.priority,
                correlation_id=correlation_id,
            )
            await tenant.enqueue(job, wanted.definition, wanted.version, name)
        return job_id

    async def _compute(self, ctx: Context, definition: str, version: str, inputs_hash: str) -> None:
        _log_status(ctx, definition, version, "running")
        try:
            await self._answer(ctx, inputs_hash)
        except Exception as error:
            judged = ctx.judge(error)
            if judged.state.ended:
                async with ctx.failing(error) as connection:
                    await self.records.store_failure(connection, ctx.job_id, ctx.attempt, judged)
            raise
        _log_status(ctx, definition, version, "succeeded")

    async def _answer(self, ctx: Context, inputs_hash: str) -> None:
        request = await self.records.request_of(ctx.job_id, inputs_hash)
        if request is None:
            raise Permanent("the request of this job no longer exists", code="REQUEST_MISSING")
        known = await self.records.answered_by(inputs_hash)
        answer = await self.records.copy_answer(known) if known else None
        if answer is None:
            answer = await self._solve(ctx, request)
        async with ctx.completing() as connection:
            await self.records.store(connection, ctx.job_id, ctx.attempt, answer)
            score = None if answer.score is None else float(answer.score)
            ctx.set_result({"score": score, "artifacts": len(answer.artifacts)})

    async def _solve(self, ctx: Context, request: RequestRow) -> Answer:
        try:
            contract = self.contracts.find(request.definition, request.version)
        except ContractUnknown as error:
            # A worker with newer code may have it.
            raise Transient(str(error), code="CONTRACT_UNKNOWN") from None
        outputs = await solve(
            ctx.resources["compute_http"],
            self.settings.solve_url(request.definition, request.version),
            request.payload_json,
            ctx.correlation_id,
            self.settings.timeout_seconds,
        )
        try:
            return read_answer(outputs, contract.outputs)
        except ContractBroken as error:
            raise Permanent(
                f"the outputs violate the contract: {error}", code="OUTPUTS_INVALID"
            ) from None


def hash_inputs(tenant: str, definition: str, version: str, inputs: Any) -> str:
    """Hash one object, so that no value can run into the next."""
    named = {
        "tenant": tenant,
        "definition": definition,
        "version": version,
        "inputs": inputs,
    }
    return hashlib.sha256(rfc8785.dumps(named)).hexdigest()


async def compute_http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def _log_status(ctx: Context, definition: str, version: str, status: str) -> None:
    fields = {
        "cid": ctx.correlation_id,
        "job_id": ctx.job_id,
        "status": status,
        "attempt": ctx.attempt,
        "definition": f"{definition}@{version}",
    }
    _log.info(status, extra={"event": status, "fields": fields})
