"""An operator's night: stop and resume a redrive, queues, workers, who did what, and keys."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import Browser, Page, expect

from tests.browser.browsing import a_page, violations
from tests.browser.stage import Stage
from tests.browser.test_login import log_in
from tests.support.failures import add_dead
from tests.support.running import working

pytestmark = [pytest.mark.heavy, pytest.mark.slow]

MANY = 1000


async def confirm(page: Page, label: str) -> None:
    """Press a button, and the one that confirms it."""
    await page.get_by_role("button", name=label).first.click()
    await page.get_by_role("dialog").get_by_role("button", name=label).click()


async def test_a_redrive_is_paused_resumed_and_canceled_on_its_way(
    page: Page, stage: Stage
) -> None:
    await add_dead(stage.database_url, *["no gateway"] * MANY)
    await page.goto("/ui/dead")
    await page.get_by_role("link", name="no gateway").click()
    await page.get_by_role("button", name="Requeue all").first.click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_label("Jobs per second")).to_have_value("50")
    await dialog.get_by_role("button", name="Requeue all").click()
    await expect(page.locator("#change")).to_contain_text(f"0 of {MANY:,} jobs")
    await confirm(page, "Start")
    done = page.locator("#change .bulk-line strong")
    await expect(done).not_to_have_text("0")
    await confirm(page, "Pause")
    state = page.locator("#change .badge").first
    await expect(state).to_have_text("paused")
    assert await violations(page) == []
    ((paused,), _) = await stage.hf.bulk.list()
    assert 0 < paused.done < MANY
    await confirm(page, "Resume")
    await expect(state).to_have_text("running")
    await expect(done).not_to_have_text(f"{paused.done:,}")
    await confirm(page, "Cancel")
    await expect(state).to_have_text("canceled")
    await expect(page.get_by_role("button", name="Resume")).to_have_count(0)
    ((canceled,), _) = await stage.hf.bulk.list()
    assert paused.done < canceled.done < MANY
    await page.goto("/ui/bulk")
    await expect(page.locator("main")).to_contain_text("canceled")


async def test_a_queue_is_paused_capped_and_resumed_and_the_audit_log_tells(
    page: Page, stage: Stage
) -> None:
    await page.goto("/ui/queues")
    await page.get_by_role("link", name="mail", exact=True).click()
    await page.get_by_role("button", name="Pause").first.click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("the relay is down")
    await dialog.get_by_role("button", name="Pause").click()
    await expect(page.locator("#queue")).to_contain_text("the relay is down")
    assert await violations(page) == []
    await page.get_by_role("button", name="Change cap").first.click()
    await dialog.get_by_label("Most jobs at once").fill("2")
    await dialog.get_by_role("button", name="Change cap").click()
    await expect(page.locator("#queue")).to_contain_text("of 2")
    await confirm(page, "Resume")
    await expect(page.locator("#queue")).not_to_contain_text("the relay is down")
    (mail,) = [each for each in await stage.hf.queues.list() if each.name == "mail"]
    assert (mail.paused, mail.running_max) == (False, 2)
    await page.goto("/ui/audit")
    rows = page.locator("#entries tbody tr")
    await expect(rows).to_have_count(3)
    await page.get_by_label("Action").fill("queue.pause")
    await page.get_by_role("button", name="Filter").click()
    await expect(rows).to_have_count(1)
    await expect(rows).to_contain_text("the relay is down")
    assert await violations(page) == []


async def test_a_worker_appears_while_one_looks(page: Page, stage: Stage) -> None:
    await page.goto("/ui/workers")
    rows = page.locator("main tbody tr")
    await expect(rows).to_have_count(1)  # this server
    async with working(stage.hf, concurrency=3):
        await expect(rows).to_have_count(2)
        await expect(rows.filter(has_text="of 3")).to_have_count(1)
        assert await violations(page) == []


async def test_a_key_is_made_shown_once_and_revoked(browser: Browser, stage: Stage) -> None:
    root = await stage.hf.keys.create(
        "root", scopes=["read", "enqueue", "operate", "work", "admin"]
    )
    # `__Host-` cookies need a secure context, which localhost is.
    async with a_page(browser, stage.url.replace("127.0.0.1", "localhost")) as page:
        await page.goto("/ui/keys")
        await log_in(page, root.key)
        await page.get_by_role("link", name="New key").click()
        await page.get_by_label("Name").fill("ann")
        await page.get_by_role("checkbox", name=re.compile("^read")).check()
        assert await violations(page) == []
        await page.get_by_role("button", name="Create key").click()
        await expect(page.locator("main")).to_contain_text("hfk_")
        assert await violations(page) == []
        await page.goto("/ui/keys")
        row = page.locator("#keys tbody tr", has_text="ann")
        await expect(row).to_contain_text("by root")
        await expect(page.locator("main")).not_to_contain_text("hfk_")
        assert await violations(page) == []
        await row.get_by_role("button", name="Revoke").first.click()
        await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        await expect(row).to_have_count(0)
        states = {key.name: key.revoked_at is not None for key in await stage.hf.keys.list()}
        assert states.get("ann", True)
        assert states["root"] is False


async def test_the_menu_counts_what_is_new_while_one_looks(page: Page, stage: Stage) -> None:
    await page.goto("/ui/queues")
    link = page.get_by_role("navigation", name="Pages").get_by_role("link", name="Dead letters")
    await expect(link).to_have_accessible_name("Dead letters (2 groups of errors need attention)")
    await add_dead(stage.database_url, "no gateway")
    await expect(link).to_have_accessible_name("Dead letters (3 groups of errors need attention)")
    await expect(page.locator("#unattended .count")).to_have_text("3")


async def test_a_keyboard_alone_chooses_and_confirms_on_a_live_list(
    page: Page, stage: Stage
) -> None:
    await page.goto("/ui/jobs?q=queue:mail+state:queued")
    chosen = page.locator(f"#job-{stage.ids['queued']}").get_by_role("checkbox")
    await chosen.focus()
    await page.keyboard.press("Space")
    await stage.hf._functions["send_receipt"].enqueue(99)
    await expect(page.locator("#job-rows tr")).to_have_count(3)
    await expect(chosen).to_be_focused()
    await expect(chosen).to_be_checked()
    await page.locator("details.change summary").focus()
    await page.keyboard.press("Enter")
    await page.get_by_label("Action").focus()
    await page.keyboard.press("c")  # cancel
    await page.get_by_role("button", name="Preview").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_contain_text("1 job")
    start = page.get_by_role("button", name="Start").first
    await start.focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await expect(start).to_be_focused()
    ((change,), _) = await stage.hf.bulk.list()
    assert (change.state, change.done) == ("previewed", 0)
    await page.keyboard.press("Enter")
    await page.get_by_role("dialog").get_by_role("button", name="Start").focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#change .badge").first).to_have_text("completed")
    assert (await stage.hf.get(stage.ids["queued"])).state == "canceled"


async def test_a_screen_reader_finds_names_and_is_told_politely(page: Page, stage: Stage) -> None:
    await page.goto("/ui/queues/mail")
    await expect(page.locator("body")).to_match_aria_snapshot("""
        - link "Skip to content"
        - navigation "Pages":
          - list:
            - listitem:
              - link "Overview"
        - main:
          - heading "mail" [level=1]
          - button "Pause"
          - button "Change cap"
          - button "Purge"
          - navigation "Time range"
          - region "Charts of this queue"
        """)
    charts = page.locator("#trends").get_by_role("slider")
    names = [await chart.get_attribute("aria-label") for chart in await charts.all()]
    assert [str(name).partition(".")[0] for name in names] == [
        "Throughput",
        "Failures per minute",
        "Run time",
        "Time to start",
        "Waiting jobs",
        "Longest wait",
        "Running jobs",
    ]
    await page.get_by_role("button", name="Pause").first.click()
    await expect(page.get_by_role("dialog")).to_match_aria_snapshot("""
        - dialog "Pause queue mail?":
          - heading "Pause queue mail?" [level=2]
          - textbox "Reason"
          - button "Back"
          - button "Pause"
        """)
    await page.keyboard.press("Escape")
    # What changes by itself interrupts nobody: only these two regions speak, when they have to.
    live = await page.locator("[aria-live], [role=status], [role=alert]").evaluate_all(
        "all => all.map(each => [each.id, each.getAttribute('role'), each.ariaLive])"
    )
    assert {(place, role) for place, role, _ in live} == {
        ("notices", "status"),
        ("announcer", "status"),
    }
    assert all(politeness in (None, "polite") for _, _, politeness in live)
    await confirm(page, "Pause")
    await expect(page.get_by_role("status").first).to_contain_text("mail")
    for path in ("/ui/jobs", "/ui/dead", "/ui/queues"):
        await page.goto(path)
        table = page.get_by_role("table").first
        await expect(table.get_by_role("columnheader").first).to_be_attached()
        assert await page.get_by_role("table").locator("th:not([scope])").count() == 0, path
