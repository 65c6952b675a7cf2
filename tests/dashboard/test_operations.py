"""The overview, queues, breakers and workers: what they show, what they change, and to whom."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import AsyncIterator
from datetime import timedelta
from urllib.parse import quote

import msgspec
import pytest
from markupsafe import escape

from holdfast import Breaker, Holdfast, Permanent, Retry, State, Transient
from holdfast.dashboard.attention import concerns, place_of
from holdfast.domain.diagnosis.findings import Check, Examination, Finding, Severity
from holdfast.domain.job import Filter
from holdfast.domain.messengers import MessengerStatus
from holdfast.domain.samples import moment_of
from holdfast.domain.workers import Load
from holdfast.testing.conformance.workers import worker
from tests.support.dashboard import Browser, browsing
from tests.support.messengers import DOWN, UP
from tests.support.processes import wait_until
from tests.support.running import execute, signal, working
from tests.support.stores import full_store
from tests.support.visiting import words_of

HOSTILE = "<script>alert(1)</script>&\"'"


@pytest.fixture
async def operator(local_hf: Holdfast) -> AsyncIterator[Browser]:
    key = await local_hf.keys.create("ann", scopes=["read", "operate"])
    async with browsing(local_hf) as browser:
        await browser.log_in(key)
        yield browser


async def actions(hf: Holdfast) -> list[tuple[str, str | None, str | None]]:
    found = (await hf.audit.list()).entries
    return [(each.action, each.target, each.because) for each in reversed(found)]


async def test_the_overview_says_that_all_is_well_and_shows_the_queues(
    local_hf: Holdfast, operator: Browser
) -> None:
    @local_hf.job(queue="mail", timeout_seconds=5)
    async def send() -> None: ...

    await send.options(delay_seconds=3600).enqueue()
    async with working(local_hf):

        async def is_well() -> bool:
            return "All is well" in (await operator.get("/")).text

        await wait_until(is_well, "examined")
    page = (await operator.get("/")).text
    assert 'href="/ui/queues/mail"' in page
    assert page.count("data-chart") == 7


async def test_the_overview_puts_the_worst_first_with_what_to_do_and_where(
    local_hf: Holdfast,
) -> None:
    @local_hf.job(queue=HOSTILE)
    async def send() -> None: ...

    await send.enqueue()
    await local_hf.queues.pause(HOSTILE, by="bob", because="the disk is full")
    key = await local_hf.keys.create("ann", scopes=["read"])
    async with browsing(local_hf, app="shop:hf") as browser:
        await browser.log_in(key)

        async def is_concerned() -> bool:
            return "concerns-title" in (await browser.get("/")).text

        await wait_until(is_concerned, "examined")
        page = (await browser.get("/")).text
        assert "has been paused by bob (the disk is full)" in page
        assert "holdfast queues resume --app shop:hf" in page
        assert "MODULE:NAME" not in page
        assert f'href="/ui/queues/{quote(HOSTILE, safe="")}"' in page
        assert "<script>alert" not in page
        shown = await browser.get(f"/ui/queues/{quote(HOSTILE, safe='')}")
        assert shown.status_code == 200
        assert "<script>alert" not in shown.text
        assert escape(f"holdfast worker shop:hf --queues {shlex.quote(HOSTILE)}") in shown.text


def test_concerns_are_what_is_at_least_a_warning_worst_first() -> None:
    findings = [
        Finding(code=Check.DISK, severity=Severity.OK, sentence="room"),
        Finding(code=Check.PAUSED, severity=Severity.WARNING, sentence="p", facts={"queue": "a/b"}),
        Finding(code=Check.WORKERS, severity=Severity.INFO, sentence="none"),
        Finding(code=Check.SCHEMA, severity=Severity.CRITICAL, sentence="old"),
    ]
    found = concerns(Examination(database="x", findings=findings))
    assert [(each.finding.code, each.path) for each in found] == [
        (Check.SCHEMA, None),
        (Check.PAUSED, "/ui/queues/a%2Fb"),
    ]
    assert place_of(findings[2]) == ("Workers", "/ui/workers")


async def test_a_tenants_key_gets_a_start_page_without_numbers_of_others(
    local_hf: Holdfast,
) -> None:
    await local_hf.queues.pause("secret-queue")
    key = await local_hf.keys.create("viewer", scopes=["read"], tenant="acme")
    async with browsing(local_hf) as browser:
        await browser.log_in(key)
        start = await browser.get("/")
        assert (start.status_code, start.headers["location"]) == (303, "/ui/jobs")
        page = await browser.get("/ui/jobs")
        assert page.status_code == 200
        assert "secret-queue" not in page.text
        for path in ("/ui/queues", "/ui/queues/secret-queue", "/ui/breakers", "/ui/workers"):
            assert (await browser.get(path)).status_code == 403


async def test_charts_show_samples_with_their_gaps_and_ranges(
    local_hf: Holdfast, operator: Browser
) -> None:
    now = int((await local_hf.now()).timestamp())
    for ago in (600, 590, 300):
        local_hf._metrics.throughput.settled("mail", State.SUCCEEDED, 0.25)
        await local_hf._sampling.take(now - ago)
    page = (await operator.get("/ui/queues/mail")).text
    strokes = re.search(r'id="trend-waiting".*?class="stroke main" d="([^"]*)"', page, re.S)
    assert strokes is not None
    assert strokes[1].count("M") == 2  # a gap between them
    assert moment_of(now) - timedelta(hours=1) is not None
    for key in ("24h", "7d", "30d", "nonsense"):
        answer = await operator.get(f"/ui/queues/mail?range={key}")
        assert answer.status_code == 200
    listed = (await operator.get("/ui/queues")).text
    assert "Succeeded per minute in mail" in listed


async def test_an_operator_pauses_resumes_and_caps_a_queue(
    local_hf: Holdfast, operator: Browser
) -> None:
    await operator.get("/ui/queues/mail")
    answer = await operator.post("/ui/queues/mail/pause", {"because": "the disk is full"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/queues/mail")
    page = (await operator.get("/ui/queues/mail")).text
    assert "Queue mail is paused." in page
    assert "by ann: the disk is full" in page
    assert (await operator.post("/ui/queues/mail/pause")).status_code == 409
    await operator.post("/ui/queues/mail/resume")
    assert not (await local_hf.queues.get("mail")).paused
    await operator.post("/ui/queues/mail/cap", {"running_max": "3"})
    assert (await local_hf.queues.get("mail")).running_max == 3
    for wrong in ("-1", "many", "9" * 30, "9" * 5000, "\u0663"):
        refused = await operator.post("/ui/queues/mail/cap", {"running_max": wrong})
        assert refused.status_code == 422
        assert "must be a number from 0" in refused.text
    await operator.post("/ui/queues/mail/cap", {"running_max": ""})
    assert (await local_hf.queues.get("mail")).running_max is None
    assert ("queue.pause", "mail", "the disk is full") in await actions(local_hf)


async def test_a_purge_needs_the_name_of_the_queue(local_hf: Holdfast, operator: Browser) -> None:
    @local_hf.job(queue="mail")
    async def send() -> None: ...

    await local_hf.enqueue_many([send.options(delay_seconds=60).call() for _ in range(3)])
    await operator.get("/ui/queues/mail")
    refused = await operator.post("/ui/queues/mail/purge", {"name": "Mail"})
    assert refused.status_code == 422
    assert "type the name of the queue" in refused.text
    assert (await local_hf.queues.get("mail")).waiting == 3
    done = await operator.post("/ui/queues/mail/purge", {"name": "mail", "because": "a mistake"})
    assert done.status_code == 303

    async def is_purged() -> bool:
        return (await local_hf.queues.get("mail")).waiting == 0

    await wait_until(is_purged, "purged")
    canceled = (await local_hf.jobs.list(Filter(states=(State.CANCELED,)))).jobs
    assert len(canceled) == 3
    assert "ann: a mistake" in (canceled[0].error_text or "")
    assert ("queue.purge", "mail", "a mistake") in await actions(local_hf)


async def test_an_operator_opens_closes_and_resets_breakers(
    local_hf: Holdfast, operator: Browser
) -> None:
    @local_hf.job(breaker=Breaker("gate/way", failures=1), retry=Retry.exponential())
    async def pay() -> None:
        raise Transient("no answer", code="DOWN")

    await pay.enqueue()
    await local_hf.run_due()
    page = (await operator.get("/ui/breakers")).text
    assert "DOWN: no answer" in page
    assert 'action="/ui/breakers/gate%2Fway/close"' in page
    closed = await operator.post("/ui/breakers/gate%2Fway/close")
    assert closed.status_code == 303, closed.text
    found = await local_hf.breakers.get("gate/way")
    assert found is not None
    assert not found.is_open
    assert (await operator.post("/ui/breakers/gate%2Fway/close")).status_code == 409
    await operator.post("/ui/breakers/gate%2Fway/open", {"because": "a move"})
    assert "by ann" in (await operator.get("/ui/breakers")).text
    await operator.post("/ui/breakers/gate%2Fway/reset")
    assert await local_hf.breakers.get("gate/way") is None
    await operator.post("/ui/breakers", {"key": "new", "because": "a test"})
    assert (await local_hf.breakers.get("new")) is not None
    refused = await operator.post("/ui/breakers", {"key": ""})
    assert refused.status_code == 422
    assert "must not be empty" in refused.text
    assert ("breaker.open", "new", "a test") in await actions(local_hf)


async def test_workers_are_shown_with_their_load_and_jobs(
    local_hf: Holdfast, operator: Browser
) -> None:
    started, end = asyncio.Event(), asyncio.Event()

    @local_hf.job
    async def stay() -> None:
        started.set()
        await end.wait()

    job = await stay.enqueue()
    async with working(local_hf, concurrency=4):
        await signal(started)

        async def is_shown() -> bool:
            return f"/ui/jobs/{job.id}" in (await operator.get("/ui/workers")).text

        await wait_until(is_shown, "shown")
        page = (await operator.get("/ui/workers")).text
        assert "1 of 4 slots in use" in page  # before a heartbeat told of it
        end.set()


async def test_workers_are_shown_with_the_last_message_of_their_messengers(
    local_hf: Holdfast, operator: Browser
) -> None:
    store = await full_store(local_hf)

    async def shown(status: MessengerStatus) -> str:
        await store.register(worker(id="a"), Load(messengers=(status,)))
        cell = (await operator.get("/ui/workers")).text.partition('data-label="Messengers">')[2]
        return words_of(cell.partition("</td>")[0])

    assert await shown(UP) == "pigeon no message yet"
    heard = msgspec.structs.replace(UP, heard_seconds=7200.0, sent_seconds=9000.0)
    assert await shown(heard) == "pigeon last message 2 h ago"
    assert await shown(msgspec.structs.replace(heard, used=False)) == "\N{EN DASH}"
    down = msgspec.structs.replace(DOWN, fallback="polling every 2 s", sent_seconds=120.0)
    told = "pigeon no wind; fallback: polling every 2 s; last message 2 min ago"
    assert await shown(down) == told


async def test_a_lost_worker_is_shown_as_lost(
    local_hf: Holdfast, local_url: str, operator: Browser
) -> None:
    @local_hf.job
    async def stay() -> None: ...

    async with working(local_hf):

        async def is_there() -> bool:
            return bool(await local_hf.workers.list())

        await wait_until(is_there, "registered")
        await execute(local_url, "UPDATE workers SET seen_at = seen_at - 100 * 1000000")
        page = (await operator.get("/ui/workers")).text
    assert ">lost<" in page


async def test_pages_are_designed_for_an_empty_database(operator: Browser) -> None:
    for path, words in (
        ("/", "Run your first job"),
        ("/ui/queues", "No queues yet"),
        ("/ui/breakers", "No failures counted"),
        ("/ui/workers", "No workers"),
        ("/ui/queues/unused", "idle"),
    ):
        answer = await operator.get(path)
        assert answer.status_code == 200, answer.text
        assert words in answer.text


async def test_failures_lead_to_their_jobs(local_hf: Holdfast, operator: Browser) -> None:
    @local_hf.job
    async def fail() -> None:
        raise Permanent(f"broken {HOSTILE}", code="BROKEN")

    job = await fail.enqueue()
    await local_hf.run_due()
    page = (await operator.get("/")).text
    assert f'href="/ui/jobs/{job.id}"' in page
    assert "BROKEN" in page
    assert "<script>alert" not in page


async def test_a_viewer_sees_no_buttons(local_hf: Holdfast) -> None:
    await local_hf.breakers.open("gateway")
    await local_hf.queues.pause("mail")
    key = await local_hf.keys.create("viewer", scopes=["read"])
    async with browsing(local_hf) as browser:
        await browser.log_in(key)
        for path in ("/ui/breakers", "/ui/queues/mail"):
            page = (await browser.get(path)).text
            assert '<form method="post"' not in page.partition("<main")[2]
