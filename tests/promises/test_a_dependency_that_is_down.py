"""While a dependency is down, its jobs wait and lose no attempt. When it is back, they run again
without anybody's help."""

from __future__ import annotations

import pytest

from holdfast import Job
from tests.promises import depending
from tests.promises.depending import FAILURES
from tests.promises.stage import Stage, both_stores
from tests.support.processes import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.long]

JOBS = 200


async def enqueue(stage: Stage, count: int) -> list[Job]:
    calls = [depending.depend.call() for _ in range(count)]
    return await stage.hf.enqueue_many(calls)


async def outcomes(stage: Stage) -> dict[str, int]:
    """How many attempts that did not succeed are recorded, by their outcome."""
    rows = await stage.fetch("SELECT outcome, count(*) FROM attempts GROUP BY outcome")
    return dict(rows)


async def has_succeeded(stage: Stage, count: int) -> bool:
    found = await stage.fetch("SELECT count(*) FROM history WHERE state = 'succeeded'")
    return found == [(count,)]


async def has_failed(stage: Stage, count: int) -> bool:
    return (await outcomes(stage)).get("failed") == count


@both_stores
async def test_an_outage_costs_a_few_attempts_however_many_jobs_fail_in_however_many_workers(
    stage: Stage,
) -> None:
    await enqueue(stage, JOBS)
    stage.open_gate("hang")
    for _ in range(2):
        stage.worker(concurrency=50, app="depending:hf")
    await stage.noted("start", times=100)
    stage.close_gate("hang")
    await stage.noted("fail", times=103)  # the last ones are sent ahead
    (free,) = await stage.hf.enqueue_many([depending.free.call()])
    await stage.ended(free)
    # One worker may send probes before the other has recorded what it knows.
    await wait_until(lambda: has_failed(stage, FAILURES), "the first failures are written")
    assert stage.ledger("finish") == []
    stage.open_gate("up")
    await wait_until(lambda: has_succeeded(stage, JOBS + 1), lambda: f"all: {stage.logs()}")
    assert (await outcomes(stage))["failed"] == FAILURES
    assert len(stage.ledger("finish")) == JOBS


@both_stores
async def test_a_worker_that_dies_while_it_runs_a_probe_stops_nothing(
    stage: Stage,
) -> None:
    jobs = await enqueue(stage, FAILURES + 3)
    killed = stage.worker(app="depending:hf")
    await killed.logs("breaker_opened")
    stage.open_gate("hang")
    ahead = await stage.noted("start", times=len(stage.ledger("start")) + 1)
    killed.kill()
    heir = stage.worker(app="depending:hf")
    await stage.let_run_out(*[job for job in jobs if str(job.id) == ahead["job"]])
    await heir.logs("start")
    stage.open_gate("up")
    stage.close_gate("hang")
    await wait_until(lambda: has_succeeded(stage, len(jobs)), lambda: f"all: {stage.logs()}")
    assert "a probe" in heir.events("start")[0]["message"]
    assert heir.events("breaker_closed")
    assert (await outcomes(stage))["failed"] == FAILURES
