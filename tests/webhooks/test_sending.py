"""One request, whatever the receiver does."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.webhooks.limits import HEADER_CHARS_KEPT, RESPONSE_BYTES_KEPT, RESPONSE_BYTES_MAX
from holdfast.webhooks.presets import Request
from holdfast.webhooks.sender import Report, open_client, send
from tests.support.odd_answers import BROKEN, UNREADABLE, odd_server
from tests.support.processes import wait_until
from tests.webhooks.receiving import Receiver, receiving
from tests.webhooks.shop import make_policy

pytestmark = pytest.mark.heavy


async def post(url: str, timeout_seconds: float = 10) -> Report:
    policy = make_policy(timeout_seconds=timeout_seconds)
    async with open_client(policy) as client:
        return await send(client, policy, url, Request({"webhook-id": "1"}, b"{}"))


@asynccontextmanager
async def answering(answer: bytes, *, for_ever: bool = False) -> AsyncIterator[str]:
    """A server that says these bytes to anybody, once or for ever."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            while for_ever:
                writer.write(b"x" * 10_000)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


@pytest.mark.parametrize("status", [200, 201, 204])
async def test_2xx_is_success(status: int) -> None:
    async with receiving(status) as receiver:
        report = await post(receiver.url)
    assert (report.response_status, report.error_code) == (status, None)


@pytest.mark.parametrize("status", [300, 302, 400, 404, 429, 500, 503])
async def test_any_other_status_is_an_error_with_its_number(status: int) -> None:
    async with receiving(status) as receiver:
        report = await post(receiver.url)
    assert (report.response_status, report.error_code) == (status, f"HTTP_{status}")


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.answers = [307]
    receiver.headers = {"Location": "/elsewhere"}
    report = await post(receiver.url)
    assert report.error_code == "HTTP_307"
    assert [request.path for request in receiver.requests] == ["/hook"]


async def test_a_proxy_of_the_environment_is_not_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert (await post(receiver.url)).error_code is None


async def test_a_receiver_that_says_nothing_is_a_timeout(receiver: Receiver) -> None:
    receiver.gate.clear()
    report = await post(receiver.url, timeout_seconds=0.2)
    assert (report.response_status, report.error_code) == (None, "TIMEOUT")
    assert report.duration_ms >= 150


async def test_nobody_there_is_a_network_error() -> None:
    async with receiving() as receiver:
        url = receiver.url
    report = await post(url)
    assert report.error_code == "NETWORK_ERROR"
    assert report.error_text


@pytest.mark.parametrize("host", ["127.1", "a..b"])
async def test_a_url_that_can_not_be_used_is_told(host: str) -> None:
    assert (await post(f"http://{host}/")).error_code == "BAD_URL"


async def test_as_many_requests_go_out_at_once_as_the_worker_makes(receiver: Receiver) -> None:
    receiver.gate.clear()
    policy = make_policy()
    async with open_client(policy) as client:
        sent = [send(client, policy, receiver.url, Request({}, b"{}")) for _ in range(120)]
        sending = asyncio.gather(*sent)
        await wait_until(lambda: len(receiver.requests) == 120, "all 120 requests")
        receiver.gate.set()
        assert {report.error_code for report in await sending} == {None}


async def test_an_answer_that_is_no_http_is_a_bad_response() -> None:
    async with answering(b"hello\r\n\r\n") as url:
        assert (await post(url)).error_code == "BAD_RESPONSE"


async def test_a_receiver_that_hangs_up_is_a_network_error() -> None:
    async with answering(b"") as url:
        assert (await post(url)).error_code == "NETWORK_ERROR"


async def test_plain_text_where_tls_is_expected_is_told(receiver: Receiver) -> None:
    report = await post(receiver.url.replace("http:", "https:"))
    assert report.error_code == "TLS_FAILED"
    assert ssl.OPENSSL_VERSION


async def test_only_the_beginning_of_the_answer_is_kept(receiver: Receiver) -> None:
    receiver.body = b"y" * (2 * RESPONSE_BYTES_MAX)
    report = await post(receiver.url)
    assert report.response_body == b"y" * RESPONSE_BYTES_KEPT


async def test_an_answer_without_end_is_cut() -> None:
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
    async with answering(head, for_ever=True) as url:
        report = await post(url)
    assert (report.response_status, len(report.response_body or b"")) == (200, RESPONSE_BYTES_KEPT)


async def test_an_answer_that_breaks_off_after_its_status_counts() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort") as url:
        report = await post(url)
    assert (report.response_status, report.error_code) == (200, None)


async def test_headers_that_no_database_takes_are_made_storable() -> None:
    lines = [b"X-Odd: \xff\xfe", b"X-Long: " + b"z" * 1000, b"Set-Cookie: session=secret"]
    head = b"HTTP/1.1 200 OK\r\n" + b"\r\n".join(lines) + b"\r\nContent-Length: 0\r\n\r\n"
    async with answering(head) as url:
        report = await post(url)
    kept = json.loads(report.response_headers or "")
    assert kept["X-Odd"] == "\ufffd\ufffd"
    assert len(kept["X-Long"]) == HEADER_CHARS_KEPT
    assert "secret" not in str(kept)


async def test_no_answer_is_more_than_a_report() -> None:
    async with odd_server() as odd:
        for odd.answer in (*BROKEN.values(), *UNREADABLE.values()):
            report = await post(odd.url)
            assert (report.error_code is None) == (report.response_status in (200, 299))
