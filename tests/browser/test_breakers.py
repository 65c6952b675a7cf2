"""Breakers in a browser: opened by hand, seen on the overview, closed again."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser.browsing import violations
from tests.browser.stage import Stage

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


async def test_a_breaker_is_opened_shown_first_and_closed(page: Page, stage: Stage) -> None:
    await page.goto("/ui/breakers")
    await page.get_by_role("button", name="Open a breaker").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Key").fill("gateway")
    await dialog.get_by_label("Reason").fill("it is being moved")
    await dialog.get_by_role("button", name="Open a breaker").click()
    row = page.locator("tbody tr", has_text="gateway")
    await expect(row).to_contain_text("open")
    await expect(row).to_contain_text("it is being moved")
    assert await violations(page) == []
    await page.goto("/")
    await expect(page.locator("main")).to_contain_text("gateway")
    await page.goto("/ui/breakers")
    await row.get_by_role("button", name="Close").first.click()
    await page.get_by_role("dialog").get_by_role("button", name="Close").click()
    await expect(row).to_contain_text("closed")
    (breaker,) = await stage.hf.breakers.list()
    assert not breaker.is_open
