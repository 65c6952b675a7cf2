"""What the database tells of a job: its clock, who canceled it, its attempts, its children."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast import BadArguments, Filter, Holdfast, JobFunction, Progress, Retry, State, Transient
from tests.promises.stage import both_stores

pytestmark = both_stores

AT_ONCE = Retry.exponential(max_attempts=6, base=0, jitter=0)


@pytest.fixture
def nothing(hf: Holdfast) -> JobFunction[[], None]:
    @hf.job(queue="images")
    async def nothing() -> None: ...

    return nothing


async def last(steps: AsyncIterator[Progress]) -> Progress:
    return [step async for step in steps][-1]


async def error_of(hf: Holdfast, job_id: UUID) -> tuple[str | None, str | None]:
    job = await hf.get(job_id)
    return job.error_code, job.error_text


async def test_the_time_is_that_by_which_jobs_are_due(
    hf: Holdfast, nothing: JobFunction[[], None]
) -> None:
    job = await nothing.enqueue()
    assert timedelta(0) <= await hf.now() - (await hf.get(job.id)).run_at < timedelta(minutes=1)


async def test_a_canceled_job_says_by_whom_and_why(
    hf: Holdfast, nothing: JobFunction[[], None]
) -> None:
    one, two, three, four = await hf.enqueue_many([nothing.call() for _ in range(4)])
    why: Any = {"by": "ann", "because": "wrong file"}
    canceled = await hf.jobs.cancel(one.id, **why)
    assert canceled.error_text == "canceled by ann: wrong file"
    assert (await last(hf.jobs.cancel_many([two.id], **why))).changed == 1
    assert (await last(hf.queues.purge("images", [three.id], **why))).changed == 1
    for job in (one, two, three):
        assert await error_of(hf, job.id) == ("CANCELED", "canceled by ann: wrong file")
    await hf.jobs.cancel(four.id)
    assert await error_of(hf, four.id) == ("CANCELED", "the job was canceled while it waited")


@pytest.mark.parametrize("wrong", ["", "a\nb", 7, "x" * 201])
async def test_who_cancels_and_why_are_names_on_one_line(
    hf: Holdfast, nothing: JobFunction[[], None], wrong: Any
) -> None:
    job = await nothing.enqueue()
    for given in ({"by": wrong}, {"because": wrong}):
        with pytest.raises(BadArguments):
            await hf.jobs.cancel(job.id, **given)
        with pytest.raises(BadArguments):
            await last(hf.jobs.cancel_many([job.id], **given))
        with pytest.raises(BadArguments):
            await last(hf.queues.purge("images", **given))
    assert (await hf.get(job.id)).state is State.QUEUED


async def test_a_limit_ends_a_job_after_so_many_failures_with_its_code(hf: Holdfast) -> None:
    codes = ["DOWN", "BUSY", "DOWN", "BUSY", "DOWN", "DOWN"]

    @hf.job(retry=AT_ONCE.limit("BUSY", 2))
    async def unlucky() -> None:
        raise Transient("no", code=codes.pop(0))

    job = await unlucky.enqueue()
    await hf.run_worker(until_empty=True)
    ended = await hf.get(job.id)
    assert (ended.state, ended.error_code, ended.attempts) == (State.DEAD, "BUSY", 4)


async def test_every_attempt_is_told_with_its_lease_and_its_worker(hf: Holdfast) -> None:
    fences = []

    @hf.job(retry=AT_ONCE)
    async def second_time(ctx: Any) -> str:
        fences.append(ctx.fence)
        if ctx.attempt == 1:
            raise Transient("not yet", code="EARLY")
        return "done"

    job = await second_time.enqueue()
    await hf.run_worker(until_empty=True)
    failed, succeeded = await hf.jobs.attempts(job.id)
    assert [(each.outcome, each.error_code) for each in (failed, succeeded)] == [
        ("failed", "EARLY"),
        ("succeeded", None),
    ]
    assert [each.lease for each in (failed, succeeded)] == [(job.id, fence) for fence in fences]
    assert failed.worker is not None
    assert failed.worker == succeeded.worker
    ended = await hf.get(job.id)
    assert (succeeded.started_at, succeeded.ended_at) == (ended.started_at, ended.finished_at)


async def test_a_job_finds_its_children_also_after_a_requeue(hf: Holdfast) -> None:
    @hf.job
    async def child(number: int) -> None: ...

    @hf.job
    async def parent() -> None:
        await child.enqueue(1)
        await hf.enqueue_many([child.call(2)])

    job = await parent.enqueue()
    (other,) = await hf.enqueue_many([child.call(3)])
    await hf.run_worker(until_empty=True)
    children = (await hf.jobs.list(Filter(parent_id=job.id))).jobs
    assert [each.arguments["number"] for each in children] == [2, 1]
    assert (await hf.get(other.id)).parent_id is None
    again = await hf.jobs.requeue(children[0].id)
    assert again.parent_id == job.id
    assert len((await hf.jobs.list(Filter(parent_id=job.id))).jobs) == 3


async def test_a_parent_is_looked_for_by_its_id(hf: Holdfast) -> None:
    with pytest.raises(BadArguments, match="a job id is a UUID"):
        await hf.jobs.list(Filter(parent_id="not an id"))  # type: ignore[arg-type]
