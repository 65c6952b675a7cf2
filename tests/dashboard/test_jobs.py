"""The list of jobs: a search finds what it says, in bounded pages, and shows nothing of others."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from holdfast import Filter, Holdfast, State
from holdfast.api.limits import PAGE_JOBS_DEFAULT
from holdfast.domain.limits import PAGE_LOOK_MAX
from holdfast.runtime.seam import Seam
from tests.support.dashboard import Browser, browsing
from tests.support.visiting import enqueue, link_of, make_shop, rows_of, visiting, words_of


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    async with make_shop(store_url) as hf:
        yield hf


@pytest.fixture
async def local_hf(local_url: str) -> AsyncIterator[Holdfast]:
    async with make_shop(local_url) as hf:
        yield hf


async def found(browser: Browser, search: str) -> list[str]:
    page = await browser.client.get("/ui/jobs", params={"q": search}, headers=headers_of(browser))
    assert page.status_code == 200, words_of(page.text)
    return list(rows_of(page.text))


def headers_of(browser: Browser) -> dict[str, str]:
    cookies = "; ".join(f"{name}={text}" for name, text in browser.cookies.items())
    return {"accept": "text/html", "cookie": cookies}


async def test_a_search_finds_what_the_same_filter_finds(hf: Holdfast) -> None:
    parent = await enqueue(hf, "resize", 7)
    async with visiting(hf, "read") as browser:
        for image in range(3):
            await enqueue(hf, "resize", image, correlation_id="order 17", tags=("vip",))
        await enqueue(hf, "send_mail", "nobody")
        await enqueue(hf, "send_mail", "ann")
        await hf.run_due()
        await enqueue(hf, "send_mail", "bob", tenant="acme", delay_seconds=3600)
        now = hf._seam.now()
        for text, filter in (
            ("", Filter()),
            ("state:dead", Filter(states=(State.DEAD,))),
            ("state:dead,failed", Filter(states=(State.DEAD, State.FAILED))),
            ("queue:images name:resize", Filter(queue="images", name="resize")),
            ("error:EMPTY", Filter(error_code="EMPTY")),
            ('correlation:"order 17"', Filter(correlation_id="order 17")),
            ("tag:vip state:succeeded", Filter(tag="vip", states=(State.SUCCEEDED,))),
            ("tenant:acme", Filter(tenant="acme")),
            ("since:2h", Filter(since=now - timedelta(hours=2))),
            ("until:2h", Filter(until=now - timedelta(hours=2))),
            (f"parent:{parent.id}", Filter(parent_id=parent.id)),
            ("queue:nowhere", Filter(queue="nowhere")),
        ):
            expected = [str(job.id) for job in (await hf.jobs.list(filter)).jobs]
            assert (text, await found(browser, text)) == (text, expected)
        group = (await hf.dead.grouped(Filter(name="send_mail"))).groups[0]
        assert await found(browser, f"fingerprint:{group.fingerprint}") == [str(group.example_id)]


async def test_an_id_leads_to_its_job(hf: Holdfast) -> None:
    job = await enqueue(hf, "resize", 1)
    async with visiting(hf, "read") as browser:
        answer = await browser.get(f"/ui/jobs?q={job.id}")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/jobs/{job.id}")


async def test_an_error_in_a_search_is_marked_at_its_place(local_hf: Holdfast) -> None:
    async with visiting(local_hf, "read") as browser:
        page = await browser.get("/ui/jobs?q=queue:mail+stat:dead")
        assert page.status_code == 400
        assert "Character 12: unknown key 'stat'; did you mean 'state'?" in words_of(page.text)
        assert "queue:mail <mark>stat:</mark>dead" in page.text
        assert 'value="queue:mail stat:dead"' in page.text
        assert 'aria-invalid="true"' in page.text


async def test_pages_follow_each_other_without_gaps(hf: Holdfast) -> None:
    function = hf._functions["resize"]
    jobs = await hf.enqueue_many([function.call(n) for n in range(2 * PAGE_JOBS_DEFAULT + 3)])
    expected = sorted((str(job.id) for job in jobs), reverse=True)
    async with visiting(hf, "read") as browser:
        seen: list[str] = []
        path = "/ui/jobs?q=queue:images+since:2h"
        for _ in range(3):
            page = (await browser.get(path)).text
            seen += rows_of(page)
            if len(seen) < len(expected):
                await enqueue(hf, "resize", 1)  # new jobs don't shift the pages
                path = link_of(page, "Next")
        assert seen == expected
        assert "Next" not in words_of(page)
        assert link_of(page, "Newest") == "/ui/jobs?q=queue%3Aimages+since%3A2h"
        cursor = path.partition("cursor=")[2]
        other = await browser.get(f"/ui/jobs?q=queue:mail&cursor={cursor}")
        assert other.status_code == 400
        assert "does not belong to this list and filter" in words_of(other.text)


async def test_tabs_count_the_states_of_a_queue_and_keep_the_search(hf: Holdfast) -> None:
    for image in (0, 1, 2):
        await enqueue(hf, "resize", image)
    await enqueue(hf, "send_mail", "nobody")
    await hf.run_due()
    async with visiting(hf, "read") as browser:
        page = (await browser.get("/ui/jobs?q=queue:images+state:failed")).text
        assert "All Queued 0 Running 0 Succeeded 2 Failed 1 Dead 0 Canceled 0" in words_of(page)
        assert link_of(page, "Succeeded") == "/ui/jobs?q=state%3Asucceeded+queue%3Aimages"
        assert re.search(r'aria-current="page">Failed', page)
        named = words_of((await browser.get("/ui/jobs?q=name:resize")).text)
        assert "All Queued Running Succeeded Failed Dead Canceled" in named


FILL = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows)
INSERT INTO history (id, kept_until, state, queue, name, tags, priority, attempt, max_attempts,
    snoozes, releases, crashes, fence, run_at, created_at, finished_at, arguments)
SELECT printf('00000000-0000-7000-8000-%012x', n), 4e15, 'succeeded', 'queue', 'job', '[]', 0, 1,
    5, 0, 0, 0, 2, 0, 0, 0, '{}'
FROM numbers
"""


async def test_a_search_in_vain_says_how_far_it_looked_and_goes_on(
    local_url: str, local_hf: Holdfast
) -> None:
    await local_hf.jobs.list()
    with sqlite3.connect(local_url.removeprefix("sqlite:///")) as connection:
        connection.execute(FILL, {"rows": 3 * PAGE_LOOK_MAX})
    async with visiting(local_hf, "read") as browser:
        page = (await browser.get("/ui/jobs?q=error:RARE")).text
        assert "No matches among the newest 10,000 jobs. Older jobs were not searched" in words_of(
            page
        )
        assert "No jobs match" not in page
        narrower = link_of(page, "Only unsuccessful jobs")
        assert narrower == "/ui/jobs?q=state%3Adead%2Cfailed%2Ccanceled+error%3ARARE"
        assert "No jobs match" in (await browser.get(narrower)).text
        rest = (await browser.get(link_of(page, "Search 100,000 more"))).text
        assert "No jobs match" in rest


class Counting(Seam):
    """Counts the statements that SQLite runs."""

    statements = 0

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        connection = super().connect_sqlite(path)
        connection.set_trace_callback(self._count)
        return connection

    def _count(self, _statement: str) -> None:
        self.statements += 1


async def test_a_full_page_takes_no_more_statements_than_one_job(local_url: str) -> None:
    seam = Counting()
    hf = make_shop(local_url, seam=seam)
    await enqueue(hf, "resize", 1)
    async with visiting(hf, "read") as browser:
        counts = []
        for jobs in (1, PAGE_JOBS_DEFAULT):
            await browser.get("/ui/jobs")
            before = seam.statements
            page = await browser.get("/ui/jobs")
            counts.append(seam.statements - before)
            assert len(rows_of(page.text)) == jobs
            await hf.enqueue_many([hf._functions["resize"].call(n) for n in range(60)])
    assert counts[0] == counts[1] < 40


HOSTILE = '"><script>alert(1)</script>\x1b[31m\u202e'


async def test_hostile_names_errors_and_tags_are_shown_as_text(hf: Holdfast) -> None:

    @hf.job(name='"><script>alert(1)</script>\u202e', queue="<img src=x>")
    async def hostile() -> None:
        raise RuntimeError(HOSTILE)

    hostile_tag = "<i>tag</i>\u202e"
    await hostile.options(tags=(hostile_tag,), max_attempts=1).enqueue()
    await hf.run_due()
    async with visiting(hf, "read") as browser:
        page = (await browser.get("/ui/jobs")).text
        suggested = (await browser.get("/ui/suggest?q=tag:")).json()["completions"]
    assert "<script>alert" not in page
    assert "<img src=x>" not in page
    assert not {"\x1b", "\u202e"} & {*page}
    assert '"><script>alert(1)</script>\\u202e' in words_of(page.replace("&gt;<", "&gt; <"))
    assert suggested[0]["label"] == "tag:<i>tag</i>\\u202e"  # shown
    assert suggested[0]["text"] == f"tag:{hostile_tag}"  # used


async def test_a_tenant_finds_and_is_suggested_only_its_own(hf: Holdfast) -> None:
    own = await enqueue(hf, "resize", 1, tenant="acme", tags=("own",))
    await enqueue(hf, "send_mail", "x", tenant="other", queue="secret", tags=("theirs",))
    async with visiting(hf, "read", tenant="acme") as browser:
        assert await found(browser, "") == [str(own.id)]
        assert await found(browser, "queue:secret") == []
        assert await found(browser, "tenant:acme") == [str(own.id)]
        refused = await browser.get("/ui/jobs?q=tenant:other")
        assert refused.status_code == 400
        assert "your key belongs to another tenant" in refused.text
        for typed in ("queue:", "tag:", "tenant:", "secr", "their", "other"):
            answer = await browser.get(f"/ui/suggest?q={typed}")
            labels = {each["label"] for each in answer.json()["completions"]}
            assert labels <= {"queue:images", "tag:own", "tag:thumb"}, typed
        assert "secret" not in (await browser.get("/ui/jobs")).text


async def test_what_an_administrator_was_suggested_is_not_kept_for_a_tenant(hf: Holdfast) -> None:
    await enqueue(hf, "send_mail", "x", tenant="other", queue="secret")
    keys = [await hf.keys.create("k", scopes=["read"], tenant=each) for each in (None, "acme")]
    suggested = []
    async with browsing(hf) as browser:
        for key in keys:
            browser.cookies.clear()
            await browser.log_in(key)
            answer = await browser.get("/ui/suggest?q=queue:s")
            suggested.append([each["label"] for each in answer.json()["completions"]])
    assert suggested == [["queue:secret"], []]


async def test_suggestions_are_what_the_database_and_the_code_know(hf: Holdfast) -> None:
    await enqueue(hf, "send_mail", "nobody")
    await hf.run_due()
    async with visiting(hf, "read") as browser:

        async def labels(typed: str) -> list[str]:
            answer = await browser.get(f"/ui/suggest?q={typed}")
            return [each["label"] for each in answer.json()["completions"]]

        assert await labels("name:") == ["name:resize", "name:send_mail"]
        assert await labels("queue:m") == ["queue:mail"]
        assert await labels("state:dead error:") == ["error:TimeoutError"]
        assert await labels("sta") == ["state:"]


@pytest.mark.parametrize("path", ["/ui/jobs", "/ui/suggest?q=x"])
async def test_lists_and_suggestions_need_the_scope_read(local_hf: Holdfast, path: str) -> None:
    async with visiting(local_hf, "enqueue") as browser:
        assert (await browser.get(path)).status_code == 403


async def test_the_selected_jobs_become_a_previewed_change(hf: Holdfast) -> None:
    jobs = [await enqueue(hf, "resize", n, delay_seconds=3600) for n in range(3)]
    async with visiting(hf) as browser:
        await browser.get("/ui/jobs")
        fields = {
            "csrf": browser.token,
            "which": "selected",
            "id": [str(job.id) for job in jobs[:2]],
            "action": "cancel",
            "because": "wrong file",
            "rate": "50",
        }
        answer = await browser.post("/ui/jobs/change", data=fields)
        ((change,), _) = await hf.bulk.list()
        assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/bulk/{change.id}")
    assert (change.action, change.state, change.total) == ("cancel", "previewed", 2)
    assert (change.jobs_per_second, change.by, change.because) == (50, "ann", "wrong file")
    assert {(await hf.get(job.id)).state for job in jobs} == {State.QUEUED}
    (entry, *_) = (await hf.audit.list()).entries
    assert (entry.action, entry.target, entry.actor) == ("bulk.create", str(change.id), "ann")


async def test_all_that_match_become_a_previewed_change(hf: Holdfast) -> None:
    for n in range(3):
        await enqueue(hf, "resize", n, delay_seconds=3600)
    await enqueue(hf, "send_mail", "x", delay_seconds=3600)
    async with visiting(hf) as browser:
        await browser.get("/ui/jobs")
        fields = {"which": "all", "q": "queue:images", "action": "cancel"}
        assert (await browser.post("/ui/jobs/change", fields)).status_code == 303
        ((change,), _) = await hf.bulk.list()
    assert (change.total, change.filter and change.filter.queue) == (3, "images")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"which": "selected", "action": "cancel"}, "select at least one job"),
        ({"which": "selected", "action": "cancel", "id": "17"}, "is not a job ID"),
        ({"which": "all", "action": "retry"}, "state"),
        ({"which": "all", "action": "explode"}, "explode"),
        ({"which": "all", "action": "cancel", "rate": "fast"}, "a number of jobs per second"),
        ({"which": "all", "action": "cancel", "rate": "nan"}, "a number of jobs per second"),
        ({"which": "all", "action": "cancel", "because": "x\x00"}, "reason"),
        ({"which": "all", "action": "cancel", "q": "state:ded"}, "did you mean"),
    ],
)
async def test_a_change_that_can_not_be_made_is_explained_at_its_field(
    local_hf: Holdfast, fields: dict[str, str], words: str
) -> None:
    await enqueue(local_hf, "resize", 1)
    async with visiting(local_hf) as browser:
        await browser.get("/ui/jobs")
        answer = await browser.post("/ui/jobs/change", fields)
        assert answer.status_code in (400, 422)
        assert words in words_of(answer.text)
        assert (await local_hf.bulk.list()).changes == []


async def test_a_viewer_changes_nothing_and_sees_no_form(local_hf: Holdfast) -> None:
    await enqueue(local_hf, "resize", 1)
    async with visiting(local_hf, "read") as browser:
        page = await browser.get("/ui/jobs")
        assert "change-form" not in page.text
        answer = await browser.post("/ui/jobs/change", {"which": "all", "action": "cancel"})
        assert answer.status_code == 403
        assert (await local_hf.bulk.list()).changes == []


async def test_a_list_without_jobs_says_so(local_hf: Holdfast) -> None:
    async with visiting(local_hf, "read") as browser:
        assert "No jobs yet" in (await browser.get("/ui/jobs")).text
        assert "No jobs match" in (await browser.get("/ui/jobs?q=queue:mail")).text
