"""Compute, from a request to a drawn house: `holdfast demo compute --out DIR`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any
from uuid import UUID, uuid4

import aiohttp
import msgspec

from holdfast import Holdfast, HoldfastError
from holdfast_systems.demos.frame import Settings, Stage, until

PLOT = [[0, 0], [19, -2.5], [25, 14], [14, 24.5], [-2, 20]]
REQUEST = {
    "app_id": "demo",
    "definition": "house-fit",
    "version": "1.0.0",
    "inputs": {"plot": PLOT, "north": 24, "coverage_max": 0.36},
}


async def prepare(stage: Stage) -> Settings:
    solver = await stage.start(
        "appserver", "holdfast_systems.compute.appserver", env={"FAIL_ONCE": "true"}
    )
    template = solver.address + "/gh/{def}:{ver}/solve"
    return {"DATABASE_URL": stage.url, "APP_SERVER_URL": template}


async def run(stage: Stage) -> None:
    async with AsyncExitStack() as stack:
        hf = Holdfast(stage.url)
        stack.push_async_callback(hf.close)
        with stage.step("start an AppServer that fails once, and the API with a worker") as step:
            await stage.serve("holdfast_systems.compute.app:hf", prepare)
            http, other = [await stack.enter_async_context(await _tenant(stage, hf)) for _ in "12"]
            step.says(f"the API is at {stage.api.address}; two tenants have keys")
        job_id = await _request(stage, http)
        stack.push_async_callback(_cancel, hf, job_id)
        await _fail_once(stage, http, hf, job_id)
        await _get_result(stage, http, job_id)
        solver = stage.services["appserver"].address
        await _request_again(stage, http, other, job_id, solver)


async def _tenant(stage: Stage, hf: Holdfast) -> aiohttp.ClientSession:
    """A client with the key of a new tenant: the database may have seen this demo before."""
    tenant = f"demo-{uuid4()}"
    made = await hf.keys.create("demo", scopes=["read", "enqueue"], tenant=tenant)
    headers = {"authorization": f"Bearer {made.key}"}
    return aiohttp.ClientSession(stage.api.address, headers=headers)


async def _request(stage: Stage, http: aiohttp.ClientSession) -> str:
    with stage.step("POST /jobs/run with a plot and requirements for a house") as step:
        status, answer = await _post(http)
        step.expects(status == 202, f"202, not {status}: {answer}")
        job_id: str = answer["job_id"]
        step.says(f"202, job {job_id}")
    return job_id


async def _cancel(hf: Holdfast, job_id: str) -> None:
    """Leave nothing behind that the worker of the next demo would claim."""
    with suppress(HoldfastError):
        await hf.jobs.cancel(UUID(job_id))


async def _fail_once(stage: Stage, http: aiohttp.ClientSession, hf: Holdfast, job_id: str) -> None:
    with stage.step("the first attempt fails; the job waits to be retried") as step:
        waiting = await _wait(http, job_id, lambda job: job["last_error"] is not None)
        error = waiting["last_error"]["code"]
        step.says(f"{waiting['status']} after attempt {waiting['attempts']}: {error}")
        step.expects(waiting["status"] == "queued", "queued, not failed, before a retry")
    with stage.step("an operator retries it now; the second attempt succeeds") as step:
        await hf.jobs.retry(UUID(job_id))
        done = await _wait(http, job_id, _has_ended)
        step.says(f"{done['status']} on attempt {done['attempts']}")
        step.expects(done["status"] == "succeeded", f"succeeded, not {done}")


async def _get_result(stage: Stage, http: aiohttp.ClientSession, job_id: str) -> None:
    with stage.step("GET /jobs/result: the outputs, with a picture") as step:
        _, body = await _get(http, f"/jobs/result/{job_id}")
        outputs = msgspec.json.decode(body)
        best = outputs["results"][0]
        step.says(
            f"score {best['score']}, {best['width_m']} x {best['depth_m']} m,"
            f" {best['footprint_m2']} m²"
        )
        status, picture = await _get(http, outputs["artifacts"][0]["url"])
        step.expects(status == 200 and picture.startswith(b"<svg"), "an SVG as the artifact")
    result, house = stage.out / "result.json", stage.out / "house.svg"
    result.write_bytes(msgspec.json.format(body, indent=2))
    house.write_bytes(picture)
    stage.made(result, "the response of GET /jobs/result")
    stage.made(house, "the house on its plot")


async def _request_again(
    stage: Stage,
    http: aiohttp.ClientSession,
    other: aiohttp.ClientSession,
    job_id: str,
    solver: str,
) -> None:
    async def solved() -> int:
        async with http.get(f"{solver}/health") as response:
            return int((await response.json())["solved"])

    with stage.step("the same request again, with its keys in another order") as step:
        status, answer = await _post(http, dict(reversed(REQUEST.items())))
        step.says(f"{status}, the same job; computations: {await solved()}")
        step.expects(answer["job_id"] == job_id, "the job that has the result")
        step.expects(await solved() == 1, "one computation")
    with stage.step("another tenant asks for the job, then posts the same inputs") as step:
        status, _ = await _get(other, f"/jobs/result/{job_id}")
        _, answer = await _post(other)
        done = await _wait(other, answer["job_id"], _has_ended)
        step.says(f"{status}, then a new job: {done['status']}")
        step.expects(status == 404, "404 for another tenant's job")
        step.expects(answer["job_id"] != job_id, "a new job")
        step.expects(await solved() == 2, "a second computation")


async def _post(
    http: aiohttp.ClientSession, request: dict[str, Any] = REQUEST
) -> tuple[int, dict[str, Any]]:
    async with http.post("/jobs/run", json=request) as response:
        return response.status, await response.json(content_type=None)


async def _get(http: aiohttp.ClientSession, path: str) -> tuple[int, bytes]:
    async with http.get(path) as response:
        return response.status, await response.read()


def _has_ended(job: dict[str, Any]) -> bool:
    return job["status"] not in ("queued", "running")


async def _wait(
    http: aiohttp.ClientSession, job_id: str, holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    async def status() -> dict[str, Any]:
        _, body = await _get(http, f"/jobs/status/{job_id}")
        return msgspec.json.decode(body, type=dict[str, Any])

    return await until(status, holds)
