"""Clients that wait for leases: together, until they are gone, or until something fails."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from uuid import UUID

import httpx
import pytest

from holdfast import State
from tests.support.api import served
from tests.support.leasing import Client, WatchedApp, job_of, lose_answer, make_app, take
from tests.support.processes import turn, wait_until
from tests.support.running import WAIT_SECONDS_MAX

CLIENTS = 500
BUSY = 5  # times as slow as this machine is with nothing else to do


@pytest.mark.heavy
async def test_hundreds_of_waiting_clients_cost_one_claim_per_burst(store_url: str) -> None:
    hf = make_app(store_url, poll_seconds=600.0)
    async with served(hf) as client:
        asking = [Client.asking(client.base_url, wait_seconds=50) for _ in range(CLIENTS)]
        clients = await asyncio.gather(*asking)
        await wait_until(
            lambda: hf.claims and hf.claims[-1][0] == CLIENTS, "a look for all of them"
        )
        hf.claims.clear()
        await hf.enqueue_many([job_of(hf).call(number) for number in range(CLIENTS)])
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            statuses = await asyncio.gather(*(each.status() for each in clients))
        assert Counter(statuses) == {200: CLIENTS}
        assert hf.claims == [(CLIENTS, CLIENTS)]
        for each in clients:
            each.leave()


async def attempts_of(hf: WatchedApp, job_id: UUID) -> tuple[State, int, int]:
    job = await hf.get(job_id)
    return job.state, job.attempts, job.releases


async def test_nothing_is_claimed_for_a_client_that_is_gone(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        gone = await Client.asking(client.base_url, wait_seconds=50, max=3)
        await wait_until(lambda: hf.claims, "a look for the first client")
        gone.leave()
        waiting = asyncio.create_task(take(client, wait_seconds=50))
        await wait_until(lambda: hf.claims[-1] == (1, 0), "a look for the second client alone")
        job = await job_of(hf).enqueue(1)
        (lease,) = await waiting
        assert (lease["job_id"], lease["attempt"]) == (str(job.id), 1)
        assert all(claimed <= 1 for _, claimed in hf.claims)


@pytest.mark.parametrize("when", ["after_claims", "after_assigns"])
async def test_the_job_of_a_client_that_is_gone_starts_elsewhere_within_a_second(
    store_url: str, when: str
) -> None:
    hf, second = make_app(store_url), make_app(store_url, poll_seconds=600.0)
    left_at = 0.0
    async with served(hf) as client, served(second) as elsewhere:
        gone = await Client.asking(client.base_url, wait_seconds=50)
        await wait_until(lambda: hf.claims, "a look for the first client")

        async def leave() -> None:
            nonlocal left_at
            gone.leave()
            left_at = time.monotonic()
            for _ in range(20):  # in which the server, on the same loop, sees it
                await turn()

        if when == "after_claims":
            hf.after_claims = leave
        else:
            hf.after_assigns = leave
        job = await job_of(hf).enqueue(1)
        await wait_until(lambda: left_at, "a claim for the first client")
        (lease,) = await take(elsewhere, wait_seconds=50)
        assert time.monotonic() - left_at < 1 * BUSY
        assert (lease["job_id"], lease["attempt"]) == (str(job.id), 1)
        assert await attempts_of(hf, job.id) == (State.RUNNING, 1, 0)


async def test_an_answer_that_can_not_be_written_releases_the_jobs(local_url: str) -> None:
    """It is larger than all buffers, and the client leaves in the middle."""
    hf = make_app(local_url)
    async with served(hf) as client:
        jobs = [await job_of(hf).enqueue("x" * 250_000) for _ in range(60)]
        gone = await Client.asking(client.base_url, max=100)
        assert await gone.status() == 200
        assert await attempts_of(hf, jobs[0].id) == (State.RUNNING, 1, 0)
        gone.leave()

        async def is_released() -> bool:
            return await attempts_of(hf, jobs[-1].id) == (State.QUEUED, 0, 0)

        await wait_until(is_released, "the release of the jobs")
        assert await attempts_of(hf, jobs[0].id) == (State.QUEUED, 0, 0)


async def test_a_repeated_answer_that_can_not_be_written_releases_nothing(local_url: str) -> None:
    """The client may have received the first one, and may be running the jobs."""
    hf = make_app(local_url)
    async with served(hf) as client:
        await hf.enqueue_many([job_of(hf).call("x" * 250_000) for _ in range(60)])
        first = await take(client, max=100, request_id="a")
        gone = await Client.asking(client.base_url, max=100, request_id="a")
        assert await gone.status() == 200
        gone.leave()
        for _ in range(50):
            await turn()
        again = await take(client, max=100, request_id="a")
        assert [each["lease_id"] for each in again] == [each["lease_id"] for each in first]


async def test_a_claim_whose_answer_is_lost_is_503_and_costs_no_attempt(store_url: str) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        job = await job_of(hf).enqueue(1)
        hf.after_claims = lose_answer
        answer = await client.post("/v1/leases", json={"wait_seconds": 50})
        assert (answer.status_code, answer.json()["code"]) == (503, "database-unavailable")
        assert answer.headers["retry-after"] == "1"

        async def is_released() -> bool:
            return await attempts_of(hf, job.id) == (State.QUEUED, 0, 0)

        await wait_until(is_released, "the release of the stray")


async def test_an_assignment_whose_answer_is_lost_is_found_by_its_request_id(
    store_url: str,
) -> None:
    hf = make_app(store_url)
    async with served(hf) as client:
        jobs = [await job_of(hf).enqueue(number) for number in range(2)]
        hf.after_assigns = lose_answer
        assert (await client.post("/v1/leases", json={"request_id": "a"})).status_code == 503
        (lease,) = await take(client, request_id="a")
        assert (lease["job_id"], lease["attempt"]) == (str(jobs[0].id), 1)
        # Nobody can ask for this one again.
        assert (await client.post("/v1/leases", json={})).status_code == 503

        async def is_released() -> bool:
            return await attempts_of(hf, jobs[1].id) == (State.QUEUED, 0, 0)

        await wait_until(is_released, "the release of the stray")


async def test_the_end_of_the_server_ends_all_waits(local_url: str) -> None:
    hf = make_app(local_url)
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS_MAX))
        async with served(hf) as client:
            address = f"{client.base_url}/v1/leases"
            waiting = asyncio.create_task(own.post(address, json={"wait_seconds": 50}))
            await wait_until(lambda: hf.claims, "a first look")
        assert (await waiting).status_code == 204
