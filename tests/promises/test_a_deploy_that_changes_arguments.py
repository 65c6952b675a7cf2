"""A deploy may add an argument to a job: no job fails because old and new workers overlap."""

from __future__ import annotations

import signal
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from holdfast import Holdfast, State
from holdfast.domain.limits import HAND_BACK_SECONDS_MAX, HAND_BACK_SECONDS_MIN, RELEASES_MAX
from holdfast.testing import sandbox
from holdfast.testing.borrowed import borrowed
from holdfast.testing.virtual_time import VirtualTime
from tests.promises import deploying
from tests.promises.stage import Stage, both_stores
from tests.support.running import execute

pytestmark = [pytest.mark.heavy, pytest.mark.long]

UNKNOWN = "send(to) has no argument 'subject'"
MISSING = "send(to, subject) needs argument 'subject'"


@both_stores
@pytest.mark.parametrize("misfit", [UNKNOWN, MISSING], ids=["unknown argument", "missing argument"])
async def test_a_job_of_another_version_is_left_to_a_worker_of_that_version(
    stage: Stage, misfit: str
) -> None:
    if misfit == UNKNOWN:
        call, wrong, right = deploying.send_after.call("ada", "hello"), "before", "after"
    else:
        call, wrong, right = deploying.send_before.call("ada"), "after", "before"
    (job,) = await stage.hf.enqueue_many([call])
    misfitting = stage.worker(app=f"deploying:{wrong}")
    handed_back = await misfitting.logs("handed_back")
    assert (handed_back["level"], handed_back["message"]) == ("warning", misfit)
    assert (handed_back["delay_seconds"], handed_back["state"]) == (1, "queued")
    fitting = stage.worker(app=f"deploying:{right}")
    await fitting.logs("worker_started")
    misfitting.signal(signal.SIGTERM)
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.attempts, ended.error_code) == (State.SUCCEEDED, 1, None)
    assert ended.releases == len(misfitting.events("handed_back"))
    assert len(stage.ledger("start", job.id)) == 1
    assert await fitting.logs("settle")
    *told, succeeded = await stage.hf.jobs.attempts(job.id)
    assert (succeeded.outcome, succeeded.attempt) == ("succeeded", 1)
    assert {(each.outcome, each.error_code, each.error_text) for each in told} == {
        ("released", "HANDED_BACK", misfit)
    }


@both_stores
async def test_a_job_that_no_worker_can_run_is_handed_back_a_limited_number_of_times(
    hf: Holdfast, store_url: str
) -> None:
    @hf.job
    async def send(to: str) -> None: ...

    (job,) = await hf.enqueue_many([deploying.send_after.call("ada", "hello")])
    await execute(store_url, f"UPDATE jobs SET releases = {RELEASES_MAX - 1}")
    assert (await hf.run_due()).handed_back == 1
    waiting = await hf.get(job.id)
    assert (waiting.state, waiting.attempts, waiting.releases) == (State.QUEUED, 0, RELEASES_MAX)
    await hf.jobs.retry(job.id)
    assert (await hf.run_due()).failed == 1
    ended = await hf.get(job.id)
    assert (ended.state, ended.error_code) == (State.FAILED, "BAD_ARGUMENTS")
    assert ended.error_text == f"no worker could run it in {RELEASES_MAX} releases: {UNKNOWN}"


async def test_a_job_that_no_worker_can_run_fails_after_an_hour_and_a_half() -> None:
    hf, newer = Holdfast(), Holdfast()

    @hf.job
    async def send(to: str) -> None: ...

    @hf.job
    async def other() -> None: ...

    async with AsyncExitStack() as stack:
        jobs = await stack.enter_async_context(sandbox(hf))
        await stack.enter_async_context(borrowed(newer, hf.url_shown, VirtualTime()))

        @newer.job(name="send")
        async def send_more(to: str, subject: str) -> None: ...

        job = await send_more.enqueue("ada", "hello")
        report = await jobs.drain()
        assert (report.handed_back, report.failed) == (1, 0)
        await other.enqueue()
        assert (await jobs.drain()).succeeded == 1  # no other job waits
        report = await jobs.drain(with_delayed=True)
        assert (report.handed_back, report.failed) == (RELEASES_MAX - 1, 1)
        ended = await hf.get(job.id)
        waits = [
            min(HAND_BACK_SECONDS_MIN * 2**count, HAND_BACK_SECONDS_MAX)
            for count in range(RELEASES_MAX)
        ]
        assert ended.finished_at is not None
        assert ended.finished_at - ended.created_at == timedelta(seconds=sum(waits))
        assert 90 <= sum(waits) / 60 <= 100
        assert (ended.state, ended.error_code) == (State.FAILED, "BAD_ARGUMENTS")
        assert ended.attempts == 1
