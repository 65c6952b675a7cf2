"""An open page says that it is not up to date and since when, and recovers by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from holdfast.api import make_api
from holdfast.api.server import make_server
from holdfast.dashboard import make_pages
from tests.browser.browsing import PHONE, is_scrolled_sideways, violations
from tests.browser.stage import Stage, fill, make_app
from tests.support.api import serving

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


async def test_a_page_says_that_the_database_is_away(
    page: Page, stage: Stage, tmp_path: Path
) -> None:
    await page.goto(f"/ui/jobs/{stage.ids['later']}")
    place = await page.locator("h1").bounding_box()
    late = page.locator(".late-notice")
    (tmp_path / "jobs.db").rename(tmp_path / "away.db")
    await expect(late).to_contain_text("The database is unavailable. This page is as of")
    assert await page.locator("h1").bounding_box() == place  # nothing moved
    assert await violations(page) == []
    (tmp_path / "away.db").rename(tmp_path / "jobs.db")
    await expect(late).to_have_count(0)
    await stage.hf.cancel(stage.ids["later"], by="ann")
    await expect(page.locator("#identity .state")).to_have_text("canceled")


async def test_a_page_says_that_the_server_is_away_and_catches_up(
    browser: Browser, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    hf = make_app(url)
    ids = await fill(hf)
    # Not the page of other tests: the console tells of refused connections.
    page = await browser.new_page(viewport={"width": PHONE[0], "height": PHONE[1]})
    state, late = page.locator("#identity .state"), page.locator(".late-notice")
    async with serving(make_server(make_api(hf, pages=make_pages))) as port:
        await page.goto(f"http://127.0.0.1:{port}/ui/jobs/{ids['later']}")
        await expect(state).to_have_text("queued")
    await expect(late).to_contain_text("The server doesn't answer. This page is as of")
    assert not await is_scrolled_sideways(page)
    hf = make_app(url)
    await hf.cancel(ids["later"], by="ann")
    async with serving(make_server(make_api(hf, pages=make_pages)), port):
        await expect(state).to_have_text("canceled")
        await expect(late).to_have_count(0)
    await page.close()
