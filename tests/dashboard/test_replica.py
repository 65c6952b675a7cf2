"""A dashboard on a read replica: all of it works, and the primary does none of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast
from holdfast.api import make_api
from holdfast.api.server import make_server
from holdfast.dashboard.site import make_pages
from holdfast.operations.pepper import VARIABLE
from tests.dashboard.matrix import PAGES
from tests.support.api import client_of
from tests.support.dashboard import Browser
from tests.support.events import streaming
from tests.support.postgres import Server
from tests.support.processes import wait_until
from tests.support.running import QUICK

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

PEPPER = "a pepper that is long enough for all tests"


async def _add(a: int) -> int:
    return a


@pytest.fixture
async def primary(own_postgres: Server, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Holdfast]:
    monkeypatch.setenv(VARIABLE, PEPPER)
    hf = Holdfast(own_postgres.url("postgres"), **QUICK)
    await hf.migrate()
    async with hf:
        yield hf


async def test_every_page_opens_on_a_standby_and_follows_the_primary(
    own_postgres: Server, primary: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    key = await primary.keys.create("ann", scopes=["read", "enqueue", "operate", "work", "admin"])
    add = primary.job(_add)
    first = await add.enqueue(1)
    standby = own_postgres.follower("standby")
    try:
        standby.start()
        hf = Holdfast(standby.url("postgres"), read_only=True, **QUICK)
        server = make_server(make_api(hf, pages=make_pages, stream_keep_alive_seconds=0.05))
        async with client_of(server) as client:
            browser = Browser(client)
            assert (await browser.log_in(key)).status_code == 303
            for name in PAGES:
                method, _, path = name.partition(" ")
                if method == "GET" and "{" not in path and path != "/ui/live":
                    answer = await browser.get(path)
                    assert answer.status_code in (200, 303, 403, 422), (name, answer.text)
            assert (await browser.get(f"/ui/jobs/{first.id}")).status_code == 200
            cookies = "; ".join(f"{name}={text}" for name, text in browser.cookies.items())
            page = {"cookie": cookies, "sec-fetch-site": "same-origin"}
            async with streaming(client, "/ui/live", headers=page) as stream:
                second = await add.enqueue(2)
                await stream.until("changed")
                await wait_until(
                    lambda: _shows(browser, f"/ui/jobs/{second.id}"), "the new job is replicated"
                )
        assert caplog.messages == []  # a standby can't be listened to, and that is no trouble
    finally:
        standby.remove()


async def _shows(browser: Browser, path: str) -> bool:
    return (await browser.get(path)).status_code == 200
