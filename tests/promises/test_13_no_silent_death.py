"""13. A worker survives what can be survived; what can't ends it with a code that is not 0."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from holdfast import State
from tests.promises.stage import Stage
from tests.support.postgres import Server

pytestmark = [pytest.mark.heavy, pytest.mark.long]


async def test_a_worker_resumes_after_a_restart_of_postgresql(
    own_postgres: Server, tmp_path: Path
) -> None:
    """It is idle at one restart, and runs a job at the other."""
    stage = Stage(own_postgres.url("postgres"), tmp_path)
    try:
        await stage.hf.migrate()
        worker = stage.worker()
        await stage.ended(await stage.jobs.quick.enqueue(1))
        await restart(stage, own_postgres, signal.SIGINT)
        held = await stage.jobs.gated.enqueue("gate")
        await stage.noted("start", held.id)
        await restart(stage, own_postgres, signal.SIGQUIT)
        stage.open_gate("gate")
        ended = await stage.ended(held, await stage.jobs.quick.enqueue(2))
        assert [(job.state, job.attempts) for job in ended] == [(State.SUCCEEDED, 1)] * 2
        assert worker.code is None
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
    finally:
        await stage.close()


async def test_an_outage_longer_than_a_lease_starts_no_running_job_again(
    own_postgres: Server, tmp_path: Path
) -> None:
    stage = Stage(own_postgres.url("postgres"), tmp_path)
    try:
        await stage.hf.migrate()
        worker = stage.worker(lease_seconds=3)
        # After an outage it waits for others as long as its own renewals take.
        eager = stage.worker("--queues=others", lease_seconds=90, reclaim_seconds=0.01)
        await eager.logs("worker_started")
        job = await stage.jobs.gated.enqueue("gate")
        await stage.noted("start", job.id)
        await stage.hf.close()
        own_postgres.stop()
        await asyncio.sleep(4)
        assert worker.events("renew_failed")
        own_postgres.start()
        again = await stage.jobs.quick.enqueue(1)
        await stage.ended(again)
        stage.open_gate("gate")
        (ended,) = await stage.ended(job)
        assert (ended.state, ended.attempts, ended.fence) == (State.SUCCEEDED, 1, 2)
    finally:
        await stage.close()


async def restart(stage: Stage, server: Server, how: signal.Signals) -> None:
    await stage.hf.close()
    server.stop(how)
    server.start()


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_resource_that_fails_to_start_ends_the_worker_with_an_error(stage: Stage) -> None:
    job = await stage.jobs.quick.enqueue(1)
    worker = stage.worker(app="broken:hf")
    assert await worker.ended() == 1
    assert "the mail server is away" in worker.text
    found = await stage.hf.get(job.id)
    assert (found.state, found.attempts, found.fence) == (State.QUEUED, 0, 0)
