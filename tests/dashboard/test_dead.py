"""Dead letters as a workbench: groups with a life, requeued with a preview, live and by role."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from holdfast import Holdfast
from tests.support.dashboard import Browser, browsing
from tests.support.failures import add_dead
from tests.support.processes import wait_until
from tests.support.running import QUICK

HOSTILE = "<script>alert(1)</script> \x1b[31m\u202e"


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(store_url, **QUICK) as hf:
        await hf.dead.groups()
        yield hf


@pytest.fixture
async def browser(hf: Holdfast) -> AsyncIterator[Browser]:
    """Logged in as an operator who sees all tenants."""
    async with browsing(hf) as browser:
        await browser.log_in(await hf.keys.create("ann", scopes=["read", "operate"]))
        yield browser


async def fingerprints(hf: Holdfast) -> dict[str, str]:
    await hf.dead.count_groups()
    return {group.shape: group.fingerprint for group in (await hf.dead.groups()).groups}


def rows_of(page: httpx.Response) -> list[str]:
    assert page.status_code == 200, page.text
    return re.findall(r'<tr id="group-([0-9a-f]{12})">', page.text)


async def test_the_page_counts_jobs_that_died_just_now(browser: Browser, store_url: str) -> None:
    assert "No dead jobs" in (await browser.get("/ui/dead")).text
    await add_dead(store_url, "no user 17", "no user 4", tenant="acme")
    page = await browser.get("/ui/dead")
    assert len(rows_of(page)) == 1
    assert "no user *" in page.text
    assert "acme" in page.text


async def test_groups_are_found_by_tab_and_search_and_in_pages(
    hf: Holdfast, browser: Browser, store_url: str
) -> None:
    await add_dead(store_url, "no user", queue="users")
    await add_dead(store_url, *["no order"] * 2, ended_at=datetime.now(UTC) - timedelta(hours=1))
    groups = await fingerprints(hf)
    await hf.dead.acknowledge(groups["no order"])
    for query, shapes in {
        "": ["no user", "no order"],
        "?order=largest": ["no order", "no user"],
        "?state=new": ["no user"],
        "?state=acknowledged": ["no order"],
        "?state=resolved": [],
        "?text=ORDER": ["no order"],
        "?queue=users": ["no user"],
        "?name=work&state=new": ["no user"],
        "?name=other": [],
    }.items():
        found = rows_of(await browser.get(f"/ui/dead{query}"))
        assert found == [groups[shape] for shape in shapes], query
    await add_dead(store_url, *(f"word {letter}" for letter in "abcdefghij"), name="many")
    texts = [f"{a}{b}" for a in "abcdefg" for b in "abcdefg"]
    await add_dead(store_url, *texts, name="many")
    first = await browser.get("/ui/dead?name=many")
    following = re.search(r'href="([^"]*)" rel="next"', first.text)
    assert following is not None
    second = await browser.get(following[1].replace("&amp;", "&"))
    assert len({*rows_of(first), *rows_of(second)}) == 59
    refused = await browser.get(following[1].replace("&amp;", "&").replace("many", "work"))
    assert refused.status_code == 400


async def test_several_groups_change_at_once_and_the_log_tells_who(
    hf: Holdfast, browser: Browser, store_url: str
) -> None:
    await add_dead(store_url, "no user", "no order", "no car")
    groups = await fingerprints(hf)
    await browser.get("/ui/dead?text=no")
    chosen = [groups["no user"], groups["no order"]]
    answer = await change(browser, chosen, verb="resolve", version="2.4.1", note="fixed")
    assert answer.headers["location"] == "/ui/dead?text=no"
    assert "2 groups are resolved." in (await browser.get("/ui/dead?text=no")).text
    states = {group.shape: group.state for group in (await hf.dead.groups()).groups}
    assert states == {"no user": "resolved", "no order": "resolved", "no car": "new"}
    entries = [e for e in (await hf.audit.list()).entries if e.action == "error_group.resolve"]
    assert {(e.actor, e.target, e.because) for e in entries} == {
        ("ann", fingerprint, "fixed") for fingerprint in chosen
    }


async def change(browser: Browser, chosen: list[str], **fields: str) -> httpx.Response:
    data = {"csrf": browser.token, "here": "/ui/dead?text=no", "fingerprint": chosen, **fields}
    return await browser.post("/ui/dead/change", data=data)


async def test_a_change_that_is_refused_changes_nothing_and_keeps_the_choice(
    hf: Holdfast, browser: Browser, store_url: str
) -> None:
    await add_dead(store_url, "no user", "no order")
    groups = await fingerprints(hf)
    await hf.dead.resolve(groups["no user"])
    await browser.get("/ui/dead")
    refused = await change(browser, [*groups.values()], verb="acknowledge")
    assert refused.status_code == 409
    assert "is resolved, so you can&#39;t acknowledge it" in refused.text
    assert len(re.findall(r'name="fingerprint"[^>]* checked', refused.text)) == 2
    assert (await hf.dead.group(groups["no order"])).state == "new"
    nothing = await change(browser, [], verb="acknowledge")
    assert (nothing.status_code, "select at least one group" in nothing.text) == (422, True)


async def test_a_group_is_acknowledged_resolved_and_reopened_on_its_page(
    hf: Holdfast, browser: Browser, store_url: str
) -> None:
    await add_dead(store_url, "no user 17", tenant="acme")
    (fingerprint,) = (await fingerprints(hf)).values()
    path = f"/ui/dead/{fingerprint}"
    for verb, told in (
        ("acknowledge", "This group is acknowledged."),
        ("resolve", "This group is resolved."),
        ("reopen", "This group is new again."),
    ):
        await browser.get(path)
        answer = await browser.post(f"{path}/change", {"verb": verb, "note": f"to {verb}"})
        assert answer.headers["location"] == path
        page = (await browser.get(path)).text
        assert told in page
        assert f"to {verb}" in page
    refused = await browser.post(f"{path}/change", {"verb": "resolve", "version": "x" * 300})
    assert (refused.status_code, "version" in refused.text) == (422, True)


async def test_a_group_tells_its_newest_error_in_full_and_what_became_of_its_jobs(
    hf: Holdfast, browser: Browser, store_url: str
) -> None:
    (job_id,) = await add_dead(store_url, "no user 17\n  at line 5", tenant="acme")
    (fingerprint,) = (await fingerprints(hf)).values()
    copy = await hf.dead.requeue(job_id)
    page = (await browser.get(f"/ui/dead/{fingerprint}")).text
    for piece in ("no user 17\n  at line 5", "acme", f"/ui/jobs/{job_id}", f"/ui/jobs/{copy.id}"):
        assert piece in page


async def test_a_group_is_requeued_after_a_preview_at_the_rate_that_was_given(
    hf: Holdfast, browser: Browser, store_url: str
) -> None:
    await add_dead(store_url, *[f"no user {number}" for number in range(30)], name="wait")
    await add_dead(store_url, "something else", name="wait")
    fingerprint = (await fingerprints(hf))["no user *"]
    page = await browser.get(f"/ui/dead/{fingerprint}")
    assert 'name="rate" type="text" value="50"' in page.text
    sent = await browser.post(
        f"/ui/dead/{fingerprint}/requeue", {"rate": "500", "because": "it is back"}
    )
    path = sent.headers["location"]
    preview = (await browser.get(path)).text
    for piece in ("Requeue 30 jobs", "previewed", "it is back", "500 jobs per second", "ann"):
        assert piece in preview
    (change,) = (await hf.bulk.list()).changes
    assert (change.state, change.by) == ("previewed", "ann")
    await browser.post(f"{path}/start")

    async def is_completed() -> bool:
        return (await hf.bulk.get(change.id)).state == "completed"

    await wait_until(is_completed, "requeued")
    page = await browser.get(path)
    assert "30</strong> of 30 jobs" in page.text
    assert (await browser.post(f"{path}/pause")).status_code == 409
    assert "30 of 30" in (await browser.get("/ui/bulk")).text
    again = await browser.post(f"/ui/dead/{fingerprint}/requeue", {"rate": "50"})
    assert "Requeue 0 jobs" in (await browser.get(again.headers["location"])).text


async def test_a_bulk_operation_is_paused_resumed_and_canceled(
    hf: Holdfast, browser: Browser, store_url: str
) -> None:
    await add_dead(store_url, *[f"no user {number}" for number in range(30)], name="wait")
    (fingerprint,) = (await fingerprints(hf)).values()
    await browser.get(f"/ui/dead/{fingerprint}")
    sent = await browser.post(f"/ui/dead/{fingerprint}/requeue", {"rate": "0.01"})
    path = sent.headers["location"]
    for verb, state in (
        ("start", "running"),
        ("pause", "paused"),
        ("resume", "running"),
        ("cancel", "canceled"),
    ):
        answer = await browser.post(f"{path}/{verb}")
        assert answer.headers["location"] == path
        (change,) = (await hf.bulk.list()).changes
        assert change.state == state
        assert state in (await browser.get(path)).text


@pytest.mark.parametrize("rate", ["", "fast", "0", "-1", "1e9", "nan"])
async def test_a_rate_that_is_no_rate_is_refused_with_a_reason(
    hf: Holdfast, browser: Browser, store_url: str, rate: str
) -> None:
    await add_dead(store_url, "no user")
    (fingerprint,) = (await fingerprints(hf)).values()
    await browser.get(f"/ui/dead/{fingerprint}")
    refused = await browser.post(f"/ui/dead/{fingerprint}/requeue", {"rate": rate})
    assert (refused.status_code, "the rate must be" in refused.text) == (422, True)
    assert (await hf.bulk.list()).changes == []


async def test_hostile_texts_are_shown_and_nothing_else(
    hf: Holdfast, browser: Browser, store_url: str
) -> None:
    hostile = HOSTILE.replace("\x1b", "")  # no name has control characters
    await add_dead(store_url, HOSTILE, name=hostile, queue=hostile, tenant=hostile)
    (group,) = await groups_of(hf)
    await hf.dead.acknowledge(group, by="<b>ann</b>", note="<i>note</i>")
    await browser.get("/ui/dead")
    sent = await browser.post(f"/ui/dead/{group}/requeue", {"rate": "5", "because": "<u>x</u>"})
    bulk = sent.headers["location"]
    for path in ("/ui/dead", f"/ui/dead/{group}", "/ui/bulk", bulk):
        text = (await browser.get(path)).text
        for raw in ("<script>alert", "\x1b", "\u202e", "<b>ann", "<i>note", "<u>x"):
            assert raw not in text, path
        if path != "/ui/bulk":
            assert "&lt;script&gt;alert(1)" in text, path


async def groups_of(hf: Holdfast) -> list[str]:
    await hf.dead.count_groups()
    return [group.fingerprint for group in (await hf.dead.groups()).groups]


async def test_a_viewer_sees_no_buttons_and_a_tenant_only_what_is_its_own(
    hf: Holdfast, store_url: str
) -> None:
    await add_dead(store_url, "no user", tenant="acme")
    await add_dead(store_url, "no user", "no user", tenant="globex")
    (fingerprint,) = await groups_of(hf)
    async with browsing(hf) as browser:
        await browser.log_in(await hf.keys.create("eve", scopes=["read"], tenant="acme"))
        for path in ("/ui/dead", f"/ui/dead/{fingerprint}", "/ui/bulk"):
            page = await browser.get(path)
            assert page.status_code == 200
            assert "globex" not in page.text
            assert not re.search(r'action="/ui/(dead|bulk)/', page.text)
        assert '<td data-label="Jobs" class="number">1</td>' in (await browser.get("/ui/dead")).text


def spoken(page: httpx.Response) -> list[str]:
    return re.findall(r'hidden">\(([^<]* attention)\)<', page.text)


async def test_the_menu_counts_the_groups_that_need_attention(hf: Holdfast, store_url: str) -> None:
    await add_dead(store_url, "no user", "no mail", "no order", tenant="acme")
    await add_dead(store_url, "no user", tenant="globex")
    first, *_ = await groups_of(hf)
    async with browsing(hf) as browser:
        await browser.log_in(await hf.keys.create("ann", scopes=["read", "operate"]))
        page = await browser.get("/ui/bulk")
        assert spoken(page) == ["3 groups of errors need attention"]
        assert '<span class="count tone-bad" aria-hidden="true">3</span>' in page.text
        await browser.get(f"/ui/dead/{first}")
        await browser.post(f"/ui/dead/{first}/change", {"verb": "acknowledge"})
        assert spoken(await browser.get("/ui/bulk")) == ["2 groups of errors need attention"]
    async with browsing(hf) as browser:
        await browser.log_in(await hf.keys.create("eve", scopes=["read"], tenant="globex"))
        assert spoken(await browser.get("/ui/jobs")) == ["1 group of errors needs attention"]
    async with browsing(hf) as browser:
        await browser.log_in(await hf.keys.create("bob", scopes=["read"], tenant="initech"))
        assert spoken(await browser.get("/ui/jobs")) == []


async def test_the_menu_counts_to_99(hf: Holdfast, store_url: str) -> None:
    texts = [f"no {chr(97 + one)}{chr(97 + two)}" for one in range(10) for two in range(10)]
    await add_dead(store_url, *texts)
    assert len(await groups_of(hf)) == 50
    async with browsing(hf) as browser:
        page = await browser.get("/ui/jobs")
        assert spoken(page) == ["more than 99 groups of errors need attention"]
        assert ">99+<" in page.text


async def test_a_server_that_only_reads_says_since_when_jobs_are_not_counted(
    hf: Holdfast, store_url: str
) -> None:
    ended_at = datetime.now(UTC) - timedelta(hours=1)
    await add_dead(store_url, "no user", ended_at=ended_at)
    async with browsing(Holdfast(store_url, read_only=True, **QUICK)) as browser:
        page = await browser.get("/ui/dead")
        assert "These groups are out of date" in page.text
        assert f"{ended_at:%Y-%m-%d %H:%M:%S} UTC" in page.text
        await hf.dead.count_groups()
        assert "out of date" not in (await browser.get("/ui/dead")).text


async def test_pages_of_what_does_not_exist_say_so(browser: Browser) -> None:
    for path in ("/ui/dead/0123456789ab", "/ui/dead/nothing", "/ui/bulk/nothing"):
        assert (await browser.get(path)).status_code == 404
