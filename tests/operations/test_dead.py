"""Jobs that ended badly, as an operator handles them: grouped, chosen, mended, requeued in bulk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import msgspec
import pytest

from holdfast import (
    AlreadyRequeued,
    BadArguments,
    ConfigurationError,
    Context,
    Filter,
    Holdfast,
    Job,
    Permanent,
    Progress,
    Retry,
    State,
    WrongState,
)
from holdfast.domain.endings import why_it_ended
from holdfast.domain.groups import Gathering
from holdfast.domain.times import exact
from holdfast.operations.steps import Pace

DEAD = Filter(states=(State.DEAD,))


async def fail(hf: Holdfast, *texts: str, **options: Any) -> list[Job]:
    """End a job for each text, which is its error."""

    @hf.job(name="fail", retry=Retry.none())
    async def fail(text: str) -> None:
        if text.startswith("permanent"):
            raise Permanent(text, code="REFUSED")
        raise RuntimeError(text)

    jobs = await hf.enqueue_many([fail.options(**options).call(text) for text in texts])
    await hf.run_due()
    return [await hf.get(job.id) for job in jobs]


async def last(progress: AsyncIterator[Progress]) -> Progress:
    steps = [step async for step in progress]
    assert all(one.done < two.done for one, two in pairwise(steps))
    return steps[-1]


async def test_jobs_that_ended_without_success_are_grouped_by_what_went_wrong(
    hf: Holdfast,
) -> None:
    jobs = await fail(hf, "no user 17", "no user 4", "no order 5", "permanent: no user 9")
    found = await hf.dead.grouped()
    assert (found.looked_at, found.is_all) == (4, True)
    assert {(group.error_code, group.shape, group.jobs) for group in found.groups} == {
        ("RuntimeError", "RuntimeError: no user *", 2),
        ("RuntimeError", "RuntimeError: no order *", 1),
        ("REFUSED", "permanent: no user *", 1),
    }
    largest = found.groups[0]
    ended = [job.finished_at for job in jobs[:2] if job.finished_at]
    assert (largest.first_seen, largest.last_seen) == (min(ended), max(ended))
    assert (await hf.get(largest.example_id)).finished_at == max(ended)
    assert (largest.name, largest.queues) == ("fail", ("default",))
    of_group = await hf.jobs.list(Filter(fingerprint=largest.fingerprint))
    assert {job.id for job in of_group.jobs} == {jobs[0].id, jobs[1].id}


async def test_the_example_of_a_group_is_the_one_that_ended_last(local_hf: Holdfast) -> None:
    early, late = await fail(local_hf, "number 1", "number 2")
    assert early.finished_at is not None
    late = msgspec.structs.replace(late, finished_at=early.finished_at + timedelta(seconds=1))
    for order in ([early, late], [late, early]):
        gathering = Gathering()
        gathering.add(order)
        (group,) = gathering.groups()
        assert group.example_id == late.id
        assert (group.first_seen, group.last_seen) == (early.finished_at, late.finished_at)


async def test_groups_say_when_only_the_newest_were_looked_at(local_hf: Holdfast) -> None:
    jobs = await fail(local_hf, *[f"number {number}" for number in range(5)])
    found = await local_hf.dead.grouped(look_max=3)
    assert (found.looked_at, found.is_all) == (3, False)
    assert [group.jobs for group in found.groups] == [3]
    assert found.groups[0].example_id in {job.id for job in jobs[2:]}
    assert (await local_hf.dead.grouped(look_max=5)).is_all
    with pytest.raises(ConfigurationError, match="look_max"):
        await local_hf.dead.grouped(look_max=0)


async def test_pages_of_a_fingerprint_go_on_without_a_gap(local_hf: Holdfast) -> None:
    jobs = await fail(local_hf, *["odd", "even"] * 4)
    found = (await local_hf.dead.grouped()).groups
    assert [group.jobs for group in found] == [4, 4]
    for group in found:
        own = jobs[0::2] if group.shape.endswith("odd") else jobs[1::2]
        seen: list[UUID] = []
        after = None
        while len(seen) < len(own):
            page = await local_hf.jobs.list(Filter(fingerprint=group.fingerprint), 3, after)
            assert 0 < len(page.jobs) <= 3
            seen += [job.id for job in page.jobs]
            after = page.after
        assert (seen, after) == ([job.id for job in reversed(own)], None)


async def test_a_bulk_requeue_that_is_run_again_does_nothing_twice(hf: Holdfast) -> None:
    jobs = await fail(hf, *["boom"] * 7)
    broken_off = hf.jobs.requeue_many(DEAD, jobs_per_second=30)
    async for progress in broken_off:
        assert (progress.total, progress.done, len(progress.jobs)) == (7, 3, 3)
        break
    choice = await hf.jobs.choose(DEAD, unless_requeued=True)
    assert (len(choice.ids), len(choice.sample), choice.requeued_already) == (4, 4, 3)
    done = await last(hf.jobs.requeue_many(DEAD))
    assert (done.total, done.changed) == (4, 4)
    assert [step async for step in hf.jobs.requeue_many(DEAD)] == []
    every = await last(hf.jobs.requeue_many([job.id for job in jobs]))
    assert (every.changed, every.requeued_already, every.moved_on) == (0, 7, 0)
    waiting = (await hf.jobs.list(Filter(states=(State.QUEUED,)))).jobs
    assert {job.requeued_from for job in waiting} == {job.id for job in jobs}
    assert len(waiting) == 7
    assert (await last(hf.jobs.requeue_many(DEAD, again=True))).changed == 7


async def test_a_job_that_ends_while_it_is_being_requeued_is_requeued_or_refused(
    hf: Holdfast,
) -> None:
    """The first look finds it waiting, the next one ended."""

    @hf.job
    async def nothing() -> None: ...

    for job in await hf.enqueue_many([nothing.call() for _ in range(30)]):
        requeuing = hf.jobs.requeue(job.id, again=False)
        both = await asyncio.gather(requeuing, hf.jobs.cancel(job.id), return_exceptions=True)
        new = both[0]
        if isinstance(new, Job):
            assert new.requeued_from == job.id
            assert await hf.jobs.requeued_as(job.id) == new.id
        else:
            assert isinstance(new, WrongState)
            assert await hf.jobs.requeued_as(job.id) is None


async def test_states_may_be_given_by_their_names(hf: Holdfast) -> None:
    @hf.job
    async def wait() -> None: ...

    job = await wait.enqueue()
    for names, found in ((("queued", "dead"), [job.id]), (["dead"], [])):
        page = await hf.jobs.list(Filter(states=names))  # type: ignore[arg-type]
        assert [each.id for each in page.jobs] == found
    for wrong in (("queud",), "queued", (1,)):
        with pytest.raises(BadArguments, match=r"not .+; the states are: queued, running, suc"):
            Filter(states=wrong)  # type: ignore[arg-type]


async def test_bulk_changes_go_on_behind_what_has_moved_on(hf: Holdfast) -> None:
    @hf.job(name="wait")
    async def wait() -> None: ...

    calls = [wait.options(delay_seconds=3600).call() for _ in range(3)]
    first, second, third = await hf.enqueue_many(calls)
    await hf.jobs.cancel(second.id)
    done = await last(hf.jobs.cancel_many([first.id, second.id, hf.new_id()]))
    assert (done.total, done.changed, done.moved_on) == (3, 1, 2)
    retried = await last(hf.jobs.retry_many(Filter(states=(State.QUEUED, State.CANCELED))))
    assert (retried.total, retried.changed) == (3, 3)
    assert (await last(hf.jobs.retry_many(Filter(name="wait")))).total == 3
    assert (await hf.get(third.id)).attempts == 0


async def test_a_requeue_with_other_arguments_is_checked_by_the_handler(hf: Holdfast) -> None:
    @hf.job(name="resize", retry=Retry.none())
    async def resize(ctx: Context, image: str, width: int = 800) -> int:
        if width > 1000:
            raise Permanent("too wide", code="TOO_WIDE")
        return width

    job = await resize.enqueue("a.png", width=5000)
    await hf.run_due()
    for wrong in ({"image": "a.png", "width": "wide"}, {"width": 1}, {"image": "a", "size": 1}):
        with pytest.raises(BadArguments, match="resize"):
            await hf.jobs.requeue(job.id, arguments=wrong)
    assert await hf.jobs.requeued_as(job.id) is None
    new = await hf.jobs.requeue(job.id, arguments={"image": "a.png", "width": 640})
    assert (new.requeued_from, new.arguments) == (job.id, {"image": "a.png", "width": 640})
    await hf.run_due()
    assert await hf.result(new.id) == 640
    assert (await hf.get(job.id)).arguments["width"] == 5000
    assert await hf.jobs.requeued_as(job.id) == new.id
    with pytest.raises(AlreadyRequeued, match=str(new.id)) as told:
        await hf.jobs.requeue(job.id, again=False)
    assert told.value.new_id == new.id
    with pytest.raises(AlreadyRequeued):
        await hf.jobs.retry(job.id, again=False)


async def test_times_of_a_filter_need_a_time_zone(local_hf: Holdfast) -> None:
    (job,) = await fail(local_hf, "boom")
    assert job.finished_at is not None
    later = job.finished_at + timedelta(seconds=1)
    assert len((await local_hf.jobs.list(Filter(until=later))).jobs) == 1
    with pytest.raises(BadArguments, match="time zone"):
        await local_hf.jobs.list(Filter(until=later.replace(tzinfo=None)))


def test_a_pace_waits_as_long_as_it_must() -> None:
    assert (Pace().step, Pace().wait_seconds(1000, 0.0)) == (50, 0.0)
    pace = Pace(50)
    assert pace.step == 5
    assert pace.wait_seconds(0, 0.0) == 0.0
    assert pace.wait_seconds(100, 1.5) == pytest.approx(0.5)
    assert pace.wait_seconds(100, 3.0) == 0.0
    assert (Pace(0.5).step, Pace(1e6).step) == (1, 50)


async def test_a_paced_change_takes_its_time(local_hf: Holdfast) -> None:
    await fail(local_hf, *["boom"] * 6)
    began = time.monotonic()
    assert (await last(local_hf.jobs.requeue_many(DEAD, jobs_per_second=20))).changed == 6
    assert time.monotonic() - began >= 4 / 20
    for wrong in (0, -1, 1e-300, 0.0009, float("inf"), float("nan")):
        with pytest.raises(ConfigurationError, match="jobs_per_second"):
            await last(local_hf.jobs.requeue_many(DEAD, jobs_per_second=wrong))


async def test_why_a_job_ended_is_told_in_a_sentence(local_hf: Holdfast) -> None:
    @local_hf.job(name="limited", retry=Retry.exponential(max_attempts=5).limit("ValueError", 1))
    async def limited() -> None:
        raise ValueError("no")

    short = await limited.enqueue()
    waiting = await limited.options(delay_seconds=3600).enqueue()
    useless = await limited.options(expires_in_seconds=0).enqueue()
    dead, failed = await fail(local_hf, "boom", "permanent")
    canceled = await local_hf.jobs.cancel(waiting.id)
    told = [why_it_ended(job) for job in (dead, failed, canceled, waiting)]
    assert told == [
        "its only attempt ended with RuntimeError",
        "REFUSED is permanent, so it was not retried (attempt 1 of 1)",
        "it was canceled before it started",
        None,
    ]
    expired = await local_hf.get(useless.id)
    assert expired.expires_at is not None
    assert why_it_ended(expired) == (f"it expired at {exact(expired.expires_at)} before it ran")
    assert why_it_ended(msgspec.structs.replace(canceled, started_at=canceled.created_at)) == (
        "it was canceled; what it had done by then is not recorded"
    )
    assert why_it_ended(await local_hf.get(short.id)) == (
        "ValueError has reached its limit, so it was not retried (attempt 1 of 5)"
    )
