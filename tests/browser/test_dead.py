"""Dead letters in a browser: one cause is one row, with a life of its own, and can be redriven."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from tests.browser.browsing import violations
from tests.browser.stage import DEAD, Stage

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

CAUSE = "no such address: customer *"


async def open_group(page: Page) -> None:
    await page.goto("/ui/dead")
    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.get_by_role("link", name=CAUSE).click()
    await expect(page.locator(".dead-shape")).to_have_text(CAUSE)


async def test_a_cause_is_acknowledged_resolved_and_comes_back(page: Page, stage: Stage) -> None:
    await open_group(page)
    assert await violations(page) == []
    for label, state in (("Acknowledge", "acknowledged"), ("Resolve", "resolved")):
        await page.get_by_role("button", name=label).first.click()
        await page.get_by_role("dialog").get_by_role("button", name=label).click()
        await expect(page.locator(".dead-state")).to_have_text(state)
    await stage.hf._functions["send_receipt"].enqueue(-99)
    await stage.hf.run_due()
    await expect(page.locator(".dead-state")).to_have_text("back")


async def test_a_group_is_redriven_after_a_preview_and_watched_to_its_end(
    page: Page, stage: Stage
) -> None:
    await open_group(page)
    await page.get_by_role("button", name="Requeue all").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Jobs per second").fill("500")
    await dialog.get_by_role("button", name="Requeue all").click()
    await expect(page).to_have_url(re.compile("/ui/bulk/"))
    await expect(page.locator("#change")).to_contain_text(f"0 of {DEAD} jobs")
    assert await violations(page) == []
    queued = await stage.hf.jobs.counts()
    await page.get_by_role("button", name="Start").first.click()
    assert await stage.hf.jobs.counts() == queued  # a preview and a question change nothing
    await page.get_by_role("dialog").get_by_role("button", name="Start").click()
    await expect(page.locator("#change")).to_contain_text(f"{DEAD} of {DEAD} jobs")
    waiting = {
        each.queue: each.jobs for each in await stage.hf.jobs.counts() if each.state == "queued"
    }
    assert waiting["mail"] == 2 + DEAD
