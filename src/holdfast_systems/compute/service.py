"""Compute: take requests, have them solved, keep what came out."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from uuid import UUID

import aiohttp

from holdfast import Context, Holdfast, Permanent, Transient
from holdfast_systems.compute.answers import Answer, take_apart
from holdfast_systems.compute.contract import ContractBroken, ContractUnknown, load_contracts
from holdfast_systems.compute.fingerprint import canonical, inputs_hash
from holdfast_systems.compute.limits import PRIORITY_DEFAULT, TIMEOUT_MARGIN_SECONDS
from holdfast_systems.compute.records import Records
from holdfast_systems.compute.rows import RequestRow, RunRequest
from holdfast_systems.compute.settings import ComputeSettings
from holdfast_systems.compute.solver import solve

_log = logging.getLogger(__name__)


class Compute:
    """The system on one Holdfast object: its tables, its job, its contracts."""

    def __init__(self, hf: Holdfast, settings: ComputeSettings) -> None:
        self.hf = hf
        self.settings = settings
        self.contracts = load_contracts()
        self.records = Records(hf)
        hf.resource(compute_http)
        self._job = hf.job(
            name="COMPUTE",
            queue="compute",
            priority=PRIORITY_DEFAULT,
            retry=settings.retry,
            timeout_seconds=settings.timeout_seconds + TIMEOUT_MARGIN_SECONDS,
        )(self._compute)

    async def run(self, asked: RunRequest, tenant: UUID | None, correlation_id: str) -> UUID:
        """Answer the job that computes this, or that has: a new one only if there is none."""
        contract = self.contracts.find(asked.definition, asked.version)
        inputs = contract.inputs.filled(asked.inputs)
        name = inputs_hash(tenant, asked.definition, asked.version, inputs)
        known = await self.records.answered(name)
        if known is not None:
            return known
        job_id = self.hf.new_id()
        async with self.hf.transaction() as connection:
            holder = await self.records.claim(connection, name, job_id)
            if holder != job_id:
                return holder
            request = RequestRow(
                id=job_id,
                tenant_id=tenant,
                app_id=asked.app_id,
                definition=asked.definition,
                version=asked.version,
                inputs_hash=name,
                payload_json=canonical(inputs).decode(),
                priority=asked.priority,
            )
            await self.records.insert(connection, request)
            await self._job.options(
                id=job_id,
                connection=connection,
                priority=asked.priority,
                tenant=None if tenant is None else str(tenant),
                correlation_id=correlation_id,
            ).enqueue(asked.definition, asked.version, name)
        return job_id

    async def _compute(self, ctx: Context, definition: str, version: str, inputs_hash: str) -> None:
        _tell(ctx, definition, version, "running")
        request = await self.records.request_of(ctx.job_id, inputs_hash)
        if request is None:
            raise Permanent("there is no request of this hash any more", code="REQUEST_MISSING")
        known = await self.records.answered(inputs_hash)
        answer = None if known is None else await self.records.copied(known)
        if answer is None:
            answer = await self._solved(ctx, request)
        async with ctx.completing() as connection:
            await self.records.keep(connection, ctx.job_id, ctx.attempt, answer)
            score = None if answer.score is None else float(answer.score)
            ctx.set_result({"score": score, "artifacts": len(answer.artifacts)})
        _tell(ctx, definition, version, "succeeded")

    async def _solved(self, ctx: Context, request: RequestRow) -> Answer:
        try:
            contract = self.contracts.find(request.definition, request.version)
        except ContractUnknown as error:
            # A worker of a newer version may know it.
            raise Transient(str(error), code="CONTRACT_UNKNOWN") from None
        outputs = await solve(
            ctx.resources["compute_http"],
            self.settings.solve_url(request.definition, request.version),
            request.payload_json,
            ctx.correlation_id,
            self.settings.timeout_seconds,
        )
        try:
            return take_apart(outputs, contract.outputs)
        except ContractBroken as error:
            raise Permanent(
                f"the outputs break their contract: {error}", code="OUTPUTS_INVALID"
            ) from None


async def compute_http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def _tell(ctx: Context, definition: str, version: str, status: str) -> None:
    fields = {
        "cid": ctx.correlation_id,
        "job_id": ctx.job_id,
        "status": status,
        "attempt": ctx.attempt,
        "definition": f"{definition}@{version}",
    }
    _log.info(status, extra={"event": status, "fields": fields})
