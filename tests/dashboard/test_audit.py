"""/ui/audit: who did what, page by page, and filtered."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator

import pytest

from holdfast import Holdfast
from holdfast.api.limits import PAGE_JOBS_DEFAULT
from holdfast.domain.audit import Actor
from tests.support.dashboard import Browser, browsing

HOSTILE = "<script>alert(1)</script>\u202e"


@pytest.fixture
async def browser(hf: Holdfast) -> AsyncIterator[Browser]:
    async with browsing(hf) as browser:
        yield browser


def targets(page: str) -> list[str]:
    rows = page.partition("<tbody>")[2].split("<tr ")[1:]
    return [found[1] for row in rows if (found := re.search(r'title="(t\d+)"', row))]


async def test_pages_follow_each_other_while_entries_are_added(
    hf: Holdfast, browser: Browser
) -> None:
    total = PAGE_JOBS_DEFAULT + 7
    for number in range(total):
        await hf.audit.record("ann", "queue.pause", f"t{number}", jobs=number)
    first = (await browser.get("/ui/audit?actor=ann")).text
    await hf.audit.record("ann", "queue.pause", "t999", jobs=0)
    link = re.search(r'href="([^"]+)" rel="next"', first)
    assert link
    second = (await browser.get(html.unescape(link[1]))).text
    found = targets(first) + targets(second)
    assert found == [f"t{number}" for number in reversed(range(total))]
    assert 'rel="next"' not in second
    assert 'href="/ui/audit?actor=ann" rel="prev"' in second


async def test_entries_are_filtered_by_everything_that_is_shown(
    hf: Holdfast, browser: Browser
) -> None:
    ann = Actor(name="ann", key_id="k" * 12, tenant="acme", address="192.0.2.1")
    await hf.audit.record(ann, "queue.pause", "t1", jobs=3, because="the disk is full")
    await hf.audit.record("bob", "job.cancel", "t2", outcome="denied")
    for query, expected in {
        "": ["t2", "t1"],
        "actor=ann": ["t1"],
        "action=job.cancel": ["t2"],
        "target=t1": ["t1"],
        "tenant=acme": ["t1"],
        f"key_id={'k' * 12}": ["t1"],
        "outcome=denied": ["t2"],
        "since=1h": ["t2", "t1"],
        "until=1h": [],
        "since=2020-01-01&until=2020-01-02+10:00+UTC": [],
        "actor=ann&outcome=denied": [],
    }.items():
        page = (await browser.get(f"/ui/audit?{query}")).text
        assert (query, targets(page)) == (query, expected)
    shown = (await browser.get("/ui/audit?actor=ann")).text
    for text in ("192.0.2.1", "because: the disk is full", "of acme", 'value="ann"'):
        assert text in shown
    assert "No entries match" in (await browser.get("/ui/audit?actor=eve")).text


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("since=yesterday", "write an age like 2h"),
        ("since=1066-10-14", "since"),
        ("outcome=odd", "Invalid enum value"),
        ("cursor=nonsense", "start again without it"),
        ("actor=%00", "which no job can have"),
    ],
)
async def test_a_filter_that_can_not_be_is_explained(
    browser: Browser, query: str, problem: str
) -> None:
    answer = await browser.get(f"/ui/audit?{query}")
    assert answer.status_code == 400
    assert problem in html.unescape(answer.text)


async def test_entries_are_shown_as_text(hf: Holdfast, browser: Browser) -> None:
    await hf.audit.record("ann" + HOSTILE[:-1], "queue.pause", HOSTILE, because=HOSTILE[:-1])
    page = (await browser.get("/ui/audit")).text
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert r"\u202e" in page


async def test_there_is_nothing_at_first(browser: Browser) -> None:
    assert "No entries yet" in (await browser.get("/ui/audit")).text
