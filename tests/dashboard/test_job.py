"""The page of a job tells all about it, and what is done there is done once, and recorded."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from html import unescape
from uuid import UUID

import pytest

from holdfast import Context, Holdfast, Retry, State
from holdfast.domain.encryption import make_keys
from holdfast.operations.secrets import VARIABLE
from tests.support.running import QUICK
from tests.support.visiting import enqueue, link_of, make_shop, visiting, words_of


@pytest.fixture
async def hf(store_url: str) -> AsyncIterator[Holdfast]:
    async with make_shop(store_url) as hf:
        yield hf


@pytest.fixture
async def local_hf(local_url: str) -> AsyncIterator[Holdfast]:
    async with make_shop(local_url) as hf:
        yield hf


NOBODY = UUID(int=7)


async def test_a_dead_job_shows_what_happened(hf: Holdfast) -> None:

    @hf.job(queue="mail", retry=Retry.schedule([0, 0]))
    async def flaky(ctx: Context, to: str) -> None:
        await ctx.progress({"done": 1, "total": 4})
        raise TimeoutError(f"no answer to {to}\nline two")

    job = await flaky.options(
        correlation_id="order-17", tags=("vip",), priority=-3, idempotency_key="k-1"
    ).enqueue("ann")
    await hf.run_worker(until_empty=True)
    async with visiting(hf) as browser:
        page = (await browser.get(f"/ui/jobs/{job.id}")).text
    words = words_of(page)
    assert "All 3 attempts are used up; the last error: TimeoutError." in words
    assert "3 of 3" in words
    for number, attempt in enumerate(await hf.jobs.attempts(job.id), 1):
        assert f'<tr id="attempt-{attempt.fence}">' in page
        assert f"{number} failed" in words
        assert (attempt.worker or "?") in words
    assert words.count("TimeoutError: no answer to ann") >= 3
    assert "line two" in words
    assert "25%" in words
    for fact in ("order-17", "k-1", "-3", "vip", str(job.id)):
        assert fact in words
    assert link_of(page, "order-17") == "/ui/jobs?q=correlation%3Aorder-17"
    assert "Requeue" in words
    assert "Cancel job" not in words
    assert words.count("Fence") == 1  # of attempts: without a lease, the job's own tells nothing


async def test_a_waiting_job_says_why_it_waits_and_what_to_do(hf: Holdfast) -> None:
    due = await enqueue(hf, "resize", 1)
    later = await enqueue(hf, "resize", 1, delay_seconds=3600)
    async with visiting(hf) as browser:
        words = words_of((await browser.get(f"/ui/jobs/{due.id}")).text)
        assert "No live worker serves queue images" in words
        assert "Live workers 0" in words
        assert "Run now" not in words
        words = words_of((await browser.get(f"/ui/jobs/{later.id}")).text)
        assert "It is not due until" in words
        assert "holdfast jobs retry" not in words
        assert "Run now" in words
        assert "Cancel job" in words


async def test_a_running_job_shows_its_attempt_so_far(hf: Holdfast) -> None:
    pages: list[str] = []

    @hf.job
    async def look(ctx: Context) -> None:
        await ctx.progress(0.5)
        pages.append((await browser.get(f"/ui/jobs/{ctx.job_id}")).text)

    async with visiting(hf) as browser:
        job = await look.enqueue()
        await hf.run_due()
    (page,) = pages
    words = words_of(page)
    assert "Running on" in words
    assert "1 running" in words
    assert words.count("Fence") == 2
    assert "50%" in words
    assert "Cancel job" in words
    assert f'data-live="/ui/live?job={job.id}"' in page


async def test_numbers_are_shown_and_edited_byte_for_byte(store_url: str, hf: Holdfast) -> None:

    @hf.job
    async def keep(x: list[object]) -> object:
        return x

    exact = "[\n    9007199254740993,\n    1e100,\n    0.1,\n    -0.0,\n    12345678901234567\n  ]"
    job = await keep.enqueue([9007199254740993, 1e100, 0.1, -0.0, 12345678901234567])
    await hf.run_due()
    # A server whose code doesn't define the job shows its arguments as JSON.
    async with Holdfast(store_url, **QUICK) as other, visiting(other) as browser:
        page = unescape((await browser.get(f"/ui/jobs/{job.id}")).text)
        assert f'"x": {exact}' in page
        assert exact.replace("\n  ", "\n") in page  # the result
        edit = (await browser.get(f"/ui/jobs/{job.id}/requeue")).text
        text = unescape(
            edit.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0]
        )
        answer = await browser.post(f"/ui/jobs/{job.id}/requeue", {"arguments": unescape(text)})
        assert answer.status_code == 303, words_of(answer.text)[:800]
    copy = await hf.get(await requeued_as(hf, job.id))
    assert copy.arguments == job.arguments
    assert str(copy.arguments) == str(job.arguments)


async def requeued_as(hf: Holdfast, job_id: UUID) -> UUID:
    copy = await hf.jobs.requeued_as(job_id)
    assert copy is not None
    return copy


async def test_relatives_are_linked(hf: Holdfast) -> None:

    @hf.job(queue="parents")
    async def start() -> None:
        await enqueue(hf, "resize", 1)

    parent = await start.options(correlation_id="order-17").enqueue()
    await hf.run_due()
    (child,) = (await hf.jobs.list()).jobs[:1]
    copy = await hf.jobs.requeue(parent.id)
    async with visiting(hf) as browser:
        page = (await browser.get(f"/ui/jobs/{parent.id}")).text
        assert link_of(page, str(copy.id)) == f"/ui/jobs/{copy.id}"
        assert f'href="/ui/jobs/{child.id}"' in page
        assert "Enqueued these jobs" in words_of(page)
        page = (await browser.get(f"/ui/jobs/{copy.id}")).text
        assert f"Requeued from {parent.id}" in words_of(page)
        page = (await browser.get(f"/ui/jobs/{child.id}")).text
        assert f"Enqueued by {parent.id}" in words_of(page)


async def test_an_encrypted_job_is_shown_as_such_without_its_key(
    store_url: str, hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, make_keys("k1"))

    @hf.job(encrypted=True)
    async def secret(pin: str) -> str:
        return pin

    job = await secret.enqueue("4711-pin")
    await hf.run_due()
    await hf.close()
    monkeypatch.setenv(VARIABLE, make_keys("k2"))
    async with visiting(Holdfast(store_url, **QUICK)) as browser:
        page = (await browser.get(f"/ui/jobs/{job.id}")).text
        edit = (await browser.get(f"/ui/jobs/{job.id}/requeue")).text
    assert "4711-pin" not in page + edit
    assert words_of(page).count("Encrypted with key k1: this server doesn't have that key.") == 2
    assert "this server can't show the original arguments" in words_of(edit)


HOSTILE = '"><script>alert(1)</script>\x1b[31m\u202e</textarea><b>'


async def test_hostile_values_are_shown_as_text(store_url: str, hf: Holdfast) -> None:

    @hf.job(name="<b>x</b>\u202e", queue="<img src=x>")
    async def hostile(x: str) -> None:
        raise RuntimeError(HOSTILE)

    job = await hostile.options(tags=("<i>",), correlation_id='"><script>', max_attempts=1).enqueue(
        HOSTILE
    )
    await hf.run_due()
    async with visiting(hf) as browser:
        for path in (f"/ui/jobs/{job.id}", f"/ui/jobs/{job.id}/requeue"):
            page = (await browser.get(path)).text
            assert "<script>alert" not in page
            assert not re.search(r"<(img|i|b)[ >]", page)
            assert not {"\x1b", "\u202e"} & {*page}
            assert page.count("</textarea>") <= 1
        answer = await browser.post(f"/ui/jobs/{job.id}/requeue", {"arguments": HOSTILE})
        assert answer.status_code == 422
        assert "<script>alert" not in answer.text
    # Without the handler, its arguments are edited as JSON: what can't be seen is escaped.
    async with Holdfast(store_url, **QUICK) as other, visiting(other) as browser:
        page = (await browser.get(f"/ui/jobs/{job.id}/requeue")).text
        text = unescape(
            page.partition("<textarea")[2].partition(">")[2].partition("</textarea>")[0]
        )
    assert not {"\x1b", "\u202e"} & {*page}
    assert json.loads(text) == {"x": HOSTILE}


@pytest.mark.parametrize("verb", ["", "/requeue", "/cancel", "/retry"])
async def test_a_job_of_another_tenant_is_as_unknown_as_none(hf: Holdfast, verb: str) -> None:
    theirs = await enqueue(hf, "resize", 1, tenant="other", delay_seconds=3600)
    async with visiting(hf, tenant="acme") as browser:
        answers = []
        for job_id in (theirs.id, NOBODY):
            path = f"/ui/jobs/{job_id}{verb}"
            send = browser.get if verb in ("", "/requeue") else browser.post
            answer = await send(path)
            correlation = re.compile(r"[0-9a-f]{32}")
            answers.append(correlation.sub("", answer.text.replace(str(job_id), "ID")))
            assert answer.status_code == 404
        assert answers[0] == answers[1]
        assert (await hf.get(theirs.id)).state is State.QUEUED
        assert (await browser.get("/ui/jobs/17")).status_code == 404


async def test_a_tenants_page_links_nothing_of_others(hf: Holdfast) -> None:
    own = await enqueue(hf, "resize", 1, tenant="acme", correlation_id="shared")
    theirs = await enqueue(hf, "resize", 1, tenant="other", correlation_id="shared")
    async with visiting(hf, tenant="acme") as browser:
        page = (await browser.get(f"/ui/jobs/{own.id}")).text
    assert str(theirs.id) not in page


async def changes(hf: Holdfast) -> list[tuple[str, str | None, str]]:
    entries = (await hf.audit.list()).entries
    return [
        (entry.action, entry.because, entry.outcome)
        for entry in reversed(entries)
        if entry.action.startswith("job.")
    ]


async def test_a_job_is_canceled_with_its_reason_and_an_entry(hf: Holdfast) -> None:
    job = await enqueue(hf, "resize", 1)
    async with visiting(hf) as browser:
        await browser.get(f"/ui/jobs/{job.id}")
        answer = await browser.post(f"/ui/jobs/{job.id}/cancel", {"because": "wrong file"})
        assert (answer.status_code, answer.headers["location"]) == (303, f"/ui/jobs/{job.id}")
        assert "Canceled." in words_of((await browser.get(f"/ui/jobs/{job.id}")).text)
    canceled = await hf.get(job.id)
    assert (canceled.state, canceled.error_text) == ("canceled", "canceled by ann: wrong file")
    assert await changes(hf) == [("job.cancel", "wrong file", "allowed")]


async def test_a_job_that_ended_meanwhile_is_shown_as_it_is(hf: Holdfast) -> None:
    job = await enqueue(hf, "resize", 1)
    async with visiting(hf) as browser:
        await browser.get(f"/ui/jobs/{job.id}")
        await hf.run_due()
        for verb in ("cancel", "retry"):
            answer = await browser.post(f"/ui/jobs/{job.id}/{verb}")
            words = words_of(answer.text)
            assert (verb, answer.status_code) == (verb, 409)
            assert "Nothing was changed" in words
            assert "succeeded" in words
            assert 'id="why" class="why tone-good" aria-label="Why">' in answer.text  # not live
        assert [job.state for job in (await hf.jobs.list()).jobs] == ["succeeded"]
    assert ("job.cancel", None, "failed") in await changes(hf)


async def test_a_waiting_job_is_run_now(hf: Holdfast) -> None:
    job = await enqueue(hf, "resize", 1, delay_seconds=3600)
    async with visiting(hf) as browser:
        await browser.get(f"/ui/jobs/{job.id}")
        assert (await browser.post(f"/ui/jobs/{job.id}/retry")).status_code == 303
        await hf.run_due()
    assert (await hf.get(job.id)).state is State.SUCCEEDED
    assert await changes(hf) == [("job.retry", None, "allowed")]


async def test_a_form_sent_twice_requeues_once(hf: Holdfast) -> None:
    job = await enqueue(hf, "resize", 0)
    await hf.run_due()
    async with visiting(hf) as browser:
        fields = {"known": known_of((await browser.get(f"/ui/jobs/{job.id}")).text)}
        first = await browser.post(f"/ui/jobs/{job.id}/requeue", fields)
        copy = await requeued_as(hf, job.id)
        assert first.headers["location"] == f"/ui/jobs/{copy}"
        again = await browser.post(f"/ui/jobs/{job.id}/requeue", fields)
        assert again.status_code == 409
        assert link_of(again.text, "Open the copy") == f"/ui/jobs/{copy}"
        assert await requeued_as(hf, job.id) == copy
        # Somebody who has seen the copy may want another one.
        page = (await browser.get(f"/ui/jobs/{job.id}")).text
        assert "It was requeued before" in words_of(page)
        fields = {"known": known_of(page)}
        third = await browser.post(f"/ui/jobs/{job.id}/requeue", fields)
        assert third.headers["location"] not in (f"/ui/jobs/{copy}", None)
    outcomes = [outcome for _, _, outcome in await changes(hf)]
    assert outcomes == ["allowed", "allowed", "failed", "allowed"]


def known_of(page: str) -> str:
    found = re.search(r'name="known" value="([^"]*)"', page)
    assert found is not None
    return found[1]


async def test_a_job_is_requeued_with_edited_arguments(store_url: str, hf: Holdfast) -> None:
    job = await enqueue(hf, "send_mail", "nobody")
    await hf.run_due()
    async with Holdfast(store_url, **QUICK) as other, visiting(other) as browser:
        edit = (await browser.get(f"/ui/jobs/{job.id}/requeue")).text
        assert '"to": "nobody"' in unescape(edit)
        edited = '{"to": "ann", "amount": 0.30}'
        answer = await browser.post(f"/ui/jobs/{job.id}/requeue", {"arguments": edited})
        assert answer.status_code == 303
    copy = await hf.get(await requeued_as(hf, job.id))
    assert (copy.arguments, copy.requeued_from) == ({"to": "ann", "amount": 0.3}, job.id)


async def test_the_form_of_the_handler_is_filled_in_and_its_errors_are_at_their_fields(
    hf: Holdfast,
) -> None:
    job = await enqueue(hf, "send_mail", "nobody")
    await hf.run_due()
    async with visiting(hf) as browser:
        edit = (await browser.get(f"/ui/jobs/{job.id}/requeue")).text
        assert "nobody</textarea>" in edit
        fields = {"do": "run", "value:/to": "ann", "value:/amount": "much"}
        answer = await browser.post(f"/ui/jobs/{job.id}/requeue", fields)
        assert answer.status_code == 422
        assert 'aria-invalid="true"' in answer.text
        assert "much" in answer.text
        fields["value:/amount"] = "0.30"
        answer = await browser.post(f"/ui/jobs/{job.id}/requeue", fields)
        assert answer.status_code == 303, words_of(answer.text)
    copy = await hf.get(await requeued_as(hf, job.id))
    assert copy.arguments == {"to": "ann", "amount": 0.3}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[1]", "the arguments are one object"),
        ('{"to": 17}', "to"),
        ('{"too": "ann"}', "too"),
        ('{"to": "ann", "amount": 0.1234567890123456789}', "a double can't represent"),
        ('{"to": "ann", "to": "bob"}', "appears twice"),
        ('{"to": "\\u0000"}', "U+0000"),
    ],
)
async def test_arguments_that_do_not_fit_are_explained_and_kept(
    local_hf: Holdfast, text: str, words: str
) -> None:
    job = await enqueue(local_hf, "send_mail", "nobody")
    await local_hf.run_due()
    async with visiting(local_hf) as browser:
        await browser.get(f"/ui/jobs/{job.id}/requeue")
        answer = await browser.post(f"/ui/jobs/{job.id}/requeue", {"arguments": text})
        assert answer.status_code == 422
        assert words in words_of(answer.text)
        assert f"\n{text}</textarea>" in unescape(answer.text)
        assert 'aria-invalid="true"' in answer.text
        assert await local_hf.jobs.requeued_as(job.id) is None


async def test_a_job_that_has_not_ended_can_not_be_edited(local_hf: Holdfast) -> None:
    job = await enqueue(local_hf, "resize", 1)
    async with visiting(local_hf) as browser:
        answer = await browser.get(f"/ui/jobs/{job.id}/requeue")
        assert answer.status_code == 409
        assert "only an ended job can be requeued" in words_of(answer.text)


@pytest.mark.parametrize("verb", ["cancel", "retry", "requeue"])
async def test_a_viewer_sees_no_action_and_can_take_none(local_hf: Holdfast, verb: str) -> None:
    job = await enqueue(local_hf, "resize", 1, delay_seconds=3600)
    async with visiting(local_hf, "read") as browser:
        page = (await browser.get(f"/ui/jobs/{job.id}")).text
        assert "job-actions" not in page
        assert (await browser.post(f"/ui/jobs/{job.id}/{verb}")).status_code == 403
    assert (await local_hf.get(job.id)).state is State.QUEUED


async def test_a_reason_that_can_not_be_stored_is_refused(local_hf: Holdfast) -> None:
    job = await enqueue(local_hf, "resize", 1)
    async with visiting(local_hf) as browser:
        await browser.get(f"/ui/jobs/{job.id}")
        answer = await browser.post(f"/ui/jobs/{job.id}/cancel", {"because": "x" * 300})
        assert answer.status_code == 422
        assert "the maximum is 200" in words_of(answer.text)
    assert (await local_hf.get(job.id)).state is State.QUEUED


async def test_the_page_of_a_job_with_many_attempts_stays_small(local_hf: Holdfast) -> None:

    @local_hf.job(retry=Retry.schedule([0] * 60))
    async def fail() -> None:
        raise RuntimeError("again")

    job = await fail.enqueue()
    await local_hf.run_worker(until_empty=True)
    async with visiting(local_hf) as browser:
        page = (await browser.get(f"/ui/jobs/{job.id}")).text
    assert page.count('<tr id="attempt-') == 50
    assert "The last 50 attempts. 11 earlier ones are not shown." in words_of(page)
