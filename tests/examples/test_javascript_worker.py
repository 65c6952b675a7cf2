"""The worker in JavaScript: real Node.js, a real server, and what networks do to them."""

from __future__ import annotations

import asyncio
import shutil
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast import Holdfast, JobFailed, State
from holdfast.api import make_api
from holdfast.api.server import make_server
from tests.support.api import client_of, served
from tests.support.leasing import job_of, make_app
from tests.support.processes import ROOT, wait_until
from tests.support.proxy import LostAnswers, Proxy
from tests.support.running import WAIT_SECONDS_MAX, let_leases_run_out
from tests.support.services import missing

EXAMPLE = ROOT / "examples/javascript_worker"
HANDLERS = """
export const handlers = {
  async resize({ image }, { job, signal }) {
    if (image === "broken") throw Object.assign(new Error("can't read it"), { code: "BROKEN" });
    if (image === "endless" && job.attempt === 1) {
      job.progress = { percent: 40 };
      console.log("started");
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      console.log("aborted");
    }
    return { image, attempt: job.attempt };
  },
  async pay() {
    return "a lot";
  },
};
"""

pytestmark = pytest.mark.heavy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if shutil.which("node") is None:
        missing("Node.js is not installed")
    shutil.copy(EXAMPLE / "worker.mjs", tmp_path)
    (tmp_path / "handlers.mjs").write_text(HANDLERS, encoding="utf-8")
    return tmp_path


@asynccontextmanager
async def worker(folder: Path, url: object, **more: str) -> AsyncIterator[Process]:
    environment = {"HOLDFAST_URL": str(url), "PATH": "/usr/bin:/bin:/usr/local/bin", **more}
    process = await asyncio.create_subprocess_exec(
        shutil.which("node") or "node", "worker.mjs", cwd=folder, env=environment, stdout=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def says(process: Process, line: bytes) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        assert (await process.stdout.readline()).strip() == line


async def stopped(process: Process) -> int | None:
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return await process.wait()


class Trouble:
    """In front of the service: answers the first requests with these statuses, and records when
    each request came."""

    def __init__(self, app: ASGIApp, statuses: Sequence[int], came_at: list[float]) -> None:
        self._app = app
        self._statuses = list(statuses)
        self._came_at = came_at

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._came_at.append(asyncio.get_running_loop().time())
        app = Response(status_code=self._statuses.pop(0)) if self._statuses else self._app
        await app(scope, receive, send)


@asynccontextmanager
async def troubled(hf: Holdfast, *statuses: int) -> AsyncIterator[tuple[httpx.URL, list[float]]]:
    """Serve the API after this trouble; the block gets its address, and when requests came."""
    came_at: list[float] = []
    api = make_api(hf, upkeep=False)
    api.add_middleware(Trouble, statuses=statuses, came_at=came_at)
    async with client_of(make_server(api)) as client:
        yield client.base_url, came_at


def port_of(client: httpx.AsyncClient) -> int:
    port = client.base_url.port
    assert port is not None
    return port


async def test_it_runs_jobs_reports_failures_and_stops_on_a_signal(
    store_url: str, folder: Path
) -> None:
    hf = make_app(store_url)
    async with served(hf) as client, worker(folder, client.base_url) as process:
        jobs = [await job_of(hf).enqueue(number) for number in range(10)]
        for number, job in enumerate(jobs):
            assert await hf.result(job, WAIT_SECONDS_MAX) == {"image": number, "attempt": 1}
        broken = await job_of(hf).options(max_attempts=1).enqueue("broken")
        with pytest.raises(JobFailed, match="BROKEN: can't read it"):
            await hf.result(broken, WAIT_SECONDS_MAX)
        assert await stopped(process) == 0


async def test_a_result_that_the_server_rejects_is_a_failure(local_url: str, folder: Path) -> None:
    hf = make_app(local_url)
    async with served(hf) as client, worker(folder, client.base_url):
        job = await job_of(hf, "pay").options(max_attempts=1).enqueue(1)
        with pytest.raises(JobFailed, match="REJECTED: pay: the result: Expected int, got str"):
            await hf.result(job, WAIT_SECONDS_MAX)


async def test_a_job_of_a_killed_worker_is_run_by_another(local_url: str, folder: Path) -> None:
    hf = make_app(local_url, reclaim_seconds=0.1)
    async with served(hf, upkeep=True) as client:
        job = await job_of(hf).enqueue("endless")
        async with worker(folder, client.base_url) as process:
            await says(process, b"started")
            process.kill()
            await process.wait()
        await let_leases_run_out(local_url)
        async with worker(folder, client.base_url):
            result = await hf.result(job, WAIT_SECONDS_MAX)
    assert result == {"image": "endless", "attempt": 2}


async def test_it_renews_its_lease_with_progress_and_stops_a_job_that_is_canceled(
    local_url: str, folder: Path
) -> None:
    hf = make_app(local_url, lease_seconds=3.0)
    async with served(hf) as client, worker(folder, client.base_url) as process:
        job = await job_of(hf).enqueue("endless")
        await says(process, b"started")
        leased = (await hf.get(job.id)).lease_expires_at

        async def is_renewed() -> bool:
            return (await hf.get(job.id)).lease_expires_at != leased

        await wait_until(is_renewed, "a renewal")

        async def has_progress() -> bool:
            return bool((await hf.get(job.id)).progress == {"percent": 40})

        await wait_until(has_progress, "the handler's progress")
        await hf.cancel(job.id)
        await says(process, b"aborted")
        assert (await hf.get(job.id)).state is State.CANCELED


async def test_it_waits_longer_after_each_failed_request(local_url: str, folder: Path) -> None:
    hf = make_app(local_url)
    job = await job_of(hf).enqueue(1)
    async with troubled(hf, 503, 429, 500) as (url, came_at), worker(folder, url, SLOTS="1"):
        assert await hf.result(job, WAIT_SECONDS_MAX) == {"image": 1, "attempt": 1}
    waits = [later - earlier for earlier, later in pairwise(came_at)]
    least = [0.25, 0.5, 1.0]
    # A busy machine makes them longer, and a timer may be early by a fraction of a millisecond.
    assert all(wait > 0.99 * seconds for wait, seconds in zip(waits, least, strict=False)), waits


async def test_it_does_not_repeat_a_request_that_the_server_rejects(
    local_url: str, folder: Path
) -> None:
    hf = make_app(local_url)
    await hf.keys.create("a key that the worker does not have", scopes=["work"])
    async with troubled(hf) as (url, came_at), worker(folder, url, SLOTS="1") as process:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert await process.wait() == 1
    assert len(came_at) == 1


@asynccontextmanager
async def behind_a_proxy(hf: Any, folder: Path) -> AsyncIterator[Proxy]:
    async with served(hf) as client:
        with Proxy(port_of(client)) as proxy:
            async with worker(folder, f"http://127.0.0.1:{proxy.port}"):
                await wait_until(lambda: hf.claims, "the worker's first request")
                yield proxy


async def test_a_proxy_that_cuts_waiting_connections_costs_nothing(
    local_url: str, folder: Path
) -> None:
    hf = make_app(local_url)
    async with behind_a_proxy(hf, folder) as proxy:
        proxy.cut()
        jobs = [await job_of(hf).enqueue(number) for number in range(3)]
        results = [await hf.result(job, WAIT_SECONDS_MAX) for job in jobs]
    assert [result["attempt"] for result in results] == [1, 1, 1]


def was_lost(answers: LostAnswers) -> bool:
    return answers.lost == 1


async def test_lost_answers_cost_no_attempt(store_url: str, folder: Path) -> None:
    """Of a lease, and of an outcome: the server has done it, and the worker asks again."""
    hf = make_app(store_url)
    async with behind_a_proxy(hf, folder) as proxy:
        for marker in (b'"lease_id"', b'"run_at"'):
            lost = proxy.cut_answers(marker, times=1)
            job = await job_of(hf).enqueue(1)
            assert await hf.result(job, WAIT_SECONDS_MAX) == {"image": 1, "attempt": 1}
            await wait_until(partial(was_lost, lost), "a lost answer")
            ended = await hf.get(job.id)
            assert (ended.attempts, ended.releases, ended.crashes) == (1, 0, 0)
