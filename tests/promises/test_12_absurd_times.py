"""12. Absurd times in the rows harm no other job."""

from __future__ import annotations

import json
from uuid import UUID

import pytest

from holdfast import Filter, State
from holdfast.domain.ids import IdMaker
from holdfast.runtime.seam import Seam
from tests.promises.stage import Stage, both_stores
from tests.support.command import command

pytestmark = [pytest.mark.heavy, pytest.mark.long]

# In a database's own words: before everything, ..., after everything.
PAST = {
    "sqlite": ["-9223372036854775808", "-62135596800000000", "-1"],
    "postgres": ["'-infinity'", "'4713-01-01 BC'", "'0001-01-01Z'", "'1969-12-31'"],
}
FUTURE = {
    "sqlite": ["253402300799999999", "4611686018427387904", "9223372036854775807"],
    "postgres": ["'9999-12-31 23:59:59.999999Z'", "'294276-12-31'", "'infinity'"],
}
NEIGHBOURS = 20


async def insert(stage: Stage, name: str, run_at: str, other: str) -> UUID:
    """Write a job as another program might, with these times."""
    job_id = IdMaker(Seam().random).make(int(Seam().now().timestamp() * 1000))
    # No expiry in the past: it would cancel the job, as it should.
    await stage.fetch(
        "INSERT INTO jobs (id, name, queue, priority, arguments, max_attempts, run_at, created_at,"
        " expires_at)"
        f" VALUES ('{job_id}', '{name}', 'default', 0, '{{}}', 5, {run_at}, {other},"
        f" {other if other in FUTURE['sqlite'] + FUTURE['postgres'] else 'NULL'})"
    )
    return job_id


async def look_at_everything(stage: Stage, *jobs: UUID) -> None:
    """Ask all that people and machines ask; nothing may fail because of one row."""
    hf = stage.hf
    (queue,) = await hf.queues.list()
    assert queue.oldest_ready_seconds is None or 0 <= queue.oldest_ready_seconds < 1e10
    assert (await hf.overview()).queues
    assert len((await hf.jobs.list(Filter())).jobs) >= len(jobs)
    assert (await hf.examine()).findings
    assert "holdfast_queue" in await hf.metrics()
    for job_id in jobs:
        assert (await hf.jobs.why(job_id)).sentence


async def look_as_people_do(stage: Stage, job_id: UUID) -> None:
    for words in (["queues"], ["jobs", "list"], ["jobs", "show", str(job_id)]):
        assert await command(*words, url=stage.url)
    assert json.loads(await command("top", "--json", url=stage.url))


@both_stores
async def test_absurd_times_do_not_keep_other_jobs_from_running_or_lists_from_being_shown(
    stage: Stage,
) -> None:
    await stage.hf.jobs.counts()
    kind = "sqlite" if stage.is_sqlite else "postgres"
    due = [
        await insert(stage, "quick", run_at, other)
        for run_at in PAST[kind]
        for other in (PAST[kind][0], FUTURE[kind][-1])
    ]
    waiting = [await insert(stage, "quick", run_at, FUTURE[kind][0]) for run_at in FUTURE[kind]]
    good = await stage.hf.enqueue_many([stage.jobs.quick.call(n) for n in range(NEIGHBOURS)])
    await look_at_everything(stage, *due, *waiting)
    await look_as_people_do(stage, due[0])
    worker = stage.worker(concurrency=3)
    assert [job.result for job in await stage.ended(*good)] == list(range(NEIGHBOURS))
    ended = await stage.ended(*[await stage.hf.get(job_id) for job_id in due])
    assert {(job.state, job.attempts) for job in ended} == {(State.SUCCEEDED, 1)}
    assert {job.attempts for job in await stage.ended(*good)} == {1}
    left = [await stage.hf.get(job_id) for job_id in waiting]
    assert {(job.state, job.fence) for job in left} == {(State.QUEUED, 0)}
    await look_at_everything(stage, *due, *waiting)
    assert worker.code is None


@both_stores
async def test_a_lease_and_an_expiry_at_the_beginning_of_time_have_expired(stage: Stage) -> None:
    before = "-9223372036854775808" if stage.is_sqlite else "'-infinity'"
    lost = await stage.jobs.gated.enqueue("gate")
    holder = stage.worker(concurrency=1)
    await stage.noted("start", job=lost.id)
    expired = await stage.jobs.quick.options(expires_in_seconds=3600).enqueue(1)
    holder.kill()
    await stage.fetch(f"UPDATE jobs SET lease_expires_at = {before} WHERE id = '{lost.id}'")
    await stage.fetch(f"UPDATE jobs SET expires_at = {before} WHERE id = '{expired.id}'")
    await look_at_everything(stage, lost.id, expired.id)
    stage.open_gate("gate")
    stage.worker(concurrency=1)
    ends = [(job.state, job.error_code) for job in await stage.ended(lost, expired)]
    assert ends == [(State.SUCCEEDED, None), (State.CANCELED, "EXPIRED")]
