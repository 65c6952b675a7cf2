"""The list of jobs in a browser: suggestions by keyboard, and many jobs chosen on a live list."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from holdfast import State
from holdfast.api.limits import PAGE_JOBS_DEFAULT
from tests.browser.browsing import violations
from tests.browser.stage import Stage

pytestmark = [pytest.mark.heavy, pytest.mark.slow]


async def test_the_suggestions_never_take_the_focus(page: Page, stage: Stage) -> None:
    await page.goto("/ui/jobs")
    await page.keyboard.press("/")
    search, options = page.locator("#search"), page.locator(".suggestions [role=option]")
    await page.keyboard.type("state:")
    await expect(options).to_have_count(len(State))
    await expect(search).to_have_attribute("aria-expanded", "true")
    assert await violations(page) == []
    await page.keyboard.press("ArrowUp")  # around to the last one
    await expect(options.last).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("Enter")
    await expect(search).to_have_value("state:canceled ")
    await expect(search).to_be_focused()
    await page.keyboard.type("que")
    await expect(options.first).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(options.first).to_be_hidden()
    await expect(search).to_be_focused()


async def test_a_selection_survives_a_full_page_of_new_jobs(page: Page, stage: Stage) -> None:
    await page.goto("/ui/jobs?q=queue:mail+state:queued")
    chosen = page.locator(f"#job-{stage.ids['queued']}").get_by_role("checkbox")
    await chosen.check()
    call = stage.hf._functions["send_receipt"].call(99)
    await stage.hf.enqueue_many([call] * PAGE_JOBS_DEFAULT)
    await expect(page.locator("#job-rows tr")).to_have_count(PAGE_JOBS_DEFAULT + 1)
    await expect(chosen).to_be_checked()
    await expect(chosen).to_be_focused()
    await expect(page.locator("#choose-all")).to_be_visible()
    assert await violations(page) == []
    await page.locator("details.change summary").click()
    await page.get_by_label("Action").select_option("cancel")
    await page.get_by_role("button", name="Preview").click()
    await expect(page.locator("h1")).to_contain_text("1 job")
    ((change,), _) = await stage.hf.bulk.list()
    assert (change.total, change.state) == (1, "previewed")


async def test_choosing_a_job_moves_no_row(page: Page, stage: Stage) -> None:
    await page.goto("/ui/jobs")
    second = page.locator("#job-rows tr").nth(1)
    before = await second.bounding_box()
    await page.locator("#job-rows tr").first.get_by_role("checkbox").check()
    await expect(page.locator("#summary-chosen")).to_have_text(": 1 selected")
    assert await second.bounding_box() == before
    await page.locator("#choose-all").check()
    count = await page.locator("#job-rows tr").count()
    await expect(page.locator("#summary-chosen")).to_have_text(f": {count} selected")
    await page.locator("#choose-all").uncheck()
    await expect(page.locator("#summary-chosen")).to_have_text("")


async def test_a_job_that_ended_while_it_was_canceled_is_told_so(page: Page, stage: Stage) -> None:
    job_id = stage.ids["later"]
    await page.goto(f"/ui/jobs/{job_id}")
    await page.get_by_role("button", name="Cancel job").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("second")
    await stage.hf.cancel(job_id, by="bob", because="first")
    await expect(page.locator("#identity .state")).to_have_text("canceled")  # the page is live
    await dialog.get_by_role("button", name="Cancel job").click()
    await expect(page.get_by_role("alert")).to_contain_text("already ended as canceled")
    assert (await stage.hf.get(job_id)).error_text == "canceled by bob: first"
