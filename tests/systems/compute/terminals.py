"""The system as it is run in three terminals: AppServer, API and worker, each a real process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from holdfast import Holdfast
from tests.support.processes import Process, wait_until
from tests.systems.compute.stage import TENANT, request

APP = "holdfast_systems.compute.app:hf"
FIELDS = ("cid", "job_id", "status", "attempt", "definition@version")


@dataclass
class Terminals:
    hf: Holdfast
    http: aiohttp.ClientSession
    appserver: Process
    api: Process
    worker: Process

    async def post(self, cid: str, **changes: Any) -> tuple[int, dict[str, Any]]:
        headers = {"x-correlation-id": cid}
        async with self.http.post(
            "/jobs/run", json=request(**changes), headers=headers
        ) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> tuple[int, Any]:
        async with self.http.get(path) as response:
            return response.status, await response.json()

    async def until(self, job_id: str, *statuses: str, failed_once: bool = False) -> dict[str, Any]:
        """Poll the status, as a page in a browser would."""
        told: dict[str, Any] = {}

        async def look() -> bool:
            told.update((await self.get(f"/jobs/status/{job_id}"))[1])
            return told["status"] in statuses and (not failed_once or bool(told["last_error"]))

        await wait_until(look, lambda: f"{statuses}: {told}\n{self.worker.text}")
        return told

    async def lines(self, process: Process, cid: str, count: int) -> list[dict[str, Any]]:
        """The lines of the log about one request, once there are so many."""

        def found() -> list[dict[str, Any]]:
            whole = [json.loads(each) for each in process.text.splitlines() if each.endswith("}")]
            return [each for each in whole if each.get("cid") == cid]

        await wait_until(lambda: len(found()) >= count, lambda: process.text)
        return found()


@asynccontextmanager
async def terminals(
    url: str,
    folder: Path,
    messengers: str = "",
    faults: Mapping[str, str] | None = None,
    **settings: str,
) -> AsyncIterator[Terminals]:
    async with AsyncExitStack() as stack:

        def start(name: str, words: list[str], environment: Mapping[str, str]) -> Process:
            process = Process(name, ["-m", *words], folder, environment)
            stack.callback(process.kill)
            return process

        appserver = start(
            "appserver", ["holdfast_systems.compute.appserver", "--port=0"], faults or {}
        )
        hf = await stack.enter_async_context(Holdfast(url))
        key = await hf.keys.create("test", scopes=["read", "enqueue"], tenant=str(TENANT))
        await appserver.prints()
        address = json.loads(appserver.output[0])["address"]
        environment = {
            "DATABASE_URL": url,
            "APP_SERVER_URL": address + "/gh/{def}:{ver}/solve",
            "HOLDFAST_MESSENGERS": messengers,
            **settings,
        }
        command = ["holdfast.cli.main", "migrate", APP]
        migrate = start("migrate", command, environment)
        assert await migrate.ended() == 0, migrate.text
        command = ["holdfast.cli.main", "serve", APP, "--port=0", "--log-format=json"]
        api = start("api", command, environment)
        command = ["holdfast.cli.main", "worker", APP, "--log-format=json"]
        worker = start("worker", command, environment)
        api_address = (await api.logs("serving"))["message"]
        await worker.logs("worker_started")
        headers = {"authorization": f"Bearer {key.key}"}
        http = await stack.enter_async_context(aiohttp.ClientSession(api_address, headers=headers))
        yield Terminals(hf, http, appserver, api, worker)
