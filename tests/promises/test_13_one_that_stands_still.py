"""5, 13. A frozen worker or a vanished host stops no other worker: what it began on the database
ends without it, in time for its jobs to start again."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from urllib.parse import urlsplit

import asyncpg
import pytest

from holdfast import Job, State
from holdfast.testing.borrowed import borrowed
from tests.promises import depending, paying
from tests.promises.stage import Stage, in_time
from tests.support.processes import Process, wait_until
from tests.support.wire import Wire

pytestmark = [pytest.mark.heavy, pytest.mark.long]

JOBS = 100
LEASE_SECONDS = 2.0
CALM_LEASE_SECONDS = 60.0  # for the tests in which it must not run out on a busy machine
INSERT_BREAKER = """
INSERT INTO holdfast.breakers (key, window_seconds, probe_seconds) VALUES ('gateway', 600, 0.5)
"""
postgres = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)


@pytest.fixture
def wire(store_url: str) -> Iterator[Wire]:
    port = urlsplit(store_url).port
    assert port is not None
    with Wire(port) as wire:
        yield wire


def worker_behind(
    stage: Stage,
    wire: Wire,
    app: str = "app:hf",
    lease_seconds: float = LEASE_SECONDS,
    concurrency: int = 10,
) -> Process:
    """A worker that reaches its database over the wire."""
    url = wire.url(urlsplit(stage.url).path.removeprefix("/"))
    return stage.worker(
        app=app,
        concurrency=concurrency,
        environment={"HOLDFAST_DATABASE_URL": url},
        lease_seconds=lease_seconds,
    )


async def stand_still(worker: Process, wire: Wire) -> None:
    """Stop the worker while it waits for the withheld answer."""
    await wait_until(wire.held.is_set, lambda: f"held: {worker.text}")
    worker.signal(signal.SIGSTOP)
    await wait_until(worker.is_stopped, "stopped")


@asynccontextmanager
async def locked(url: str, sql: str) -> AsyncIterator[None]:
    """Hold what this statement locks."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(sql)
            yield
    finally:
        await connection.close()


@postgres
async def test_a_worker_frozen_while_it_counts_a_failure_stops_no_other(
    stage: Stage, wire: Wire
) -> None:
    wire.hold_answer("holdfast.strike")
    still = worker_behind(stage, wire, "depending:hf")
    await stage.hf.enqueue_many([depending.depend.call()])
    await stand_still(still, wire)
    stage.worker(app="depending:hf", lease_seconds=LEASE_SECONDS)
    failing, free = await stage.hf.enqueue_many([depending.depend.call(), depending.free.call()])
    await stage.ended(free)
    await stage.noted("fail", failing.id)
    stage.open_gate("up")
    await stage.ended(failing)


@postgres
async def test_a_locked_breaker_does_not_keep_failures_from_being_settled(
    stage: Stage,
) -> None:
    async with locked(stage.url, INSERT_BREAKER):
        stage.worker(app="depending:hf")
        failing, free = await stage.hf.enqueue_many(
            [depending.depend.call(), depending.free.call()]
        )
        await stage.ended(free)
        await stage.noted("fail", failing.id, times=2)
        stage.open_gate("up")
        (ended,) = await stage.ended(failing)
    assert ended.state is State.SUCCEEDED


@postgres
async def test_a_failure_that_waits_to_be_counted_does_not_delay_other_settlements(
    stage: Stage, wire: Wire
) -> None:
    wire.hold_answer("holdfast.strike")
    worker = worker_behind(stage, wire, "depending:hf", CALM_LEASE_SECONDS)
    await stage.hf.enqueue_many([depending.depend.call()])
    await wait_until(wire.held.is_set, lambda: f"held: {worker.text}")
    (free,) = await stage.hf.enqueue_many([depending.free.call()])
    await stage.ended(free)


@postgres
async def test_a_worker_frozen_while_it_claims_leaves_a_capped_queue_to_others(
    stage: Stage, wire: Wire
) -> None:
    await stage.hf.queues.cap("default", 2)
    jobs = await stage.hf.enqueue_many([stage.jobs.quick.call(number) for number in range(5)])
    wire.hold_answer("holdfast.lock_caps")
    await stand_still(worker_behind(stage, wire), wire)
    stage.worker()
    for ended in await stage.ended(*jobs):
        assert ended.state is State.SUCCEEDED


@pytest.mark.slow
@pytest.mark.parametrize("store_url", ["bouncer"], indirect=True)
async def test_a_worker_frozen_while_it_claims_through_a_pooler_hides_no_job(
    stage: Stage, wire: Wire
) -> None:
    """There every statement is a transaction of several messages."""
    jobs = await stage.hf.enqueue_many([stage.jobs.quick.call(number) for number in range(JOBS)])
    wire.hold_answer("SET state = 'running'")
    await stand_still(worker_behind(stage, wire), wire)
    stage.worker()
    for ended in await stage.ended(*jobs):
        assert (ended.state, ended.attempts) == (State.SUCCEEDED, 1)


@postgres
async def test_a_settlement_that_was_ended_half_way_is_written_again(
    stage: Stage, wire: Wire
) -> None:
    """A failure is written by a transaction of several statements."""
    wire.hold_answer("holdfast.settle(")
    worker = worker_behind(stage, wire, lease_seconds=CALM_LEASE_SECONDS)
    good = await stage.jobs.gated.enqueue("gate")
    bad = await stage.jobs.odd.enqueue("timeout")
    await wait_until(wire.held.is_set, lambda: f"held: {worker.text}")
    stage.open_gate("gate")
    ended = await stage.ended(good, bad)
    assert [(each.state, each.attempts) for each in ended] == [
        (State.SUCCEEDED, 1),
        (State.DEAD, 1),
    ]
    assert len(await stage.hf.jobs.attempts(bad.id)) == 1


@postgres
@pytest.mark.parametrize("form", ["pay", "pay_sync", "pay_sqlalchemy"])
async def test_a_job_of_a_host_that_vanishes_before_its_commit_starts_again_in_time(
    stage: Stage, wire: Wire, form: str
) -> None:
    """The server can't know that the host is gone: its connections stay open."""
    await stage.fetch("CREATE TABLE public.payments (job text, attempt int)")
    async with borrowed(paying.hf, stage.url, stage.hf._seam):
        job: Job = await getattr(paying, form).enqueue()
    held = wire.hold_at_commit(str(job.id).encode(), before=True)
    vanished = worker_behind(stage, wire, "paying:hf")
    await wait_until(held.done.is_set, lambda: f"held: {vanished.text}")
    vanished.kill()
    left = await stage.hf.get(job.id)
    heir = stage.worker(app="paying:hf")
    heir_started_at = datetime.fromisoformat((await heir.logs("worker_started"))["time"])
    await stage.noted("start", job.id, times=2)
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.result) == (State.SUCCEEDED, {"attempt": 2})
    assert left.lease_expires_at is not None
    assert ended.started_at is not None
    assert ended.started_at <= max(left.lease_expires_at, heir_started_at) + in_time()
    rows = await stage.fetch("SELECT attempt FROM public.payments")
    assert rows == [(2,)]


@postgres
async def test_a_worker_frozen_while_a_large_answer_arrives_hides_no_job(
    stage: Stage, wire: Wire
) -> None:
    """The server can't send all of it, and can't commit before it has."""
    call = stage.jobs.hopeless.call("x" * 250_000)
    jobs = await stage.hf.enqueue_many([call] * JOBS)
    wire.hold_answer("SET state = 'running'", takes_it=False)
    await stand_still(worker_behind(stage, wire, concurrency=JOBS), wire)
    stage.worker(concurrency=JOBS)
    for ended in await stage.ended(*jobs):
        assert (ended.state, ended.attempts) == (State.FAILED, 1)
