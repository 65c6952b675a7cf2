"""The attempts and relatives of a job, for its page and for the API."""

from __future__ import annotations

from holdfast import Context, Holdfast
from holdfast.domain.attempts import JobAttempt
from holdfast.domain.job import Job
from holdfast.operations.job_details import attempts_of, related_to


async def test_a_job_that_ends_while_it_is_read_has_each_attempt_once(hf: Holdfast) -> None:
    seen: list[tuple[Job, list[JobAttempt]]] = []

    @hf.job
    async def look(ctx: Context) -> None:
        job = await hf.jobs.get(ctx.job_id)
        seen.append((job, await attempts_of(hf.jobs, job)))

    job_id = (await look.enqueue()).id
    await hf.run_worker(until_empty=True)
    ended = await hf.get(job_id)
    ((job, (running,)),) = seen
    assert (running.outcome, running.worker, running.ended_at) == ("running", job.lease_owner, None)
    (late,) = await attempts_of(hf.jobs, job)  # as it was read before it ended
    assert (late.outcome, late.fence, late.ended_at) == (
        "succeeded", running.fence, ended.finished_at,
    )  # fmt: skip


async def test_relatives_are_what_came_before_after_and_beside(hf: Holdfast) -> None:
    @hf.job
    async def child() -> None: ...

    @hf.job
    async def parent() -> None:
        for _ in range(3):
            await child.enqueue()

    job_id = (await parent.options(correlation_id="order-17").enqueue()).id
    await hf.run_worker(until_empty=True)
    top = await hf.get(job_id)
    copy = await hf.jobs.requeue(top.id)
    found = await related_to(hf.jobs, top, 2)
    assert found.requeued_as == copy.id
    assert [job.name for job in found.children] == ["child"] * 2
    assert {job.correlation_id for job in found.same_correlation} == {"order-17"}
    assert top.id not in {job.id for job in found.same_correlation}
