"""Whether the service is ready, and what requests get while its database is down."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.api import Service, make_api
from holdfast.api.limits import DATABASE_SECONDS_MAX, READY_SECONDS_MAX
from holdfast.api.server import make_server
from tests.support.api import client_of, served
from tests.support.postgres import Server
from tests.support.processes import wait_until
from tests.support.proxy import Proxy
from tests.support.running import QUICK, seen_events

# How long a request may take when the database is silent, on a busy machine.
BOUNDED_SECONDS = DATABASE_SECONDS_MAX + 2 * READY_SECONDS_MAX + 6.0
JOB = {"name": "resize", "arguments": {"image": 1}}


def make_app(url: str) -> Holdfast:
    hf = Holdfast(url, **QUICK)

    @hf.job
    async def resize(image: int) -> None:
        raise NotImplementedError

    return hf


async def enqueue(client: httpx.AsyncClient) -> httpx.Response:
    return await client.post("/v1/jobs", json=JOB)


async def is_ready(client: httpx.AsyncClient) -> bool:
    return (await client.get("/v1/health/ready")).status_code == 200


def assert_unavailable(answer: httpx.Response, code: str = "database-unavailable") -> None:
    assert (answer.status_code, answer.json()["code"]) == (503, code)
    assert int(answer.headers["retry-after"]) >= 1


async def test_a_service_with_its_database_is_live_and_ready(store_url: str) -> None:
    async with served(make_app(store_url)) as client:
        live = await client.get("/v1/health/live")
        assert (live.status_code, live.json()) == (200, {"status": "live"})
        ready = await client.get("/v1/health/ready")
        assert (ready.status_code, ready.json()) == (200, {"status": "ready"})


async def test_a_check_that_fails_is_named_and_its_error_stays_in_the_log(local_url: str) -> None:
    trouble = ["broken: secret"]

    async def check() -> None:
        if trouble:
            raise RuntimeError(trouble[0])

    server = make_server(make_api(make_app(local_url), upkeep=False))
    server.service.health.add("conveyor", check)
    async with seen_events() as seen, client_of(server) as client:
        answer = await client.get("/v1/health/ready")
        assert_unavailable(answer, "not-ready")
        assert answer.json()["errors"] == [{"detail": "conveyor"}]
        assert "secret" not in answer.text
        assert (await seen.first("check_failed")).message == "conveyor: broken: secret"
        trouble.clear()
        await wait_until(lambda: is_ready(client), "ready")
        assert len(seen.named("check_failed")) == 1, "one line, however often it is asked"
        assert (await seen.first("check_passed")).message == "conveyor"


async def test_a_check_that_hangs_fails(local_url: str) -> None:
    server = make_server(make_api(make_app(local_url), upkeep=False))
    server.service.health.add("conveyor", asyncio.Event().wait)
    async with client_of(server) as client:
        assert_unavailable(await client.get("/v1/health/ready"), "not-ready")


async def test_many_probes_are_one_look(local_url: str) -> None:
    looks = []

    async def check() -> None:
        looks.append(1)

    server = make_server(make_api(make_app(local_url), upkeep=False))
    server.service.health.add("conveyor", check)
    async with client_of(server) as client:
        began = time.monotonic()
        await asyncio.gather(*[client.get("/v1/health/ready") for _ in range(50)])
        assert len(looks) <= 1 + (time.monotonic() - began)


async def test_a_schema_that_does_not_fit_is_not_ready(postgres_url: str) -> None:
    async with served(make_app(postgres_url)) as client:
        answer = await client.get("/v1/health/ready")
        assert_unavailable(answer, "not-ready")
        assert answer.json()["errors"] == [{"detail": "schema"}]


async def test_a_stopping_server_is_not_ready(local_url: str) -> None:
    server = make_server(make_api(make_app(local_url), upkeep=False))
    async with client_of(server) as client:
        server.service.stopping.set()
        answer = await client.get("/v1/health/ready")
        assert_unavailable(answer, "not-ready")


@pytest.mark.heavy
async def test_a_database_that_is_stopped_costs_answers_and_no_restart(
    own_postgres: Server,
) -> None:
    hf = make_app(own_postgres.url("postgres"))
    await hf.migrate()
    async with served(hf) as client:
        before = (await enqueue(client)).json()
        own_postgres.stop()
        assert_unavailable(await enqueue(client))
        assert_unavailable(await client.get(f"/v1/jobs/{before['id']}"))
        assert not await is_ready(client)
        assert (await client.get("/v1/health/live")).status_code == 200
        own_postgres.start()
        await wait_until(lambda: is_ready(client), "ready")
        after = await enqueue(client)
        assert after.status_code == 201, after.text
        for each in (before, after.json()):
            assert (await client.get(f"/v1/jobs/{each['id']}")).json()["state"] == "queued"


@pytest.mark.heavy
async def test_a_server_that_starts_without_its_database_serves_when_it_comes(
    own_postgres: Server,
) -> None:
    hf = make_app(own_postgres.url("postgres"))
    await hf.migrate()
    own_postgres.stop()
    async with served(hf) as client:
        assert_unavailable(await enqueue(client))
        assert not await is_ready(client)
        own_postgres.start()
        await wait_until(lambda: is_ready(client), "ready")
        assert (await enqueue(client)).status_code == 201


@pytest.fixture
async def silent(store_url: str) -> AsyncIterator[tuple[Proxy, httpx.AsyncClient, Service]]:
    """A service whose database can fall silent."""
    port, _, database = store_url.rpartition(":")[2].partition("/")
    with Proxy(int(port)) as proxy:
        server = make_server(make_api(make_app(proxy.url(database)), upkeep=False))
        async with client_of(server) as client:
            assert (await enqueue(client)).status_code == 201
            yield proxy, client, server.service
            proxy.resume()


on_postgres = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)


@pytest.mark.heavy
@on_postgres
async def test_a_silent_database_is_503_in_time_and_then_at_once(silent: Any) -> None:
    proxy, client, _ = silent
    proxy.stall()
    began = time.monotonic()
    answers = await asyncio.gather(*[enqueue(client) for _ in range(10)])
    for answer in answers:
        assert_unavailable(answer)
    first_seconds = time.monotonic() - began
    assert first_seconds < BOUNDED_SECONDS
    for _ in range(10):
        assert_unavailable(await enqueue(client))
    assert time.monotonic() - began < 2 * first_seconds, "nobody waits for what is known"
    proxy.resume()

    async def works() -> bool:
        return (await enqueue(client)).status_code == 201

    await wait_until(works, "an enqueue that works again")


@pytest.mark.heavy
@on_postgres
async def test_a_request_that_takes_long_is_not_cut_off_while_the_database_answers(
    silent: Any,
) -> None:
    _, client, service = silent

    async def slow_body() -> AsyncIterator[bytes]:
        yield b'{"name": "resize", '
        looked = service.health._looked_at
        await wait_until(lambda: service.health._looked_at != looked, "a look at the database")
        yield b'"arguments": {"image": 1}}'

    headers = {"content-type": "application/json"}
    answer = await client.post("/v1/jobs", content=slow_body(), headers=headers)
    assert answer.status_code == 201, answer.text
