"""What the AppServer's answers mean for a job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from aiohttp import web

from holdfast import JobError, Permanent, RetryAfter, Transient
from holdfast_systems.compute.limits import OUTPUTS_BYTES_MAX, RETRY_AFTER_SECONDS_MAX
from holdfast_systems.compute.solver import Call, solve
from tests.support.odd_answers import BROKEN, UNREADABLE, odd_server

pytestmark = pytest.mark.heavy


@asynccontextmanager
async def answering(**answer: Any) -> AsyncIterator[str]:
    """The address of a server that gives this answer, or with `silent` none at all."""
    silent, over = answer.pop("silent", False), asyncio.Event()

    async def reply(request: web.Request) -> web.Response:
        await request.read()
        if silent:
            await over.wait()
        return web.Response(**answer)

    app = web.Application()
    app.router.add_post("/solve", reply)
    runner = web.AppRunner(app, shutdown_timeout=0.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/solve"
    finally:
        over.set()
        await runner.cleanup()


async def failure(url: str, timeout_seconds: float = 20.0) -> JobError:
    async with aiohttp.ClientSession() as http:
        with pytest.raises(JobError) as caught:
            await solve(http, Call(url, "{}", "order-77", uuid4(), 1), timeout_seconds)
    return caught.value


@pytest.mark.parametrize(
    ("statuses", "kind", "code"),
    [
        ((400, 401, 404, 409, 422), Permanent, "APP_4XX"),
        ((201, 204, 301), Permanent, "APP_ANSWER"),
        ((408, 425, 429), Transient, "APP_BUSY"),
        ((500, 503), Transient, "APP_5XX"),
    ],
)
async def test_a_refusal_is_permanent_and_a_failure_is_tried_again(
    statuses: tuple[int, ...], kind: type[JobError], code: str
) -> None:
    for status in statuses:
        async with answering(status=status) as url:
            error = await failure(url)
        assert (type(error), error.code, str(error)) == (
            kind, code, f"the AppServer answered {status}",
        )  # fmt: skip


async def test_a_failure_is_no_less_one_for_saying_much() -> None:
    async with answering(status=503, body=b"no\n" * OUTPUTS_BYTES_MAX) as url:
        error = await failure(url)
    assert (type(error), error.code) == (Transient, "APP_5XX")
    assert str(error).startswith("the AppServer answered 503: no no no")
    assert len(str(error)) < 400


@pytest.mark.parametrize(("said", "seconds"), [("40", 40), ("9" * 30, RETRY_AFTER_SECONDS_MAX)])
async def test_retry_after_is_honored_up_to_a_limit(said: str, seconds: float) -> None:
    async with answering(status=429, headers={"Retry-After": said}) as url:
        error = await failure(url)
    assert isinstance(error, RetryAfter)
    assert error.seconds == seconds


@pytest.mark.parametrize("body", [b"", b"{", b'"\xff"', b'"\\ud800"', b"[" * 100_000, b"1e999"])
async def test_an_answer_that_is_no_json_ends_the_job(body: bytes) -> None:
    async with answering(body=body) as url:
        error = await failure(url)
    assert (type(error), error.code) == (Permanent, "OUTPUTS_INVALID")


async def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    async with answering(body=bytes(OUTPUTS_BYTES_MAX + 1)) as url:
        error = await failure(url)
    assert (type(error), error.code) == (Permanent, "OUTPUTS_TOO_LARGE")


async def test_no_answer_and_no_server_are_tried_again() -> None:
    async with answering(silent=True) as url:
        error = await failure(url, timeout_seconds=0.05)
    assert (type(error), error.code) == (Transient, "APP_TIMEOUT")
    error = await failure(url)
    assert (type(error), error.code) == (Transient, "APP_UNREACHABLE")


@pytest.mark.parametrize("host", ["a..b", ".", "a" * 64, "[::1", "a:99999", "a:x", "a\\b"])
async def test_an_address_that_nobody_can_ask_is_tried_again(host: str) -> None:
    error = await failure(f"http://{host}/solve")
    assert (type(error), error.code) == (Transient, "APP_UNREACHABLE")


async def test_no_answer_is_more_than_a_failure_of_its_job() -> None:
    async with odd_server() as odd:
        for odd.answer in (*BROKEN.values(), *UNREADABLE.values()):
            assert (await failure(odd.url)).code.startswith(("APP_", "OUTPUTS_"))
