"""What goes wrong is explained on a page with the status that the API would answer."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from markupsafe import escape
from starlette.responses import Response

from holdfast import Holdfast, JobNotFound, StoreUnavailable, WrongState
from holdfast.api.limits import KEY_KEPT_SECONDS
from holdfast.dashboard import Pages, Site, Visit
from holdfast.domain.scope import scoped_tenant
from tests.support.dashboard import LOGIN, Browser, LaterSeam, browsing

ERRORS: dict[str, tuple[int, Exception, str]] = {
    "missing": (404, JobNotFound(UUID(int=7)), "00000000-0000-0000-0000-000000000007"),
    "state": (409, WrongState("the job is <running>"), "The job is &lt;running&gt;."),
    "away": (
        503,
        StoreUnavailable("connection refused by 10.1.2.3"),
        "The database can&#39;t be reached",
    ),
    "secret": (409, WrongState(f"the key hfk_{'a' * 12}_{'b' * 52}"), f"hfk_{'a' * 12}_***"),
    "bug": (500, ZeroDivisionError("inner workings"), "Unexpected error"),
}


def failing(_site: Site) -> Pages:
    pages = Pages()

    @pages.get("/ui/test/{name}", needs="read")
    async def fail(visit: Visit) -> Response:
        raise ERRORS[visit.path["name"]][1]

    @pages.get("/ui/forgotten")
    async def forgotten(visit: Visit) -> Response:
        return visit.render("start.html", title="everything")

    return pages


@pytest.fixture
async def browser(local_hf: Holdfast) -> AsyncIterator[Browser]:
    async with browsing(local_hf, failing) as browser:
        yield browser


@pytest.mark.parametrize("name", ERRORS)
async def test_an_error_becomes_a_page_with_the_correlation_id(browser: Browser, name: str) -> None:
    status, _, text = ERRORS[name]
    page = await browser.get(f"/ui/test/{name}", {"x-correlation-id": "of-this-test"})
    assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert text in page.text
    assert "of-this-test" in page.text
    assert "inner workings" not in page.text
    assert "10.1.2.3" not in page.text
    assert ("retry-after" in page.headers) == (status == 503)
    told: Any = await browser.get(f"/ui/test/{name}", {"x-live": "1"})
    assert (told.status_code, told.headers["content-type"]) == (status, "application/problem+json")


async def test_a_bug_is_logged_with_its_correlation_id(
    browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    await browser.get("/ui/test/bug", {"x-correlation-id": "of-this-test"})
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "inner workings" in record.getMessage()


async def test_there_is_a_page_for_what_does_not_exist(browser: Browser) -> None:
    page = await browser.get("/ui/no/such/page")
    assert (page.status_code, "There is no such page." in page.text) == (404, True)
    assert 'href="/"' in page.text


async def test_a_page_that_names_no_scope_is_denied(browser: Browser) -> None:
    page = await browser.get("/ui/forgotten")
    assert (page.status_code, "everything" in page.text) == (403, False)


async def test_what_a_key_does_not_allow_is_denied_and_in_the_audit_log(
    local_hf: Holdfast,
) -> None:
    key = await local_hf.keys.create("loader", scopes=["enqueue"], tenant="acme")
    async with browsing(local_hf, failing) as browser:
        await browser.log_in(key)
        page = await browser.get("/ui/test/bug")
        assert (page.status_code, "lacks the scope" in page.text) == (403, True)
        assert "/ui/logout" in page.text  # to come back with another key
        denied = [each for each in (await local_hf.audit.list()).entries if each.key_id == key.id]
        assert (denied[0].action, denied[0].outcome) == ("GET /ui/test/{name}", "denied")


def scoped(_site: Site) -> Pages:
    pages = Pages()

    @pages.get("/ui/test/scope", needs="read")
    async def show_scope(visit: Visit) -> Response:
        return Response(f"{scoped_tenant()}")

    return pages


async def test_a_page_reads_the_database_in_the_scope_of_its_viewers_tenant(
    local_hf: Holdfast,
) -> None:
    tenants = (None, "acme", "globex", None)
    keys = [await local_hf.keys.create("x", scopes=["read"], tenant=each) for each in tenants]
    async with browsing(local_hf, scoped) as browser:
        seen = []
        for key in keys:
            await browser.log_in(key)
            seen.append((await browser.get("/ui/test/scope")).text)
        assert seen == ["None", "acme", "globex", "None"]


async def test_a_key_of_one_tenant_begins_with_its_jobs(local_hf: Holdfast) -> None:
    for scopes, tenant, place in ((["read"], "acme", "/ui/jobs"), (["enqueue"], "acme", None)):
        key = await local_hf.keys.create("x", scopes=scopes, tenant=tenant)
        async with browsing(local_hf) as browser:
            await browser.log_in(key)
            start = await browser.get("/")
            assert start.headers.get("location") == place
            page = start if place is None else await browser.get(place)
            assert (page.status_code, ">Overview<" in page.text) == (200, False)
            assert ("takes the scope <code>read</code>" in page.text) == (place is None)


async def test_a_database_that_is_away_is_told_and_lets_nobody_in(tmp_path: Path) -> None:
    seam = LaterSeam()
    hf = Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}", seam=seam)
    async with browsing(hf) as browser:
        assert (await browser.get("/")).status_code == 200
        (tmp_path / "jobs.db").rename(tmp_path / "away.db")
        seam.pass_time(KEY_KEPT_SECONDS)
        for path in ("/", LOGIN, "/ui/jobs?q=state:dead&cursor=x"):
            page = await browser.get(path)
            assert (page.status_code, page.headers["retry-after"]) == (503, "1")
            assert f'<a href="{escape(path)}">Try again</a>' in page.text
