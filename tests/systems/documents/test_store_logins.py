"""Logging in: what answers at the address, which logins it accepts, and why it rejects one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from holdfast import (
    Check,
    ConfigurationError,
    Holdfast,
    SchemaMismatch,
    Severity,
    StoreUnavailable,
)
from holdfast.runtime.seam import Seam
from holdfast_systems.documents.salesforce.client import Salesforce
from holdfast_systems.documents.salesforce.store import SalesforceStore
from tests.systems.documents.bench import Bench, claim

pytestmark = pytest.mark.heavy

Reply = tuple[int, Any]
LET_IN: Reply = 200, {"access_token": "t", "instance_url": "http://{host}"}
NO_SESSION: Reply = 401, [{"errorCode": "INVALID_SESSION_ID", "message": "Session expired"}]
TOO_MANY_LOGINS: Reply = (
    400,
    {"error": "invalid_grant", "error_description": "login rate exceeded"},
)


@asynccontextmanager
async def answering(
    logins: Sequence[Reply], queries: Sequence[Reply] = ()
) -> AsyncIterator[SalesforceStore]:
    """A store at an address that returns these answers, one after the other."""
    left = {"POST": list(logins), "GET": list(queries)}

    async def answer(request: web.Request) -> web.Response:
        status, body = left[request.method].pop(0)
        if isinstance(body, str):
            return web.Response(status=status, text=body)
        if "instance_url" in body:
            body = {**body, "instance_url": f"http://{request.host}"}
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    port = unused_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    url = f"salesforce+http://id:hidden-secret@127.0.0.1:{port}"
    store = SalesforceStore(url, Seam(), max_attempts=4)
    try:
        yield store
    finally:
        await store.close()
        await runner.cleanup()


async def test_an_ended_session_is_begun_anew(bench: Bench) -> None:
    store = await bench.store()
    await bench.create()
    await bench.switch("DELETE", "sessions")
    assert len(await claim(store)) == 1


async def test_nobody_at_the_address_is_told_as_unavailable() -> None:
    url = f"salesforce+http://id:hidden-secret@127.0.0.1:{unused_port()}"
    with pytest.raises(StoreUnavailable) as told:
        await SalesforceStore(url, Seam(), max_attempts=4).open()
    assert "hidden-secret" not in str(told.value)


async def test_a_wrong_secret_is_told_and_not_shown(bench: Bench) -> None:
    client = Salesforce(f"salesforce+http://integration:hidden-secret@{bench.host}")
    try:
        with pytest.raises(ConfigurationError, match="invalid client credentials") as told:
            await client.open()
    finally:
        await client.close()
    assert "hidden-secret" not in f"{told.value} {client!r}"


@pytest.mark.parametrize(
    "login",
    [
        (200, "<html>Welcome</html>"),
        (200, ""),
        (200, [1]),
        (200, {"access_token": None, "instance_url": "http://localhost"}),
        (302, "moved"),
        (500, "<html>"),
    ],
)
async def test_whoever_else_answers_is_told_as_unavailable(login: Reply) -> None:
    async with answering([login]) as store:
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1"):
            await store.open()


async def test_a_query_that_is_not_answered_as_one_is_told_as_unavailable() -> None:
    async with answering([LET_IN], [(200, {"hello": 1})]) as store:
        with pytest.raises(StoreUnavailable, match="does not speak Salesforce's API"):
            await store.open()


async def test_who_was_let_in_before_waits_to_be_let_in_again() -> None:
    found = 200, {"records": [], "done": True, "totalSize": 0}
    logins = [LET_IN, TOO_MANY_LOGINS, LET_IN]
    async with answering(logins, [found, NO_SESSION, NO_SESSION, found]) as store:
        await store.open()
        with pytest.raises(StoreUnavailable, match="login rate exceeded"):
            await claim(store)
        assert await claim(store) == []


async def test_an_organization_without_the_fields_is_refused() -> None:
    missing = [{"errorCode": "INVALID_FIELD", "message": "No such column 'Fence__c'"}]
    async with answering([LET_IN], [(400, missing)]) as store:
        with pytest.raises(SchemaMismatch, match="Fence__c"):
            await store.open()


@pytest.mark.parametrize("url", ["salesforce://host", "salesforce://", "salesforce+http:///x"])
def test_an_address_without_a_client_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="client_id:client_secret"):
        Holdfast(url)


@pytest.mark.parametrize("host", ["a..b", ".", "a" * 64, "[::1", "a:99999", "a:x", "a b@a..b"])
def test_an_address_whose_host_nobody_can_reach_is_refused_without_its_secret(host: str) -> None:
    with pytest.raises(ConfigurationError, match="host or port") as told:
        Holdfast(f"salesforce://id:hidden-secret@{host}")
    assert "hidden-secret" not in str(told.value)


async def test_an_examination_tells_whether_the_organization_answers(bench: Bench) -> None:
    found = await Holdfast(bench.url).examine()
    assert [(each.code, each.severity) for each in found.findings] == [
        (Check.UNREAD, Severity.INFO),
        (Check.REACHABLE, Severity.OK),
        (Check.QUEUES, Severity.OK),
    ]
    assert found.exit_code == 0
    url = f"salesforce+http://id:hidden-secret@127.0.0.1:{unused_port()}"
    found = await Holdfast(url).examine()
    assert (found.findings[0].code, found.exit_code) == (Check.REACHABLE, 2)
    assert "hidden-secret" not in repr(found)
