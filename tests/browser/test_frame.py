"""What every page has: navigation, themes, keys, and a look that fits a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.browser.browsing import DESKTOP, PHONE, a_page, is_scrolled_sideways, violations
from tests.browser.stage import on_stage

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
async def test_every_page_of_the_menu_is_accessible_and_fits(
    browser: Browser, url: str, size: tuple[int, int], scheme: str
) -> None:
    async with (
        on_stage(url) as stage,
        a_page(browser, stage.url, size=size, scheme=scheme) as page,  # type: ignore[arg-type]
    ):
        await page.goto("/")
        links = await page.locator("nav.menu li a").evaluate_all("all => all.map(a => a.href)")
        assert len(links) >= 1
        for link in links:
            await page.goto(link)
            await expect(page.locator("h1")).to_have_count(1)
            assert await violations(page) == [], link
            assert not await is_scrolled_sideways(page), link


async def test_the_theme_that_was_chosen_stays(browser: Browser, url: str) -> None:
    async with on_stage(url) as stage, a_page(browser, stage.url) as page:
        await page.goto("/")
        await page.locator("[data-theme-toggle]").click()
        await page.locator("[data-theme-toggle]").click()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        await page.reload()
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_a_question_mark_shows_the_keys_and_escape_closes_them(
    browser: Browser, url: str
) -> None:
    async with on_stage(url) as stage, a_page(browser, stage.url) as page:
        await page.goto("/")
        await page.keyboard.press("?")
        await expect(page.locator("dialog#help")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("dialog#help")).to_be_hidden()
