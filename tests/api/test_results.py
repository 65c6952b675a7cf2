"""/v1/jobs/{id}/result over a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import Holdfast, Permanent, Retry
from holdfast.api import make_api
from holdfast.api.server import Server, listen, make_server
from tests.support.api import served
from tests.support.processes import wait_until
from tests.support.running import QUICK, WAIT_SECONDS_MAX, signal, working

EXACT: dict[str, Any] = {
    "most": 2**63 - 1,
    "least": -(2**63),
    "real": 0.1,
    "large": 1e300,
    "whole": 1.0,
    "text": "ü \u2028 \U0001f600",
    "nothing": None,
    "deep": [[[{}]]],
}


@pytest.fixture
def hf(store_url: str) -> Holdfast:
    return Holdfast(store_url, **QUICK)


async def test_a_result_comes_back_exactly(hf: Holdfast) -> None:
    @hf.job
    async def answer() -> dict[str, Any]:
        return EXACT

    job = await answer.enqueue()
    await hf.run_due()
    async with served(hf) as client:
        found = await client.get(f"/v1/jobs/{job.id}/result")
    assert found.status_code == 200
    assert found.json() == {"job_id": str(job.id), "state": "succeeded", "result": EXACT}
    for exact in (b"9223372036854775807", b"-9223372036854775808", b":1.0", b"1e300"):
        assert exact in found.content


async def test_a_job_that_is_not_over_is_202_with_its_state(hf: Holdfast) -> None:
    @hf.job
    async def later() -> None: ...

    job = await later.enqueue()
    async with served(hf) as client:
        for query in ("", "?wait_seconds=0", "?wait_seconds=0.05"):
            found = await client.get(f"/v1/jobs/{job.id}/result{query}")
            assert found.status_code == 202
            assert found.json() == {"job_id": str(job.id), "state": "queued"}
            assert int(found.headers["retry-after"]) >= 1


async def test_waiting_ends_with_the_job(hf: Holdfast) -> None:
    began, goes_on = asyncio.Event(), asyncio.Event()

    @hf.job
    async def gated() -> str:
        began.set()
        await goes_on.wait()
        return "through"

    job = await gated.enqueue()
    async with served(hf) as client, working(hf):
        asking = asyncio.create_task(client.get(f"/v1/jobs/{job.id}/result?wait_seconds=50"))
        await signal(began)
        goes_on.set()
        found = await asking
    assert (found.status_code, found.json()["result"]) == (200, "through")


async def test_a_job_that_did_not_succeed_is_409_with_its_error(hf: Holdfast) -> None:
    @hf.job(retry=Retry.none)
    async def fail() -> None:
        raise Permanent("no such customer", code="NO_CUSTOMER")

    failed, canceled = await fail.enqueue(), await fail.options(delay_seconds=60).enqueue()
    await hf.run_due()
    async with served(hf) as client:
        waiting = asyncio.create_task(client.get(f"/v1/jobs/{canceled.id}/result?wait_seconds=50"))
        found = await client.get(f"/v1/jobs/{failed.id}/result?wait_seconds=50")
        await hf.jobs.cancel(canceled.id, by="ann")
        found_canceled = await waiting
    assert found.status_code == found_canceled.status_code == 409
    problem = found.json()
    assert (problem["code"], problem["state"]) == ("job-failed", "failed")
    assert problem["job_id"] == str(failed.id)
    assert problem["error"]["code"] == "NO_CUSTOMER"
    assert "no such customer" in problem["error"]["text"]
    assert found_canceled.json()["state"] == "canceled"
    assert found_canceled.json()["error"] == {"code": "CANCELED", "text": "canceled by ann"}


async def test_unknown_jobs_and_those_of_other_tenants_are_not_found(hf: Holdfast) -> None:
    @hf.job
    async def job() -> None: ...

    other = await job.options(tenant="umbrella").enqueue()
    key = (await hf.keys.create("reader", scopes=["read"], tenant="acme")).key
    async with served(hf) as client:
        for job_id in (other.id, uuid4()):
            found = await client.get(
                f"/v1/jobs/{job_id}/result?wait_seconds=50",
                headers={"authorization": f"Bearer {key}"},
            )
            assert (found.status_code, found.json()["code"]) == (404, "job-not-found")


@pytest.mark.parametrize("given", ["-1", "51", "soon", "nan", "1e1"])
async def test_a_wait_that_is_not_0_to_50_seconds_is_refused(local_url: str, given: str) -> None:
    async with served(Holdfast(local_url)) as client:
        found = await client.get(f"/v1/jobs/{uuid4()}/result?wait_seconds={given}")
    assert found.status_code == 400
    assert found.json()["errors"][0]["parameter"] == "wait_seconds"


async def test_a_client_that_goes_away_is_no_longer_waited_for(local_url: str) -> None:
    hf = Holdfast(local_url, **QUICK)
    async with waiting_for(hf) as (server, job_id, address):
        watch = server.service.watch
        _, writer = await asyncio.open_connection(*address)
        writer.write(f"GET /v1/jobs/{job_id}/result?wait_seconds=50 HTTP/1.1\r\n".encode())
        writer.write(b"host: 127.0.0.1\r\n\r\n")
        await wait_until(lambda: watch.jobs == 1, "the request that waits")
        writer.close()
        await wait_until(lambda: watch.jobs == 0, "the end of its wait")


async def test_a_server_that_stops_answers_those_who_wait(local_url: str) -> None:
    hf = Holdfast(local_url, **QUICK)
    async with waiting_for(hf) as (server, job_id, address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(f"GET /v1/jobs/{job_id}/result?wait_seconds=50 HTTP/1.1\r\n".encode())
        writer.write(b"host: 127.0.0.1\r\n\r\n")
        await wait_until(lambda: server.service.watch.jobs == 1, "the request that waits")
        server.should_exit = True
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 202 ")
    assert b"retry-after: 1" in answer


@asynccontextmanager
async def waiting_for(hf: Holdfast) -> AsyncIterator[tuple[Server, UUID, tuple[str, int]]]:
    """A server, a job that nobody runs, and the server's address."""

    @hf.job
    async def never() -> None: ...

    job = await never.enqueue()
    with listen("127.0.0.1", 0) as listening:
        # Waiting for the end of the grace time would make the test fail by its length.
        server = make_server(make_api(hf), grace_seconds=10 * WAIT_SECONDS_MAX)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            yield server, job.id, listening.getsockname()
            server.should_exit = True
            await serving
    await hf.close()
