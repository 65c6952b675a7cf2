"""14. SIGTERM: no new claims; jobs finish within the grace time or are released, fenced, with the
attempt given back."""

from __future__ import annotations

import signal

import pytest

from holdfast import Job, State
from tests.promises.stage import Stage, both_stores


@both_stores
async def test_a_worker_told_to_stop_finishes_what_it_can_and_releases_the_rest(
    stage: Stage,
) -> None:
    short = await stage.jobs.gated.options(priority=-2).enqueue("short")
    long = await stage.jobs.gated.options(priority=-1).enqueue("never")
    in_thread = await stage.jobs.gated_in_thread.options(priority=-1).enqueue("never")
    behind = await stage.jobs.quick.enqueue(1)
    worker = stage.worker(concurrency=3, grace_seconds=1)
    await stage.noted("start", times=3)
    worker.signal(signal.SIGTERM)
    await worker.logs("shutdown")
    late = await stage.jobs.quick.options(priority=-3).enqueue(2)
    stage.open_gate("short")
    assert await worker.ended() == 0
    (finished,) = await stage.ended(short)
    assert (finished.state, finished.attempts) == (State.SUCCEEDED, 1)
    for job in (long, in_thread):
        assert_released(await stage.hf.get(job.id))
        assert len(stage.ledger("cancelled", job.id)) == 1
    for job in (behind, late):
        found = await stage.hf.get(job.id)
        assert (found.state, found.attempts, found.fence) == (State.QUEUED, 0, 0)
    assert await stage.fetch("SELECT * FROM attempts") == []


def assert_released(job: Job) -> None:
    """Fenced: whatever the stopped handler may still write has the fence of its claim, 1."""
    assert (job.state, job.attempts, job.releases, job.fence) == (State.QUEUED, 0, 1, 2)
    assert (job.lease_owner, job.error_code) == (None, None)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
@both_stores
async def test_a_second_signal_hurries(stage: Stage, number: signal.Signals) -> None:
    job = await stage.jobs.gated.enqueue("never")
    worker = stage.worker(grace_seconds=60)
    await stage.noted("start", job.id)
    worker.signal(number)
    await worker.logs("shutdown")
    assert worker.code is None
    assert not stage.ledger("cancelled")
    worker.signal(number)
    assert await worker.ended(6) == 0
    assert_released(await stage.hf.get(job.id))


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_handler_that_does_not_listen_is_released_and_left_behind(stage: Stage) -> None:
    job = await stage.jobs.stubborn.enqueue("never")
    worker = stage.worker(grace_seconds=0)
    await stage.noted("start", job.id)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    assert_released(await stage.hf.get(job.id))


@both_stores
async def test_a_released_job_starts_at_once_at_the_next_worker(stage: Stage) -> None:
    job = await stage.jobs.gated.enqueue("gate.1")
    worker = stage.worker(grace_seconds=0)
    await stage.noted("start", job.id)
    heir = stage.worker(poll_seconds=60)
    await heir.logs("boot")
    worker.signal(signal.SIGTERM)
    again = await stage.noted("start", job.id, times=2)
    assert (again["pid"], again["attempt"], again["fence"]) == (heir.pid, 1, 3)
