"""What every page has: navigation, themes, keys, and a look that fits a phone."""

from __future__ import annotations

from typing import Final

import pytest
from playwright.async_api import Browser, Page, expect

from holdfast import Permanent
from tests.browser.browsing import DESKTOP, PHONE, Scheme, a_page, is_scrolled_sideways, violations
from tests.browser.stage import Stage

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

IS_CUT: Final = "all => all.some(each => each.scrollWidth > each.clientWidth)"


async def fail() -> None:
    raise Permanent("x" * 300, code="X" * 60)


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


async def test_tabs_that_do_not_fit_fade_out_and_show_the_current_one(
    browser: Browser, stage: Stage
) -> None:
    async with a_page(browser, stage.url, size=PHONE) as page:
        await page.goto("/ui/dead?state=resolved")
        tabs = page.locator(".tabs")
        assert await tabs.evaluate("all => all.scrollWidth > all.clientWidth")
        assert "gradient" in await tabs.evaluate("all => getComputedStyle(all).maskImage")
        await expect(tabs.get_by_role("link", name="Resolved")).to_be_in_viewport(ratio=0.95)


async def test_a_dialog_and_a_change_are_told_to_those_who_can_not_see_them(
    page: Page, stage: Stage
) -> None:
    job_id = stage.ids["later"]
    await page.goto(f"/ui/jobs/{job_id}")
    await page.get_by_role("button", name="Cancel job").click()
    await expect(
        page.get_by_role("dialog", name="Cancel this job?")
    ).to_have_accessible_description("It will not run.")
    await page.keyboard.press("Escape")
    await stage.hf.cancel(job_id, by="bob")
    await expect(page.locator("#announcer")).to_have_text("Job: canceled")


async def test_long_names_stay_inside_their_pages(browser: Browser, stage: Stage) -> None:
    name = "a-long-name-" + "x" * 80
    job = stage.hf.job(name=name, queue=name)(fail)
    options = job.options(tags=(name[:64],), correlation_id=name, tenant=name)
    first, second = await options.enqueue(), await options.enqueue()
    await stage.hf.run_due()
    await stage.hf.queues.pause(name, by=name, because=name)
    await stage.hf.breakers.open(name, by=name, because=name)
    paths = ["/", "/ui/jobs", "/ui/dead", "/ui/queues", f"/ui/queues/{name}", "/ui/breakers"]
    for size in (DESKTOP, PHONE):
        async with a_page(browser, stage.url, size=size) as page:
            wide = []
            for path in [
                *paths,
                f"/ui/jobs/{first.id}",
                f"/ui/jobs/{second.id}",
                f"/ui/run/{name}",
            ]:
                await page.goto(path)
                await expect(page.locator("main")).to_contain_text("a-long-name")
                if await is_scrolled_sideways(page):
                    wide.append(path)
            assert wide == []


async def test_what_is_seen_apart_is_heard_apart(page: Page, stage: Stage) -> None:
    await page.goto(f"/ui/jobs/{stage.ids['failed']}")
    await expect(page.locator(".timeline")).to_match_aria_snapshot(
        """
        - table:
          - rowgroup:
            - row /Attempt Outcome/
          - rowgroup:
            - row /1 failed .* after/
        """
    )
    await page.goto("/ui/dead")
    await page.get_by_role("link", name="no such address").click()
    await expect(page.get_by_role("list", name="Breadcrumbs")).to_match_aria_snapshot(
        """
        - list "Breadcrumbs":
          - listitem:
            - link "Dead letters"
          - listitem: /^[0-9a-f]{12}$/
        """
    )


async def test_tables_with_usual_names_fit_and_cut_none(browser: Browser, stage: Stage) -> None:
    report = stage.hf._functions["report"]
    for tenant in ("acme", "globex", "initech"):
        await report.options(tenant=tenant).enqueue(0)
    await stage.hf.run_due()
    async with a_page(browser, stage.url) as page:
        await page.goto(f"/ui/jobs/{stage.ids['later']}")
        await page.get_by_role("button", name="Cancel job").click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
        await expect(page.locator("#identity .state")).to_have_text("canceled")
        for path in ("/ui/audit", "/ui/dead"):
            await page.goto(path)
            await expect(page.locator("main tbody tr").first).to_be_visible()
            assert not await page.locator(".table-scroll, td .name").evaluate_all(IS_CUT), path
    async with a_page(browser, stage.url, size=(1024, 768)) as page:
        await page.goto("/ui/dead")
        await expect(page.locator("main tbody tr").first).to_be_visible()
        assert not await page.locator("td .name").evaluate_all(IS_CUT)
