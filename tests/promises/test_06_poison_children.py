"""6. A job that kills its process ends in dead, and none of its neighbors does."""

from __future__ import annotations

import signal

import pytest

from holdfast import State
from tests.promises.hanging import Hanging
from tests.promises.stage import Stage, both_stores

pytestmark = [pytest.mark.heavy, pytest.mark.long]

ATTEMPTS = 2
NEIGHBOURS = 10


@both_stores
async def test_a_poison_in_a_child_process_ends_as_dead_and_harms_no_other(stage: Stage) -> None:
    """In company from the first to the last attempt: each runs alone in its child process."""
    jobs = Hanging(stage.hf)
    poison = jobs.poison.options(max_attempts=ATTEMPTS)
    poisons = [await poison.enqueue(how) for how in ("exit", "kill", "segfault")]
    others = await stage.hf.enqueue_many(
        [*[jobs.work.call() for _ in range(NEIGHBOURS)], jobs.in_loop.call()]
    )
    worker = stage.worker(app="hanging:hf", concurrency=4, timeout_grace_seconds=0.3)
    for job in await stage.ended(*poisons):
        assert (job.state, job.error_code) == (State.DEAD, "CRASHED")
        # Once more if its last child had run others before: these could have been the cause.
        starts = ATTEMPTS + job.releases
        assert job.releases <= 1
        assert (job.attempts, job.crashes) == (ATTEMPTS, starts)
        assert len(stage.ledger("start", job.id)) == starts
        outcomes = [attempt.outcome for attempt in await stage.hf.jobs.attempts(job.id)]
        assert outcomes == ["crashed"] * starts
    *worked, hung = await stage.ended(*others)
    assert {(job.state, job.attempts, job.crashes) for job in worked} == {(State.SUCCEEDED, 1, 0)}
    assert (hung.state, hung.attempts) == (State.SUCCEEDED, 2)
    worker.signal(signal.SIGKILL)


@both_stores
async def test_no_job_is_dead_because_of_what_an_earlier_one_left_in_its_child_process(
    stage: Stage,
) -> None:
    jobs = Hanging(stage.hf)
    before = await jobs.leave_poison.enqueue()
    innocent = await jobs.come_next.options(max_attempts=1).enqueue()
    guilty = await jobs.poison.options(max_attempts=1).enqueue("exit")
    worker = stage.worker(app="hanging:hf", concurrency=1)
    _, innocent, guilty = await stage.ended(before, innocent, guilty)
    worker.signal(signal.SIGKILL)
    assert (innocent.state, innocent.attempts, innocent.crashes) == (State.SUCCEEDED, 1, 1)
    assert (guilty.state, guilty.attempts) == (State.DEAD, 1)
    assert guilty.crashes == 1 + guilty.releases == len(await stage.hf.jobs.attempts(guilty.id))
