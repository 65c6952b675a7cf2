"""Logging in with a key, and what a viewer gets to see."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.browsing import a_page, violations
from tests.browser.stage import Stage

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


async def log_in(page: Page, key: str) -> None:
    await page.get_by_label("Key").fill(key)
    await page.get_by_role("button", name="Log in").click()


async def test_a_viewer_logs_in_reads_and_is_offered_no_change(
    browser: Browser, stage: Stage
) -> None:
    key = await stage.hf.keys.create("vera", scopes=["read"])
    # `__Host-` cookies need a secure context, which localhost is.
    url = stage.url.replace("127.0.0.1", "localhost")
    async with a_page(browser, url) as page:
        await page.goto(f"/ui/jobs/{stage.ids['queued']}")
        await expect(page.locator("h1")).to_have_text("Log in")
        assert await violations(page) == []
        await log_in(page, "hfk_" + "a" * 12 + "_" + "a" * 52)
        await expect(page.locator(".error")).to_be_visible()
        await log_in(page, key.key)
        await expect(page).to_have_url(re.compile(str(stage.ids["queued"])))
        await expect(page.locator("main")).to_contain_text("queued")
        await expect(page.get_by_role("button", name="Cancel job")).to_have_count(0)
        assert key.key not in await page.content()
        (session,) = [
            each for each in await page.context.cookies() if each["name"].startswith("__Host-")
        ]
        assert (session["httpOnly"], session["secure"]) == (True, True)
        assert key.key not in session["value"]
        await page.get_by_role("button", name="Log out").click()
        await page.goto("/ui/jobs")
        await expect(page.locator("h1")).to_have_text("Log in")


async def test_a_tenant_sees_its_own_jobs_and_no_others(browser: Browser, stage: Stage) -> None:
    own = await stage.hf._functions["report"].options(tenant="acme").enqueue(5)
    key = await stage.hf.keys.create("ann", tenant="acme", scopes=["read", "operate"])
    url = stage.url.replace("127.0.0.1", "localhost")
    async with a_page(browser, url) as page:
        await page.goto("/ui/jobs")
        await log_in(page, key.key)
        await expect(page.locator("#jobs tbody tr")).to_have_count(1)
        await expect(page.locator("#jobs tbody tr")).to_contain_text(str(own.id)[-8:])
        await page.goto(f"/ui/jobs/{stage.ids['queued']}")
        await expect(page.locator("h1")).to_have_text("Job not found")
        menu = await page.locator("nav.menu li a").evaluate_all("all => all.map(a => a.pathname)")
        assert "/ui/workers" not in menu
