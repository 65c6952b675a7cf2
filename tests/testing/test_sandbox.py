"""What users' own tests stand on: `holdfast.testing`."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import gettempdir

import pytest

from holdfast import Context, Holdfast, JobFailed, Permanent, Retry, Snooze, State
from holdfast.testing import VirtualTime, sandbox
from holdfast.testing.borrowed import borrowed


async def test_a_sandbox_starts_empty_and_leaves_the_real_database_alone(
    hf: Holdfast, server: str | None
) -> None:
    @hf.job
    async def nothing() -> None: ...

    real = await nothing.enqueue()
    for _ in range(2):
        async with sandbox(hf, server) as jobs:
            assert await jobs.jobs() == []
            await nothing.enqueue()
            assert (await jobs.drain()).succeeded == 1
    assert [job.id for job in (await hf.jobs.list()).jobs] == [real.id]
    assert (await hf.get(real.id)).state is State.QUEUED


async def test_drain_runs_what_is_due_and_what_that_enqueues(
    hf: Holdfast, server: str | None
) -> None:
    @hf.job
    async def count_down(number: int) -> None:
        if number:
            await count_down.enqueue(number - 1)

    async with sandbox(hf, server) as jobs:
        await count_down.enqueue(3)
        await count_down.options(delay_seconds=60).enqueue(0)
        assert (await jobs.drain()).succeeded == 4
        (waiting,) = await jobs.jobs(State.QUEUED)
        assert waiting.arguments == {"number": 0}


async def test_time_stands_still_until_it_is_told_to_go_on(hf: Holdfast) -> None:
    @hf.job
    async def remind() -> None: ...

    async with sandbox(hf) as jobs:
        job = await remind.options(delay_seconds=3600).enqueue()
        await jobs.advance(3599)
        assert str(await jobs.drain()) == "nothing to do"
        await jobs.advance(1)
        assert (await jobs.drain()).succeeded == 1
        ended = await hf.get(job.id)
        assert ended.started_at == ended.run_at == ended.created_at + timedelta(hours=1)
        with pytest.raises(ValueError, match="time can't go back"):
            await jobs.advance(-1)


async def test_drain_with_delayed_goes_through_retries_snoozes_and_delays(
    hf: Holdfast, server: str | None
) -> None:
    @hf.job(retry=Retry.exponential(max_attempts=5, base=3600))
    async def flaky(ctx: Context) -> int:
        if ctx.attempt < 4:
            raise ConnectionError("not yet")
        return ctx.attempt

    @hf.job
    async def sleepy(ctx: Context) -> str:
        if (await hf.get(ctx.job_id)).snoozes < 2:
            raise Snooze(86400)
        return "awake"

    async with sandbox(hf, server) as jobs:
        flaked, slept = await flaky.enqueue(), await sleepy.options(delay_seconds=60).enqueue()
        report = await jobs.drain(with_delayed=True)
        assert (report.succeeded, report.retried, report.snoozed) == (2, 3, 2)
        assert await hf.result(flaked.id) == 4
        assert await hf.result(slept.id) == "awake"


async def test_drain_leaves_jobs_without_a_handler_waiting(hf: Holdfast, tmp_path: Path) -> None:
    other = Holdfast(f"sqlite:///{tmp_path / 'unused.db'}")

    @hf.job
    async def known() -> None: ...

    async with sandbox(hf) as jobs:
        async with borrowed(other, hf.url_shown, VirtualTime()):

            @other.job
            async def unknown() -> None: ...

            await unknown.enqueue()
        await known.enqueue()
        assert (await jobs.drain(with_delayed=True)).succeeded == 1
        assert [job.name for job in await jobs.jobs(State.QUEUED)] == ["unknown"]


async def test_an_expired_job_is_canceled_by_virtual_time(hf: Holdfast, server: str | None) -> None:
    @hf.job(expires_in_seconds=60)
    async def offer() -> None: ...

    async with sandbox(hf, server) as jobs:
        job = await offer.options(delay_seconds=59).enqueue()
        await jobs.advance(61)
        await jobs.drain()
        assert (await hf.get(job.id)).error_code == "EXPIRED"


async def test_failures_are_kept_in_the_sandbox_as_everywhere(
    hf: Holdfast, server: str | None
) -> None:
    @hf.job
    async def fail() -> None:
        raise Permanent("no", code="NO")

    async with sandbox(hf, server) as jobs:
        await fail.enqueue()
        assert (await jobs.drain()).failed == 1
        (job,) = await jobs.jobs(State.FAILED)
        assert job.last_error is not None
        assert job.last_error["code"] == "NO"


async def test_jobs_lists_everything_page_by_page(hf: Holdfast) -> None:
    @hf.job
    async def nothing() -> None: ...

    async with sandbox(hf) as jobs:
        await hf.enqueue_many([nothing.call() for _ in range(2500)])
        found = await jobs.jobs()
        assert len(found) == 2500
        assert found == sorted(found, key=lambda job: job.id, reverse=True)


async def test_what_plain_code_enqueues_goes_into_the_sandbox_and_ends_with_it(
    hf: Holdfast,
) -> None:
    @hf.job
    async def nothing() -> None: ...

    before = threading.active_count()
    async with sandbox(hf) as jobs:
        job = await asyncio.to_thread(nothing.enqueue_sync)
        assert [each.id for each in await jobs.jobs()] == [job.id]
        assert (await jobs.drain()).succeeded == 1
    # The thread that `to_thread` made stays with the event loop.
    assert threading.active_count() <= before + 1
    assert (await hf.jobs.list()).jobs == []


async def test_a_sandbox_ends_cleanly_when_its_test_fails(hf: Holdfast) -> None:
    @hf.job
    async def nothing() -> None: ...

    own, lent = hf.url_shown, ""

    async def fail_in_a_sandbox() -> None:
        nonlocal lent
        async with sandbox(hf):
            lent = hf.url_shown
            await nothing.enqueue()
            raise LookupError

    with pytest.raises(LookupError):
        await fail_in_a_sandbox()
    assert hf.url_shown == own
    assert lent != own
    assert os.path.basename(os.path.dirname(lent)) not in os.listdir(gettempdir())


async def test_drain_raises_what_the_first_failing_handler_raised(
    hf: Holdfast, server: str | None
) -> None:
    first = LookupError("the first")

    @hf.job(retry=Retry.none)
    async def fail() -> None:
        raise first

    @hf.job
    def fail_later() -> None:
        raise OSError("the second")

    @hf.job
    async def succeed() -> None: ...

    async with sandbox(hf, server) as jobs:
        await hf.enqueue_many([succeed.call(), fail.call()])
        await fail_later.options(delay_seconds=3600).enqueue()
        with pytest.raises(LookupError) as raised:
            await jobs.drain(raise_errors=True)
        assert raised.value is first
        assert [job.name for job in await jobs.jobs(State.SUCCEEDED)] == ["succeed"]
        assert (await jobs.drain()).succeeded == 0
        await jobs.advance(3600)
        with pytest.raises(OSError, match="the second"):
            await jobs.drain(raise_errors=True)


async def test_drain_does_not_raise_errors_that_a_retry_made_good(hf: Holdfast) -> None:
    @hf.job
    async def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ConnectionError("not yet")

    @hf.job
    async def sleepy(ctx: Context) -> None:
        if not (await hf.get(ctx.job_id)).snoozes:
            raise Snooze(60)

    async with sandbox(hf) as jobs:
        await hf.enqueue_many([flaky.call(), sleepy.call()])
        report = await jobs.drain(with_delayed=True, raise_errors=True)
        assert (report.retried, report.snoozed, report.succeeded) == (1, 1, 2)


async def test_drain_raises_for_a_job_that_died_without_an_exception(hf: Holdfast) -> None:
    @hf.job(retry=Retry.none)
    async def deadly() -> None: ...

    async with sandbox(hf) as jobs:
        job = await deadly.enqueue()
        jobs.crash_before_commit(deadly, times=5)
        with pytest.raises(JobFailed, match="ended as dead: LEASE_LOST") as raised:
            await jobs.drain(raise_errors=True)
        assert raised.value.job.id == job.id
        assert (await jobs.drain(raise_errors=True)).dead == 0  # told before


def test_virtual_time_starts_where_it_is_told() -> None:
    noon = datetime(2027, 6, 1, 12, tzinfo=UTC)
    time = VirtualTime(noon)
    time.advance(0.5)
    assert time.now() == noon + timedelta(seconds=0.5)
