"""Jobs in a browser: find them, look at one, change it, run one, and watch it live."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Page, expect

from tests.browser.stage import Stage
from tests.support.running import working

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


async def test_a_search_is_completed_with_the_keyboard(page: Page, stage: Stage) -> None:
    await page.goto("/ui/jobs")
    search = page.get_by_role("combobox", name="Search jobs")
    await search.press_sequentially("sta")
    await expect(page.get_by_role("option").first).to_be_visible()
    await search.press("ArrowDown")
    await search.press("Enter")
    await expect(search).to_have_value("state:")
    await search.press_sequentially("dead ")
    await search.press("Escape")
    await search.press("Enter")
    await expect(page).to_have_url(re.compile(r"q=state"))
    await expect(page.locator("#jobs tbody tr")).to_have_count(1)
    await expect(page.locator("#jobs tbody tr")).to_contain_text("report")


async def test_a_waiting_job_is_canceled_after_a_confirmation(page: Page, stage: Stage) -> None:
    await page.goto(f"/ui/jobs/{stage.ids['later']}")
    await page.get_by_role("button", name="Cancel job").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("wrong customer")
    await dialog.get_by_role("button", name="Back").click()
    assert (await stage.hf.get(stage.ids["later"])).state == "queued"
    await page.get_by_role("button", name="Cancel job").first.click()
    await dialog.get_by_label("Reason").fill("wrong customer")
    await dialog.get_by_role("button", name="Cancel job").click()
    await expect(page.locator("#identity")).to_contain_text("canceled")
    job = await stage.hf.get(stage.ids["later"])
    assert (job.state, job.error_text) == ("canceled", "canceled by local: wrong customer")


async def test_a_failed_job_is_requeued_with_other_arguments(page: Page, stage: Stage) -> None:
    failed = next(
        job for job in (await stage.hf.dead.list()).jobs if job.error_code == "BAD_ADDRESS"
    )
    await page.goto(f"/ui/jobs/{failed.id}")
    await page.get_by_role("link", name="Edit and requeue").click()
    await page.get_by_label("order").fill("9007199254740993")
    await page.get_by_role("button", name="Requeue").click()
    await expect(page.locator("#identity")).to_contain_text("queued")
    copy_id = await stage.hf.jobs.requeued_as(failed.id)
    assert copy_id is not None
    assert (await stage.hf.get(copy_id)).arguments["order"] == 9007199254740993
    await expect(page.locator("main")).to_contain_text("9007199254740993")


async def test_a_job_is_run_by_hand_and_its_result_appears_live(page: Page, stage: Stage) -> None:
    await page.goto("/ui/run/report")
    await page.get_by_label("shop").fill("seven")
    await page.get_by_role("button", name="Run", exact=True).click()
    await expect(page.locator(".has-error")).to_have_count(1)
    await page.get_by_label("shop").fill("7")
    await page.get_by_role("button", name="Run", exact=True).click()
    await expect(page.locator("#identity")).to_contain_text("queued")
    async with working(stage.hf):
        await expect(page.locator("#identity")).to_contain_text("succeeded")
    result = page.locator("#result table")
    await expect(result).to_contain_text("9007199254740993")


async def test_what_is_hostile_is_shown_and_does_nothing(page: Page, stage: Stage) -> None:
    for name, codes in (("failed", "\\u202e\\x1b[31m"), ("succeeded", "\\u202e\\u001b[31m")):
        await page.goto(f"/ui/jobs/{stage.ids[name]}")
        await expect(page.locator("main")).to_contain_text("<script>window.hacked=1</script>")
        await expect(page.locator("main")).to_contain_text(codes)
        assert await page.evaluate("window.hacked") is None


async def test_a_live_list_keeps_the_focus_and_what_is_selected(page: Page, stage: Stage) -> None:
    await page.goto("/ui/jobs")
    rows = page.locator("#jobs tbody tr")
    before = await rows.count()
    chosen = rows.nth(2).get_by_role("checkbox")
    await chosen.check()
    label = await chosen.get_attribute("aria-label")
    await chosen.focus()
    await stage.hf._functions["report"].enqueue(8)
    await expect(rows).to_have_count(before + 1)
    still = page.get_by_role("checkbox", name=label or "")
    await expect(still).to_be_checked()
    await expect(still).to_be_focused()


async def test_an_open_confirmation_survives_an_update(page: Page, stage: Stage) -> None:
    await page.goto(f"/ui/jobs/{stage.ids['queued']}")
    await page.get_by_role("button", name="Cancel job").first.click()
    reason = page.get_by_role("dialog").get_by_label("Reason")
    await reason.fill("half a sent")
    async with working(stage.hf):
        await expect(page.locator("#identity")).to_contain_text("succeeded")
    await expect(reason).to_have_value("half a sent")
    await expect(reason).to_be_focused()
    assert (await stage.hf.get(stage.ids["queued"])).state == "succeeded"
