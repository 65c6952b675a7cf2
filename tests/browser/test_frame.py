"""What every page has: navigation, themes, keys, and a look that fits a phone."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.browsing import DESKTOP, PHONE, Scheme, a_page, is_scrolled_sideways, violations
from tests.browser.stage import Stage

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


@pytest.mark.parametrize(
    ("size", "scheme"),
    [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light")],
    ids=["desktop", "dark", "phone"],
)
async def test_every_page_is_accessible_and_fits(
    browser: Browser, stage: Stage, size: tuple[int, int], scheme: Scheme
) -> None:
    async with a_page(browser, stage.url, size=size, scheme=scheme) as page:
        await page.goto("/")
        menu = await page.locator("nav.menu li a").evaluate_all("all => all.map(a => a.pathname)")
        jobs = [f"/ui/jobs/{job_id}" for job_id in stage.ids.values()]
        others = [
            "/ui/jobs?q=state:dead",
            "/ui/jobs?q=nonsense:",
            "/ui/run/send_receipt",
            "/ui/queues/mail",
        ]
        broken = {}
        for path in [*menu, *jobs, *others, "/ui/nothing"]:
            await page.goto(path)
            await expect(page.locator("h1")).to_have_count(1)
            found = await violations(page)
            if await is_scrolled_sideways(page):
                found.append("scrolls sideways")
            if found:
                broken[path] = found
        assert broken == {}


async def test_the_theme_that_was_chosen_stays(page: Page) -> None:
    await page.goto("/")
    await page.locator("[data-theme-toggle]").click()
    await page.locator("[data-theme-toggle]").click()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_a_question_mark_shows_the_keys_and_escape_closes_them(page: Page) -> None:
    await page.goto("/")
    await page.keyboard.press("?")
    await expect(page.locator("dialog#help")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog#help")).to_be_hidden()


async def test_g_and_a_letter_open_a_page_and_slash_its_search(page: Page) -> None:
    await page.goto("/")
    await page.keyboard.press("g")
    await page.keyboard.press("j")
    await expect(page.locator("h1")).to_have_text("Jobs")
    await page.keyboard.press("/")
    await expect(page.get_by_role("combobox", name="Search jobs")).to_be_focused()
