"""5. A dead worker's job starts again within lease + 6 s, without anybody's help."""

from __future__ import annotations

import pytest

from holdfast import State
from tests.promises.blocking import Blocking
from tests.promises.stage import Stage, both_stores, every_way, in_time

pytestmark = [pytest.mark.heavy, pytest.mark.long]


@every_way
async def test_a_job_of_a_killed_worker_starts_again_within_lease_and_6_seconds(
    stage: Stage,
) -> None:
    """Measured by the database's clock. That the intervals as they are set keep to it is seen in
    virtual time, in tests/worker/test_reclaimer.py: there no machine is busy."""
    job = await stage.jobs.gated.enqueue("gate.2")
    killed = stage.worker(lease_seconds=2, renew_seconds=0.2)
    await stage.noted("start", job.id)
    heir = stage.worker()
    await heir.logs("worker_started")
    killed.kill()
    left = await stage.hf.get(job.id)
    again = await stage.noted("start", job.id, times=2)
    taken = await stage.hf.get(job.id)
    assert (again["pid"], again["attempt"]) == (heir.pid, 2)
    assert left.lease_expires_at is not None
    assert taken.started_at is not None
    # The kill came after the last renewal, so that the lease ran out at most one lease after it.
    assert taken.started_at >= left.lease_expires_at
    assert taken.started_at <= left.lease_expires_at + in_time()
    (lost,) = await stage.hf.jobs.attempts(job.id)
    assert (lost.outcome, lost.error_code, lost.attempt) == ("lost", "LEASE_LOST", 1)
    stage.open_gate("gate.2")
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.attempts) == (State.SUCCEEDED, 2)


@both_stores
async def test_handlers_that_block_their_loop_do_not_keep_others_from_reclaiming(
    stage: Stage,
) -> None:
    """Their loop is late by more than half a lease each time it turns."""
    jobs = Blocking(stage.hf)
    job = await jobs.wait.options(queue="others").enqueue("gate")
    killed = stage.worker("--queues=others", app="blocking:hf", lease_seconds=2)
    await stage.noted("start", job.id)
    blocking = await jobs.block_by_turns.enqueue("gate", 1.2)
    heir = stage.worker(app="blocking:hf", lease_seconds=2)
    await stage.noted("start", blocking.id)
    killed.kill()
    taken = await heir.logs("reclaim")
    assert (taken["job_id"], taken["attempt"]) == (str(job.id), 1)
    stage.open_gate("gate")
    assert [each.state for each in await stage.ended(job, blocking)] == [State.SUCCEEDED] * 2
