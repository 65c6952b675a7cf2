"""The five systems in a browser: each has a list, items, and files that are shown or offered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from scripts.screenshots import SYSTEMS, demonstrating, log_in
from tests.browser.browsing import a_page, is_scrolled_sideways, violations

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

PICTURED = {"passport", "compute"}


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[tuple[str, str]]:
    with demonstrating(tmp_path) as served:
        yield served


async def test_every_system_has_a_list_and_items_with_their_files(
    browser: Browser, demo: tuple[str, str]
) -> None:
    url, key = demo
    async with a_page(browser, url) as page:
        await log_in(page, key)
        menu = page.get_by_role("list", name="Systems").get_by_role("link")
        places = await menu.evaluate_all("all => all.map(each => each.pathname)")
        assert set(places) == {path for path, _ in SYSTEMS.values()}
        for path in places:
            await visit(page, path)


async def visit(page: Page, path: str) -> None:
    await page.goto(path)
    rows = page.locator("main tbody tr")
    await expect(rows.first).to_be_visible()
    assert await violations(page) == [], path
    await rows.last.get_by_role("link").first.click()  # the oldest: it has ended
    await expect(page).to_have_url(re.compile(re.escape(path) + "/[^/]+$"))
    await expect(page.locator("#item dl")).to_be_visible()
    assert await violations(page) == [], path
    assert not await is_scrolled_sideways(page), path
    pictures = page.locator("#item img")
    if path.rpartition("/")[2] in PICTURED:
        await expect(pictures.first).to_be_visible()
    for picture in await pictures.all():
        assert await picture.evaluate(
            "async each => { await each.decode(); return each.naturalWidth }"
        )
    for link in await page.locator("#item a[download]").all():
        href = await link.get_attribute("href")
        answer = await page.request.get(str(href))
        assert answer.status == 200, href
        assert "attachment" in answer.headers["content-disposition"]
        assert await answer.body()
