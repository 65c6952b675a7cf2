"""How the server stops, whom it believes, and what it counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import Request

from holdfast import Holdfast
from holdfast.api import Router, Service, answer, describes, make_api
from holdfast.api.server import Server, listen, make_server, serve
from holdfast.domain.errors import ConfigurationError
from tests.support.api import client_of, served
from tests.support.processes import wait_until
from tests.support.running import QUICK, WAIT_SECONDS_MAX, seen_events
from tests.support.scraping import Scraped

LONG_SECONDS = 3600.0
PATH = "/tests/gate"


class Held:
    """A route that answers when the test lets it."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.released = asyncio.Event()

    def routes(self, _service: Service) -> Router:
        router = Router()

        @router.get(PATH, **describes("read", {200: dict[str, str]}))
        async def hold() -> Any:
            self.entered.set()
            await self.released.wait()
            return answer({})

        return router


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def app(local_url: str, held: Held) -> Holdfast:
    hf = Holdfast(local_url, **QUICK)
    hf.add_routes(held.routes)

    @hf.job
    async def resize(image: int) -> None:
        raise NotImplementedError

    return hf


def make(hf: Holdfast, **options: Any) -> Server:
    return make_server(make_api(hf, upkeep=False), **options)


async def test_a_stopping_server_ends_requests_that_wait_and_finishes_the_others(
    app: Holdfast, held: Held
) -> None:
    server = make(app, grace_seconds=LONG_SECONDS)
    async with client_of(server) as client:
        job_id = (
            await client.post("/v1/jobs", json={"name": "resize", "arguments": {"image": 1}})
        ).json()["id"]
        waiting = asyncio.create_task(client.get(f"/v1/jobs/{job_id}/result?wait_seconds=50"))
        working = asyncio.create_task(client.get(PATH))
        await held.entered.wait()
        await wait_until(lambda: server.service.traffic.in_flight == 2, "two requests in flight")
        server.stop()
        async with asyncio.timeout(WAIT_SECONDS_MAX / 2):
            assert (await waiting).status_code < 500
        assert not working.done()
        held.released.set()
        assert (await working).status_code == 200


async def test_a_second_request_to_stop_cuts_off_what_is_in_flight(
    app: Holdfast, held: Held
) -> None:
    server = make(app, grace_seconds=LONG_SECONDS)
    async with client_of(server) as client:
        working = asyncio.create_task(client.get(PATH))
        await held.entered.wait()
        server.stop()
        server.stop()
        answered = await working
        assert (answered.status_code, answered.json()["code"]) == (503, "not-ready")


async def test_what_is_in_flight_after_the_grace_period_is_cut_off(
    app: Holdfast, held: Held
) -> None:
    server = make(app, grace_seconds=0.1)
    async with client_of(server) as client:
        working = asyncio.create_task(client.get(PATH))
        await held.entered.wait()
        server.stop()
        assert (await working).status_code == 503


async def test_the_server_ends_with_the_error_of_its_worker(app: Holdfast) -> None:
    async def work() -> None:
        raise ConfigurationError("no such thing")

    with listen("127.0.0.1", 0) as listening, pytest.raises(ConfigurationError, match="no such"):
        await serve(make(app), listening, work())
    await app.close()


async def test_an_unexpected_error_is_a_problem_and_one_line_in_the_log(local_url: str) -> None:
    hf = Holdfast(local_url, **QUICK)

    def routes(_service: Service) -> Router:
        router = Router()

        @router.get(PATH, **describes("read", {200: dict[str, str]}))
        async def fail() -> Any:
            raise ZeroDivisionError

        return router

    hf.add_routes(routes)
    async with seen_events() as seen, served(hf) as client:
        failed = await client.get(PATH)
        assert (failed.status_code, failed.json()["code"]) == (500, "internal-error")
        assert len(seen.named("request_failed")) == 1
        told = Scraped((await client.get("/metrics")).text)
        assert told.value("holdfast_http_requests_total", route=PATH, status="500") == 1


@pytest.mark.parametrize(("proxies", "believed"), [(None, False), ("127.0.0.1", True)])
async def test_only_proxies_that_were_named_say_who_calls(
    proxies: str | None, believed: bool, app: Holdfast
) -> None:
    seen: list[str] = []

    def routes(_service: Service) -> Router:
        router = Router()

        @router.get("/tests/address", **describes("public", {200: dict[str, str]}))
        async def tell(request: Request) -> Any:
            assert request.client is not None
            seen.append(request.client.host)
            return answer({})

        return router

    app.add_routes(routes)
    async with client_of(make(app, proxies=proxies)) as client:
        await client.get("/tests/address", headers={"x-forwarded-for": "203.0.113.9"})
    assert seen == ["203.0.113.9" if believed else "127.0.0.1"]


async def test_metrics_count_requests_by_template_and_jobs_that_came_over_http(
    store_url: str,
) -> None:
    hf = Holdfast(store_url, **QUICK)

    @hf.job
    async def resize(image: int) -> None:
        raise NotImplementedError

    async with served(hf) as client:
        for image in range(3):
            job = await client.post(
                "/v1/jobs", json={"name": "resize", "arguments": {"image": image}}
            )
            assert job.status_code == 201, job.text
            await client.get(f"/v1/jobs/{job.json()['id']}")
        for path in ("/wp-login.php", "/v1/nothing"):
            await client.get(path)
        await client.request("PROPFIND", "/v1/nothing")
        scraped = await client.get("/metrics")
        assert scraped.headers["content-type"].startswith("text/plain; version=")
        told = Scraped(scraped.text)
        assert told.value("holdfast_enqueued_total", name="resize") == 3
        count = "holdfast_http_requests_total"
        assert told.value(count, method="POST", route="/v1/jobs", status="201") == 3
        assert told.value(count, route="/v1/jobs/{job_id}", status="200") == 3
        assert told.value(count, route="other", status="404") == 3
        assert told.value(count, method="other") == 1
        duration = "holdfast_http_request_duration_seconds_count"
        assert told.value(duration, route="/v1/jobs/{job_id}") == 3
        assert told.value("holdfast_http_requests_in_flight") == 1, "this one"


async def test_requests_are_logged_at_debug_level(app: Holdfast) -> None:
    async with seen_events() as seen, served(app) as client:
        headers = {"x-correlation-id": "order-77"}
        await client.get("/v1/jobs?limit=1", headers=headers)
        logged = await seen.first("request")
        assert logged.message == "GET /v1/jobs 200"
        assert logged.fields["correlation_id"] == "order-77"


async def test_a_client_that_goes_away_while_it_sends_is_no_error(app: Holdfast) -> None:
    async def half_a_body() -> AsyncIterator[bytes]:
        yield b'{"name": '
        raise ConnectionAbortedError

    async with seen_events() as seen, served(app) as client:
        headers = {"content-type": "application/json"}
        with pytest.raises(ConnectionAbortedError):
            await client.post("/v1/jobs", content=half_a_body(), headers=headers)
        assert (await client.get("/v1/health/live")).status_code == 200
    assert seen.named("request_failed") == []


@pytest.mark.parametrize(
    ("host", "problem"),
    [("203.0.113.1", "Cannot assign requested address"), ("no.such.host.invalid", "")],
)
def test_a_host_that_is_not_here_is_told(host: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"can't listen on {host}:0: .*{problem}"):
        listen(host, 0)
