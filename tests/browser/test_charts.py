"""Charts and queues in a browser: read-outs by pointer and by keys, live updates, confirmations."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from holdfast import Holdfast
from tests.browser.browsing import PHONE, a_page, is_scrolled_sideways, violations
from tests.browser.stage import on_stage

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


async def sample(hf: Holdfast) -> None:
    """Samples of half an hour, with a gap in its middle."""
    await hf.samples.get()
    now = int((await hf.now()).timestamp())
    for ago in (*range(1800, 1000, -30), *range(600, 0, -30)):
        hf._metrics.throughput.settled("mail", "succeeded", 0.2)
        await hf._sampling.take(now - ago)


async def test_a_chart_is_read_by_keyboard_and_pointer_and_stays_while_it_updates(
    browser: Browser, url: str
) -> None:
    async with on_stage(url) as stage, a_page(browser, stage.url) as page:
        await sample(stage.hf)
        await page.goto("/ui/queues/mail")
        plot = page.locator("#trend-throughput .plot-area")
        await expect(plot).to_have_attribute("role", "slider")
        await plot.focus()
        await page.keyboard.press("Home")
        await expect(plot).to_have_attribute("aria-valuenow", "0")
        await page.keyboard.press("End")
        read_out = page.locator(".read-out")
        await expect(read_out).to_contain_text("Succeeded per minute")
        await expect(plot).to_be_focused()
        await stage.hf.queues.pause("mail", by="bob", because="the disk is full")
        await expect(page.locator("#queue")).to_contain_text("by bob: the disk is full")
        await expect(plot).to_be_focused()
        await expect(read_out).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(read_out).to_have_count(0)
        await page.locator("#trend-waiting .plot-area").hover()
        await expect(read_out).to_contain_text("Ready")


async def test_a_queue_is_paused_and_purged_with_confirmation_by_keyboard_alone(
    browser: Browser, url: str
) -> None:
    async with on_stage(url) as stage, a_page(browser, stage.url) as page:
        await page.goto("/ui/queues/mail")
        await page.get_by_role("button", name="Pause").focus()
        await page.keyboard.press("Enter")
        dialog = page.locator("dialog[open]")
        await expect(dialog).to_contain_text("No worker starts its jobs")
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        assert not (await stage.hf.queues.get("mail")).paused
        await page.keyboard.press("Enter")
        await page.get_by_label("Reason").first.fill("the disk is full")
        await page.keyboard.press("Enter")
        await expect(page.locator("#notices")).to_contain_text("Queue mail is paused.")
        await page.get_by_role("button", name="Purge").click()
        await dialog.get_by_label("Name of the queue").fill("mail")
        await page.keyboard.press("Enter")
        await expect(page.locator("#notices")).to_contain_text("Canceling")
        await expect(page.locator("#queue")).to_contain_text("paused")


async def test_pages_with_charts_are_accessible_and_fit_a_phone(browser: Browser, url: str) -> None:
    async with on_stage(url) as stage, a_page(browser, stage.url, size=PHONE) as page:
        await sample(stage.hf)
        await stage.hf.breakers.open("gateway", by="ann", because="a move")
        for path in ("/", "/?range=7d", "/ui/queues", "/ui/queues/mail", "/ui/breakers"):
            await page.goto(path)
            assert await violations(page) == [], path
            assert not await is_scrolled_sideways(page), path
