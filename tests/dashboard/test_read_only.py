"""A dashboard that only reads: pages open, nothing can be changed, and no login is skipped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast import ConfigurationError, Holdfast, HoldfastError, SchemaMismatch
from holdfast.api import make_api
from holdfast.api.callers import Guarded
from holdfast.api.gate import Gate
from holdfast.dashboard.page import PageRoute
from holdfast.dashboard.site import make_pages
from holdfast.operations.pepper import VARIABLE
from tests.dashboard.matrix import PAGES
from tests.support.access import World
from tests.support.dashboard import Browser, browsing
from tests.support.roles import installed_roles
from tests.support.running import QUICK

PEPPER = "a pepper that is long enough for all tests"
SCOPES = ["read", "enqueue", "operate", "work", "admin"]
WITHOUT_JOB = ("GET /", "GET /ui/jobs", "GET /ui/queues", "GET /ui/workers", "GET /ui/breakers")
REFUSED = "read-only|readonly|reading only"
LOGINS = ("POST /ui/login", "POST /ui/logout")

both_stores = pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)


@asynccontextmanager
async def only_read(url: str) -> AsyncIterator[Browser]:
    hf = Holdfast(url, read_only=True, **QUICK)
    async with hf, browsing(hf) as browser:
        yield browser


@both_stores
async def test_a_key_opens_the_pages_and_changes_nothing_whatever_its_scopes(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, PEPPER)
    async with Holdfast(store_url, **QUICK) as hf:
        await hf.migrate()
        key = await hf.keys.create("ann", scopes=SCOPES)
        before = await hf.audit.list()
    async with only_read(store_url) as browser:
        assert (await browser.get("/")).status_code == 303  # to the login
        assert (await browser.log_in(key)).status_code == 303
        for name in WITHOUT_JOB:
            if name in PAGES:
                answer = await browser.get(name.partition(" ")[2])
                assert answer.status_code in (200, 303), (name, answer.text)
        for name in PAGES:
            method, _, path = name.partition(" ")
            if method == "POST" and name not in LOGINS:
                answer = await browser.post(path.replace("{", "").replace("}", ""))
                assert answer.status_code == 405, (name, answer.text)
        for path in ("/v1/jobs", "/v1/queues/mail/pause", "/v1/keys", "/v1/leases"):
            assert (await browser.post(path)).status_code == 404
        assert (await browser.client.get("/v1/health/live")).status_code == 200
    async with Holdfast(store_url, **QUICK) as hf:
        assert await hf.audit.list() == before


@both_stores
async def test_the_database_itself_refuses_to_write(store_url: str) -> None:
    async with Holdfast(store_url, **QUICK) as hf:
        await hf.migrate()
    async with Holdfast(store_url, read_only=True) as hf:
        with pytest.raises(HoldfastError, match=REFUSED):
            await hf.queues.pause("mail")
        with pytest.raises(ConfigurationError, match="no pepper"):
            await hf.keys.create("ann", scopes=["read"])  # which would write a pepper first
        with pytest.raises(Exception, match=REFUSED):
            async with hf.transaction() as connection:
                await connection.execute("CREATE TABLE notes (note text)")
    async with Holdfast(store_url) as hf:
        assert await hf.queues.list() == []
        assert await hf.keys.list() == []


async def test_the_role_readonly_is_enough_and_a_wrong_key_is_not(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, PEPPER)
    async with installed_roles(postgres_url) as roles:
        async with Holdfast(roles.admin_url) as hf:
            key = await hf.keys.create("ann", scopes=SCOPES)
            await World(hf, None).queued("default")  # type: ignore[arg-type]
        async with Holdfast(roles.url("readonly"), read_only=True) as hf:
            await Gate(hf).check_open_to("127.0.0.1")
            monkeypatch.delenv(VARIABLE)
            with pytest.raises(ConfigurationError, match=f"set {VARIABLE} to the one"):
                await Gate(hf).check_open_to("127.0.0.1")
            monkeypatch.setenv(VARIABLE, PEPPER)
        async with only_read(roles.url("readonly")) as browser:
            wrong = await browser.log_in(key.key[:-1] + ("a" if key.key[-1] != "a" else "b"))
            assert wrong.status_code == 401
            assert (await browser.log_in(key)).status_code == 303
            for name in PAGES:
                method, _, path = name.partition(" ")
                if method == "GET" and "{" not in path and path != "/ui/live":
                    answer = await browser.get(path)
                    assert answer.status_code in (200, 303, 403, 422), (name, answer.text)


def test_there_are_no_forms_but_the_login_and_no_routes_of_the_api(local_url: str) -> None:
    api = make_api(Holdfast(local_url, read_only=True), pages=make_pages)
    pages = [each.page for each in api.routes if isinstance(each, PageRoute)]
    forms = {f"{page.method} {page.path}" for page in pages if page.method != "GET"}
    assert forms == {"POST /ui/login", "POST /ui/logout"}
    others = [each for each in api.routes if isinstance(each, Guarded)]
    assert {"/v1/health/live", "/v1/health/ready"} <= {each.path for each in others}
    assert all(each.methods == {"GET"} for each in others)
    assert not any(each.path.startswith("/v1/jobs") for each in others)


@both_stores
async def test_an_older_schema_is_told_and_stays_as_it_is(store_url: str) -> None:
    if store_url.startswith("sqlite"):
        await asyncio.to_thread(Path(store_url.removeprefix("sqlite:///")).touch)
    else:
        async with Holdfast(store_url) as hf, hf.transaction() as connection:
            await connection.execute("DROP SCHEMA holdfast CASCADE")
    with pytest.raises(SchemaMismatch, match="is empty; run: holdfast migrate"):
        async with Holdfast(store_url, read_only=True):
            pass
