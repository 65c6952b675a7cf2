"""The system in a test: AppServer and service on loopback, and a worker, in one event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any
from uuid import UUID

import aiohttp

from holdfast import Holdfast, JobFailed, Retry
from holdfast.api import make_api
from holdfast.api.server import Server, address_of, listen, make_server
from holdfast_systems.compute.appserver.faults import Faults
from holdfast_systems.compute.appserver.server import make_app
from holdfast_systems.compute.service import Compute
from holdfast_systems.compute.settings import ComputeSettings
from tests.support.processes import WAIT_SECONDS, wait_until
from tests.support.running import QUICK, working

TENANT = UUID("11111111-1111-4111-8111-111111111111")
OTHER_TENANT = UUID("22222222-2222-4222-8222-222222222222")
AT_ONCE = Retry.schedule([0.0], max_attempts=3)
INPUTS: dict[str, Any] = {"plot": [[0, 0], [20, 0], [20, 30], [0, 30]]}


def request(**changes: Any) -> dict[str, Any]:
    basics = {"app_id": "test", "definition": "house-fit", "version": "1.0.0", "inputs": INPUTS}
    return basics | changes


@asynccontextmanager
async def serving(server: Server, listening: socket.socket) -> AsyncIterator[None]:
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        await wait_until(lambda: server.started or serving.done(), "serving")
        yield
    finally:
        server.should_exit = True
        await serving


class Stage:
    def __init__(self, hf: Holdfast, compute: Compute, faults: Faults, solver: Any) -> None:
        self.hf = hf
        self.compute = compute
        self.faults = faults
        self.keys: dict[UUID | None, str] = {}
        self._solver = solver
        self.http: aiohttp.ClientSession

    def headers(self, tenant: UUID | None = TENANT) -> dict[str, str]:
        """Without a tenant, with a key that sees all tenants."""
        return {"authorization": f"Bearer {self.keys[tenant]}"}

    async def make_keys(self) -> None:
        for tenant in (TENANT, OTHER_TENANT, None):
            name = None if tenant is None else str(tenant)
            made = await self.hf.keys.create("test", scopes=["read", "enqueue"], tenant=name)
            self.keys[tenant] = made.key

    @property
    def solved(self) -> int:
        return int(self._solver.state.solved)

    async def post(
        self,
        body: Any,
        tenant: UUID | None = TENANT,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        data = {"data": body} if isinstance(body, bytes) else {"json": body}
        all_headers = {
            "content-type": "application/json",
            **self.headers(tenant),
            **(headers or {}),
        }
        async with self.http.post("/jobs/run", headers=all_headers, **data) as response:
            return response.status, await response.json()

    async def run(self, body: Any = None, tenant: UUID | None = TENANT) -> UUID:
        status, answer = await self.post(body or request(), tenant)
        assert status == 202, answer
        return UUID(answer["job_id"])

    async def get(self, path: str, tenant: UUID | None = TENANT) -> tuple[int, Any]:
        async with self.http.get(path, headers=self.headers(tenant)) as response:
            is_json = response.content_type.endswith("json")
            return response.status, await (response.json() if is_json else response.read())

    async def status(self, job_id: UUID, tenant: UUID | None = TENANT) -> dict[str, Any]:
        status, answer = await self.get(f"/jobs/status/{job_id}", tenant)
        assert status == 200, answer
        told: dict[str, Any] = answer
        return told

    async def until(
        self, job_id: UUID, holds: Callable[[dict[str, Any]], bool], tenant: UUID | None = TENANT
    ) -> dict[str, Any]:
        told: dict[str, Any] = {}

        async def look() -> bool:
            told.update(await self.status(job_id, tenant))
            return holds(told)

        await wait_until(look, lambda: f"as expected: {told}")
        return told

    async def ended(self, job_id: UUID, tenant: UUID | None = TENANT) -> dict[str, Any]:
        with suppress(JobFailed):
            await self.hf.result(job_id, timeout_seconds=WAIT_SECONDS)
        return await self.status(job_id, tenant)


@asynccontextmanager
async def staged(
    url: str, *, retry: Retry = AT_ONCE, timeout_seconds: float = 60.0, work: bool = True
) -> AsyncIterator[Stage]:
    """Service and AppServer on one port and, unless it is left out, a worker."""
    faults = Faults()
    solver = make_app(faults)
    hf = Holdfast(url, **QUICK)
    with listen("127.0.0.1", 0) as listening:
        address = address_of(listening)
        settings = ComputeSettings(
            app_server_url=address + "/appserver/gh/{def}:{ver}/solve",
            retry=retry,
            timeout_seconds=timeout_seconds,
        )
        compute = Compute(hf, settings)
        await hf.migrate()
        api = make_api(hf)
        api.mount("/appserver", solver)
        stage = Stage(hf, compute, faults, solver)
        worker = working(hf) if work else nullcontext()
        http = aiohttp.ClientSession(address)
        async with hf, serving(make_server(api), listening), http as stage.http, worker:
            await stage.make_keys()
            yield stage
