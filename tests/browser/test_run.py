"""Running a job by hand, and looking at what came out, in a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import Browser, Page, expect

from holdfast import Holdfast
from holdfast.api import make_api
from holdfast.api.server import make_server
from holdfast.dashboard import make_pages
from tests.browser.browsing import PHONE, a_page, is_scrolled_sideways, violations
from tests.support.api import serving
from tests.support.running import QUICK

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">'
    '<script>document.documentElement.setAttribute("class", "hacked")</script>'
    '<rect width="40" height="20"/></svg>'
)
FOCUSED = "document.activeElement.getAttribute('name') ?? document.activeElement.textContent"


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class App:
    hf: Holdfast
    url: str


@asynccontextmanager
async def an_app(folder: Path) -> AsyncIterator[App]:
    hf = Holdfast(f"sqlite:///{folder / 'jobs.db'}", **QUICK)

    @hf.job
    async def ship(
        order: int, lines: list[Line], to: Line | str | None = None, note: str = ""
    ) -> dict[str, Any]:
        return {"media_type": "image/svg+xml", "data": SVG}

    async with hf, serving(make_server(make_api(hf, pages=make_pages))) as port:
        yield App(hf, f"http://127.0.0.1:{port}")


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    async with an_app(tmp_path) as app:
        yield app


async def enqueued(app: App, page: Page) -> Any:
    await page.wait_for_url("**/ui/jobs/*")
    job = await app.hf.get(UUID(page.url.rpartition("/")[2]))
    return job.arguments


async def test_a_form_is_filled_in_by_keyboard_and_keeps_the_focus(
    browser: Browser, app: App
) -> None:
    async with a_page(browser, app.url) as page:
        await page.goto("/ui/run/ship")
        await page.get_by_label("order").fill("9007199254740993")
        add = page.get_by_role("button", name="Add an item")
        for number, sku in enumerate(("A-1", "A-2", "A-3")):
            await add.focus()
            await page.keyboard.press("Enter")
            await expect(page.locator(".item")).to_have_count(number + 1)
            assert await page.evaluate(FOCUSED) == f"value:/lines/{number}/sku"
            await page.keyboard.type(sku)
        await page.get_by_role("button", name="Remove lines 2").press("Enter")
        await expect(page.locator(".item")).to_have_count(2)
        assert await page.evaluate(FOCUSED) == "do"
        await page.locator("[name='way:/to']").select_option(label="Line")
        await page.locator("[name='value:/to/sku']").fill("B")
        assert await violations(page) == []
        await page.locator("[name='value:/lines/2/count']").fill("many")
        await page.get_by_label("order").press("Enter")
        await expect(page.get_by_text("this is not a number")).to_be_visible()
        assert await page.evaluate(FOCUSED) == "value:/lines/2/count"
        assert await violations(page) == []
        await page.keyboard.press("Control+A")
        await page.keyboard.type("3")
        await page.keyboard.press("Enter")
        assert await enqueued(app, page) == {
            "order": 9007199254740993,
            "lines": [{"sku": "A-1"}, {"sku": "A-3", "count": 3}],
            "to": {"sku": "B"},
        }


async def test_a_form_works_without_scripts(browser: Browser, app: App) -> None:
    async with a_page(browser, app.url, java_script_enabled=False, size=PHONE) as page:
        await page.goto("/ui/run/ship")
        await page.get_by_label("order").fill("7")
        await page.get_by_role("button", name="Add an item").click()
        await page.locator("[name='value:/lines/0/sku']").fill("A-1\n")
        await page.locator("[name='way:/to']").select_option(label="Text")
        await page.get_by_role("button", name="Change").first.click()
        await page.locator("[name='value:/to']").fill("home")
        await page.get_by_role("button", name="Edit as JSON").click()
        await expect(page.get_by_role("button", name="Edit in fields")).to_be_visible()
        await page.get_by_role("button", name="Edit in fields").click()
        await page.get_by_label("order").press("Enter")
        assert await enqueued(app, page) == {
            "order": 7, "lines": [{"sku": "A-1\n"}], "to": "home",
        }  # fmt: skip


async def test_a_picture_in_a_result_runs_no_script(browser: Browser, app: App) -> None:
    job = await app.hf._functions["ship"].enqueue(1, [])
    await app.hf.run_due()
    async with a_page(browser, app.url, size=PHONE) as page:
        await page.goto(f"/ui/jobs/{job.id}")
        picture = page.locator("img")
        await expect(picture).to_be_visible()
        await picture.scroll_into_view_if_needed()
        assert await picture.evaluate("each => each.decode().then(() => each.naturalWidth)") == 40
        assert not await is_scrolled_sideways(page)
    context = await browser.new_context(base_url=app.url)
    page = await context.new_page()
    await page.goto(f"/ui/jobs/{job.id}/result/0")
    assert await page.locator("svg").get_attribute("class") is None
    await context.close()


async def test_a_key_is_made_shown_once_and_rotated(browser: Browser, app: App) -> None:
    root = await app.hf.keys.create("root", scopes=["admin"])
    async with a_page(browser, app.url) as page:
        await page.goto("/ui/login?next=/ui/keys/new")
        await page.locator("[name=key]").fill(root.key)
        await page.keyboard.press("Enter")
        await page.get_by_label("Name").fill("ann")
        await page.get_by_role("button", name="Create key").click()
        key = await page.locator(".secret code").inner_text()
        assert await violations(page) == []
        await page.goto("/ui/keys")
        assert await violations(page) == []
        await page.locator("tr", has_text="ann").get_by_role("button", name="Rotate").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_label("Old key stops working").select_option(label="in an hour")
        await dialog.get_by_role("button", name="Rotate").click()
        await expect(page.locator("h1")).to_have_text("Key rotated")
        assert await page.locator(".secret code").inner_text() != key
        await page.goto("/ui/keys")
        await expect(page.locator("tr", has_text="rotated")).to_contain_text("ann")
        await page.goto("/ui/audit")
        await expect(page.get_by_role("link", name="key.rotate")).to_be_visible()
        assert await violations(page) == []
