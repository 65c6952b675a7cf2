"""Whatever answers in the gateway's place: it is one failure of one job, with a code."""

from __future__ import annotations

from uuid import uuid4

import aiohttp
import pytest

from holdfast import Transient
from holdfast_systems.convert.client import Answer, GatewayClient
from tests.support.odd_answers import BROKEN, UNREADABLE, OddServer, answer, odd_server

pytestmark = pytest.mark.heavy


async def asked(odd: OddServer) -> Answer:
    async with aiohttp.ClientSession() as session:
        return await GatewayClient(session, odd.url, 20.0).process(b"%PDF", "text", uuid4())


async def test_no_answer_is_more_than_a_failure() -> None:
    async with odd_server() as odd:
        for odd.answer in (*BROKEN.values(), *UNREADABLE.values()):
            failure = (await asked(odd)).failure
            assert failure is not None
            assert failure.code in ("GW_5XX", "GW_4XX")


@pytest.mark.parametrize("host", ["a..b", ".", "a" * 64, "[::1", "a:99999", "a:x", "a\\b"])
async def test_a_url_that_nobody_can_ask_is_a_failure_too(host: str) -> None:
    async with aiohttp.ClientSession() as session:
        client = GatewayClient(session, f"http://{host}", 20.0)
        failure = (await client.process(b"%PDF", "text", uuid4())).failure
    assert (type(failure), failure and failure.code) == (Transient, "GW_5XX")


@pytest.mark.parametrize("kind", ["text/html", "text/plain", "application/xhtml+xml", "é"])
async def test_a_page_for_people_is_no_result_though_it_is_well_formed(kind: str) -> None:
    async with odd_server() as odd:
        odd.answer = answer(b"<html><p>Sign in</p></html>", kind)
        got = await asked(odd)
    assert got.failure is not None
    assert (got.status, got.failure.code, got.xml) == (200, "GW_5XX", b"")


@pytest.mark.parametrize("kind", ["application/xml", "text/xml; charset=utf-8", "image/svg+xml"])
async def test_what_says_that_it_is_xml_is_taken(kind: str) -> None:
    async with odd_server() as odd:
        odd.answer = answer(b"<a/>", kind)
        assert await asked(odd) == Answer(200, b"<a/>")
