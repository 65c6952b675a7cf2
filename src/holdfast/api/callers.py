"""Who the caller is, and what it may do. A route that names no scope is denied."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from logging import INFO
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from holdfast.api.document import operation_id
from holdfast.api.openapi import ACROSS, ANY, PUBLIC, SCOPE
from holdfast.api.problems import Problem
from holdfast.app import Holdfast
from holdfast.domain.audit import Actor, Outcome
from holdfast.domain.errors import NotInThisStore, StoreError
from holdfast.domain.job import DEFAULT_TENANT
from holdfast.domain.keys import Key
from holdfast.domain.scope import narrow
from holdfast.observability import logs
from holdfast.operations.bulk import Bulk
from holdfast.operations.dead import Dead
from holdfast.operations.jobs import Jobs
from holdfast.tenant import Tenant

if TYPE_CHECKING:
    from holdfast.api.gate import Gate
    from holdfast.api.service import Service


Handler = Callable[[Request], Coroutine[Any, Any, Response]]


@dataclass(frozen=True, slots=True)
class Caller:
    """`name` appears in the audit log and as the one who canceled a job. `tenant` is None for a
    caller that sees all tenants."""

    hf: Holdfast
    name: str
    tenant: str | None
    scopes: frozenset[str]
    key: Key | None = None
    address: str | None = None
    correlation_id: str | None = None

    @property
    def key_id(self) -> str | None:
        return None if self.key is None else self.key.id

    @property
    def actor(self) -> Actor:
        return Actor(
            name=self.name,
            key_id=self.key_id,
            tenant=self.tenant,
            address=self.address,
            correlation_id=self.correlation_id,
        )

    async def audit(
        self,
        action: str,
        target: object = None,
        *,
        jobs: int = 1,
        because: str | None = None,
        outcome: Outcome = "allowed",
        connection: Any = None,
    ) -> None:
        """Add an entry to the audit log: `await caller.audit("job.cancel", job_id)`.

        With the `connection` of an `hf.transaction()`, the entry is committed with the change.
        Otherwise call it before the change, so that nothing changes without an entry.
        """
        log = self.hf.audit
        record = log.record if connection is None else partial(log.record_on, connection)
        shown = None if target is None else str(target)
        try:
            await record(self.actor, action, shown, jobs=jobs, because=because, outcome=outcome)
        except NotInThisStore:  # a store without tables: log it instead
            logs.event(INFO, "audit", f"{self.name}: {action} {shown or ''} ({outcome})")

    @asynccontextmanager
    async def audited(
        self,
        action: str,
        target: object = None,
        *,
        jobs: int = 1,
        because: str | None = None,
        connection: Any = None,
    ) -> AsyncIterator[None]:
        """Add an entry before the change in the block, and another if the change fails.

        With `connection`, the entry is committed or rolled back together with the change.
        """
        await self.audit(action, target, jobs=jobs, because=because, connection=connection)
        try:
            yield
        except Exception:
            if connection is not None:
                raise
            with suppress(StoreError):
                await self.audit(action, target, jobs=0, because=because, outcome="failed")
            raise

    @property
    def jobs(self) -> Jobs:
        return self.hf.jobs if self.tenant is None else self.hf.for_tenant(self.tenant).jobs

    @property
    def dead(self) -> Dead:
        return self.hf.dead if self.tenant is None else self.hf.for_tenant(self.tenant).dead

    @property
    def bulk(self) -> Bulk:
        return self.hf.bulk if self.tenant is None else self.hf.for_tenant(self.tenant).bulk

    def tenant_for(self, named: str | None) -> Tenant:
        """The tenant of a new job: the key's own, or any if the caller sees all tenants."""
        return self.hf.for_tenant(self.tenant_name_for(named))

    def tenant_name_for(self, named: str | None) -> str:
        if self.tenant is not None and named not in (None, self.tenant):
            raise Problem("not-allowed", "the key belongs to another tenant; omit the tenant")
        return self.tenant or named or DEFAULT_TENANT


class Guarded(APIRoute):
    """A route that is denied unless its description names a scope. `answer` is None if it needs
    FastAPI, which resolves its parameters."""

    answer: Handler | None

    def get_route_handler(self) -> Handler:
        direct = self._direct_handler()
        handle = direct or super().get_route_handler()
        described = self.openapi_extra or {}
        scope, across = described.get(SCOPE), described.get(ACROSS, False)

        async def guarded(request: Request) -> Response:
            if scope is None:
                raise Problem("not-allowed", "this route has no scope, so nobody can call it")
            if scope == PUBLIC:
                return await handle(request)
            service: Service = request.app.state.service
            return await service.health.bounded(admitted(request, service.gate, scope))

        async def admitted(request: Request, gate: Gate, scope: str) -> Response:
            caller = await gate.admit(request)
            try:
                check_allowed(caller, scope, across=across)
            except Problem:
                await self._record_denial(gate, caller, request)
                raise
            request.state.caller = caller
            narrow(caller.tenant)  # until the envelope ends, after the response
            return await handle(request)

        self.answer = None if direct is None else guarded
        return guarded

    def _direct_handler(self) -> Handler | None:
        """Call the endpoint without FastAPI if it takes only a request and a caller and returns a
        response: resolving parameters takes longer than most endpoints."""
        endpoint = self.endpoint
        signature = inspect.signature(endpoint, eval_str=True)
        if (
            {*signature.parameters} != {"request", "caller"}
            or signature.return_annotation is not Response
            or self.dependencies
        ):
            return None

        async def direct(request: Request) -> Response:
            response: Response = await endpoint(request=request, caller=request.state.caller)
            return response

        return direct

    async def _record_denial(self, gate: Gate, caller: Caller, request: Request) -> None:
        if gate.may_record_denial(caller):
            with suppress(StoreError):  # it is denied either way
                action = f"{request.method} {self.path_format}"
                await caller.audit(action, request.url.path, jobs=0, outcome="denied")


def check_allowed(caller: Caller, scope: str, *, across: bool) -> None:
    if scope != ANY and scope not in caller.scopes:
        raise Problem("not-allowed", f"the key {caller.name!r} lacks the scope {scope!r}")
    if across and caller.tenant is not None:
        raise Problem("not-allowed", "this requires a key that sees all tenants")


async def caller_of(request: Request) -> Caller:  # if it were not async, it would run in a thread
    caller: Caller = request.state.caller
    return caller


AsCaller = Annotated[Caller, Depends(caller_of)]


class Router(APIRouter):
    """A router whose routes are guarded."""

    def __init__(self, **options: Any) -> None:
        super().__init__(route_class=Guarded, generate_unique_id_function=operation_id, **options)
