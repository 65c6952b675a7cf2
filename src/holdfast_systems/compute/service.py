"""Compute: accept requests, send them to the AppServer, store the results."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import aiohttp
import msgspec
import rfc8785
from msgspec import Meta

from holdfast import Context, Holdfast, LeaseLost, Permanent, State, Tenant, Transient
from holdfast_systems.compute.answers import Answer, read_answer
from holdfast_systems.compute.contract import (
    Contract,
    ContractBroken,
    ContractUnknown,
    Flaw,
    load_contracts,
)
from holdfast_systems.compute.counters import ABANDONED, FAILED, RECEIVED, completed
from holdfast_systems.compute.limits import (
    APP_ID_CHARS_MAX,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    TIMEOUT_MARGIN_SECONDS,
)
from holdfast_systems.compute.messages import Messages
from holdfast_systems.compute.records import Records, RequestRow
from holdfast_systems.compute.settings import ComputeSettings
from holdfast_systems.compute.solver import Call, solve
from holdfast_systems.compute.status_lines import StatusLines
from holdfast_systems.compute.upkeep import Upkeep

if TYPE_CHECKING:
    from holdfast.api import Router
    from holdfast.dashboard.systems import SystemPages

QUEUE: Final = "compute"

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


class OutputsInvalid(Permanent):
    """The outputs violate their contract; `flaws` says where."""

    def __init__(self, broken: ContractBroken) -> None:
        super().__init__(f"the outputs violate the contract: {broken}", code="OUTPUTS_INVALID")
        self.flaws: tuple[Flaw, ...] = broken.flaws


class Compute:
    """The system on one Holdfast object: its tables, its job and its contracts. `messages` are
    those of its messenger, if that says more than the job's id."""

    def __init__(
        self, hf: Holdfast, settings: ComputeSettings, messages: Messages | None = None
    ) -> None:
        self.hf = hf
        self.settings = settings
        self._messages = messages or Messages()
        self.contracts = load_contracts(settings.contracts_dir)
        self.records = Records(hf)
        Upkeep(hf, self.records, settings.retention_days).start(QUEUE)
        hf.add_routes(self._make_routes)
        hf.add_pages(self._make_pages)
        hf.resource(compute_http)
        self._job = hf.job(
            name="COMPUTE",
            queue=QUEUE,
            priority=PRIORITY_DEFAULT,
            retry=settings.retries,
            timeout_seconds=settings.timeout_seconds + TIMEOUT_MARGIN_SECONDS,
        )(self._compute)

    def _make_routes(self, _service: object) -> Router:
        # Imported here, because workers and applications need no web framework.
        from holdfast_systems.compute.routes import routes

        return routes(self)

    def _make_pages(self, _service: object) -> SystemPages:
        from holdfast_systems.compute.pages import ComputePages

        return ComputePages(self)

    async def run(self, wanted: RunRequest, tenant: Tenant, correlation_id: str) -> UUID:
        """Return the job for these inputs; enqueue a new one only if there is none."""
        lines = StatusLines(_log, correlation_id, wanted.definition[:64], wanted.version[:20])
        try:
            contract = self.contracts.find(wanted.definition, wanted.version)
            inputs = contract.inputs.filled(wanted.inputs)
        except ContractUnknown as error:
            lines.say("refused", error_code="CONTRACT_UNKNOWN", error_text=str(error))
            raise
        except ContractBroken as error:
            places = " ".join(flaw.pointer or "/" for flaw in error.flaws)
            lines.say("refused", error_code="INPUTS_INVALID", error_text=f"see {places}")
            raise
        request = RequestRow(
            id=self.hf.new_id(),
            tenant_id=tenant.name,
            app_id=wanted.app_id,
            definition=wanted.definition,
            version=wanted.version,
            inputs_hash=hash_inputs(tenant.name, wanted.definition, wanted.version, inputs),
            payload_json=rfc8785.dumps(inputs).decode(),
            priority=wanted.priority,
        )
        job_id = await self._submit(request, tenant, correlation_id)
        if job_id == request.id:
            replace(lines, job_id=job_id).say("queued")
        elif (job := await self.records.job(job_id, tenant)) is not None:
            replace(lines, job_id=job_id, attempt=job.attempts).say(job.status, event="reused")
        return job_id

    async def _submit(self, request: RequestRow, tenant: Tenant, correlation_id: str) -> UUID:
        if known := await self.records.answered_by(request.inputs_hash, tenant):
            return known
        with self._messages.about(request):
            return await self._enqueue(request, tenant, correlation_id)

    async def _enqueue(self, request: RequestRow, tenant: Tenant, correlation_id: str) -> UUID:
        async with tenant.transaction() as connection:
            holder = await self.records.claim(
                connection, request.inputs_hash, tenant.name, request.id
            )
            if holder != request.id:
                return holder
            await self.records.insert(connection, request)
            job = self._job.options(
                id=request.id,
                connection=connection,
                priority=request.priority,
                correlation_id=correlation_id,
            )
            await tenant.enqueue(job, request.definition, request.version, request.inputs_hash)
        return request.id

    async def _compute(self, ctx: Context, definition: str, version: str, inputs_hash: str) -> None:
        lines = StatusLines(_log, ctx.correlation_id, definition, version, ctx.job_id, ctx.attempt)
        lines.say("running")
        request = await self.records.request_of(ctx.job_id, inputs_hash)
        try:
            if request is None:
                raise Permanent("the request of this job no longer exists", code="REQUEST_MISSING")
            await self.records.count(RECEIVED, request)
            await self._answer(ctx, request)
        except LeaseLost:
            raise
        except Exception as error:
            await self._fail(ctx, request, error, lines)
            raise
        lines.say("succeeded")

    async def _fail(
        self, ctx: Context, request: RequestRow | None, error: Exception, lines: StatusLines
    ) -> None:
        """Record the failure together with the end of the attempt. A job that is to be retried is
        queued, not failed."""
        async with ctx.failing(error) as connection:
            judged = ctx.judge(error)
            if judged.state.ended:
                flaws = error.flaws if isinstance(error, OutputsInvalid) else ()
                await self.records.store_failure(connection, ctx.job_id, ctx.attempt, judged, flaws)
            if request is not None:
                counts = FAILED if judged.state.ended else ABANDONED
                await self.records.count(counts, request, connection)
        text = (judged.text or "").partition("\n")[0]
        status = "failed" if judged.state is State.DEAD else judged.state.value
        event = "failed" if judged.state.ended else "abandoned"
        lines.say(status, event=event, error_code=judged.code, error_text=text)

    async def _answer(self, ctx: Context, request: RequestRow) -> None:
        known = await self.records.answered_by(request.inputs_hash)
        answer = await self.records.copy_answer(known) if known else None
        latency_ms = None
        if answer is None:
            begun = asyncio.get_running_loop().time()
            outputs, contract = await self._solve(ctx, request)
            latency_ms = (asyncio.get_running_loop().time() - begun) * 1000
            answer = _read(outputs, contract)
        async with ctx.completing() as connection:
            await self.records.store(connection, ctx.job_id, ctx.attempt, answer)
            await self.records.count(completed(latency_ms), request, connection)
            score = None if answer.score is None else float(answer.score)
            ctx.set_result({"score": score, "artifacts": len(answer.artifacts)})

    async def _solve(self, ctx: Context, request: RequestRow) -> tuple[object, Contract]:
        try:
            contract = self.contracts.find(request.definition, request.version)
        except ContractUnknown as error:
            # A worker with newer code, or with the folder of the contract, may have it.
            raise Transient(str(error), code="CONTRACT_UNKNOWN") from None
        call = Call(
            url=self.settings.solve_url(request.definition, request.version),
            payload_json=request.payload_json,
            correlation_id=ctx.correlation_id,
            job_id=ctx.job_id,
            attempt=ctx.attempt,
        )
        http = ctx.resources["compute_http"]
        return await solve(http, call, self.settings.timeout_seconds), contract


def _read(outputs: object, contract: Contract) -> Answer:
    try:
        return read_answer(outputs, contract.outputs)
    except ContractBroken as error:
        raise OutputsInvalid(error) from None


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
