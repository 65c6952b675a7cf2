"""No worker's clock counts: promises 2, 5 and 8 with real workers whose clocks are wrong.

On PostgreSQL the database's clock judges. On SQLite it is the machine's: all
processes share it, and these tests show what happens when it is set.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from holdfast import Job, State
from tests.promises.stage import Stage, in_time
from tests.support.clocks import Clock
from tests.support.processes import Process, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.long]

# Far less than the hour by which clocks are off, and far more than a busy machine delays anything.
LONG_LEASE_SECONDS = 5.0
RENEW_SECONDS = 0.5
SHORT_LEASE_SECONDS = 3.0  # for those that are killed
LATE_MAX = timedelta(seconds=60)
on_postgres = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
on_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
an_hour_off = pytest.mark.parametrize("shift", ["+1h", "-1h"], ids=["fast", "slow"])


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


async def held(stage: Stage, worker: Process) -> Job:
    """A job that this worker runs, which has room for no other."""
    job = await stage.jobs.gated.enqueue("go")
    assert (await stage.noted("start", job.id))["pid"] == worker.pid, stage.logs()
    return job


async def outlived(stage: Stage, *jobs: Job) -> None:
    """Wait until these leases, as they are now, have all run out."""
    first = [await stage.hf.get(job.id) for job in jobs]
    expiries = [job.lease_expires_at for job in first if job.lease_expires_at is not None]
    until = max(expiries) + timedelta(seconds=1)
    await wait_until(lambda: datetime.now(UTC) > until, "later")


def starts(stage: Stage, job: Job) -> list[int]:
    return [entry["pid"] for entry in stage.ledger("start", job.id)]


@on_postgres
@an_hour_off
async def test_a_worker_with_a_wrong_clock_keeps_its_lease_and_takes_nobody_elses(
    stage: Stage, clock: Clock, shift: str
) -> None:
    clock.set(shift)
    wrong = stage.worker(
        concurrency=1,
        environment=clock.environment,
        lease_seconds=LONG_LEASE_SECONDS,
        renew_seconds=RENEW_SECONDS,
    )
    its_own = await held(stage, wrong)
    right = stage.worker(
        concurrency=1, lease_seconds=LONG_LEASE_SECONDS, renew_seconds=RENEW_SECONDS
    )
    others = await held(stage, right)
    await outlived(stage, its_own, others)
    stage.open_gate("go")
    ended = await stage.ended(its_own, others)
    assert [(job.state, job.attempts, job.fence) for job in ended] == [
        (State.SUCCEEDED, 1, 2),
        (State.SUCCEEDED, 1, 2),
    ]
    assert_clock_was_wrong(stage, its_own, 3600)


def assert_clock_was_wrong(stage: Stage, job: Job, seconds: float) -> None:
    """See that the library worked at all."""
    (start,) = stage.ledger("start", job.id)
    off_seconds = abs(start["time"] - datetime.now(UTC).timestamp())
    assert seconds - 60 < off_seconds < seconds + 60


@on_postgres
@an_hour_off
async def test_a_wrong_clock_does_not_delay_reclaiming_from_a_dead_worker(
    stage: Stage, clock: Clock, shift: str
) -> None:
    clock.set(shift)
    right = partial(stage.worker, lease_seconds=SHORT_LEASE_SECONDS, renew_seconds=RENEW_SECONDS)
    wrong = partial(right, environment=clock.environment)
    worker = wrong()
    for gate, start_heir in (("first", right), ("second", wrong)):
        job = await stage.jobs.gated.enqueue(f"{gate}.2")
        await stage.noted("start", job.id)
        heir = start_heir()
        await heir.logs("worker_started")
        worker.kill()
        left = await stage.hf.get(job.id)
        again = await stage.noted("start", job.id, times=2)
        taken = await stage.hf.get(job.id)
        assert (again["pid"], again["attempt"]) == (heir.pid, 2)
        assert left.lease_expires_at is not None
        assert taken.started_at is not None
        since = taken.started_at - left.lease_expires_at
        assert timedelta(0) <= since <= in_time()
        stage.open_gate(f"{gate}.2")
        await stage.ended(job)
        worker = heir


@on_postgres
@an_hour_off
async def test_a_worker_with_a_wrong_clock_starts_nothing_early_or_late(
    stage: Stage, clock: Clock, shift: str
) -> None:
    clock.set(shift)
    stage.worker(environment=clock.environment)
    await stage.ended(await stage.jobs.quick.enqueue(0))  # it is at work
    far = await stage.jobs.quick.options(delay_seconds=1800).enqueue(1)
    soon = await stage.jobs.quick.options(delay_seconds=1).enqueue(2)
    dated = await stage.jobs.quick.options(run_at=soon.run_at).enqueue(3)
    retried = await stage.jobs.unsteady.enqueue(3)
    ended = await stage.ended(soon, dated, retried)
    for job in ended[:2]:
        assert job.started_at is not None
        assert job.run_at <= job.started_at <= job.run_at + LATE_MAX
    assert (await stage.hf.get(far.id)).attempts == 0
    assert await stage.fetch("SELECT id FROM history WHERE started_at < run_at") == []


@on_postgres
async def test_a_clock_that_steps_under_a_worker_changes_nothing(
    stage: Stage, clock: Clock
) -> None:
    stepping = stage.worker(
        concurrency=2,
        environment=clock.environment,
        lease_seconds=LONG_LEASE_SECONDS,
        renew_seconds=RENEW_SECONDS,
    )
    job = await held(stage, stepping)
    stage.worker(concurrency=2, lease_seconds=LONG_LEASE_SECONDS, renew_seconds=RENEW_SECONDS)
    for shift in ("-1h", "+1h"):
        clock.set(shift)
        soon = await stage.jobs.quick.options(delay_seconds=0.5).enqueue(1)
        await outlived(stage, job)
        (done,) = await stage.ended(soon)
        assert done.started_at is not None
        assert done.run_at <= done.started_at <= done.run_at + LATE_MAX
    stage.open_gate("go")
    (ended,) = await stage.ended(job)
    assert (ended.attempts, starts(stage, job)) == (1, [stepping.pid])


@on_sqlite
async def test_on_sqlite_a_clock_that_is_set_back_starts_nothing_twice_or_early(
    stage: Stage, clock: Clock
) -> None:
    """What waits, waits until the clock is there again."""
    worker = stage.worker(
        concurrency=2,
        environment=clock.environment,
        lease_seconds=LONG_LEASE_SECONDS,
        renew_seconds=RENEW_SECONDS,
    )
    job = await held(stage, worker)
    stage.worker(
        concurrency=2,
        environment=clock.environment,
        lease_seconds=LONG_LEASE_SECONDS,
        renew_seconds=RENEW_SECONDS,
    )
    soon = await stage.jobs.quick.options(delay_seconds=LONG_LEASE_SECONDS).enqueue(1)
    clock.set("-1h")
    until = soon.run_at + timedelta(seconds=1)
    await wait_until(lambda: datetime.now(UTC) > until, "later")
    assert stage.ledger("start", soon.id) == []
    stage.open_gate("go")
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.attempts, starts(stage, job)) == (
        State.SUCCEEDED,
        1,
        [worker.pid],
    )
    clock.set("+0")
    await stage.ended(soon)
    assert len(starts(stage, soon)) == 1


@on_sqlite
async def test_on_sqlite_a_dead_workers_job_waits_until_a_clock_that_was_set_back_catches_up(
    stage: Stage, clock: Clock
) -> None:
    killed = stage.worker(
        environment=clock.environment,
        lease_seconds=SHORT_LEASE_SECONDS,
        renew_seconds=RENEW_SECONDS,
    )
    job = await stage.jobs.gated.enqueue("gate.2")
    await stage.noted("start", job.id)
    killed.kill()
    clock.set("-1h")
    heir = stage.worker(environment=clock.environment)
    await outlived(stage, job)
    assert starts(stage, job) == [killed.pid]
    clock.set("+0")
    await stage.noted("start", job.id, times=2)
    assert starts(stage, job) == [killed.pid, heir.pid]
    stage.open_gate("gate.2")
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.attempts) == (State.SUCCEEDED, 2)


@on_sqlite
async def test_on_sqlite_a_clock_that_is_set_forward_may_start_a_job_again_and_records_it_once(
    stage: Stage, clock: Clock
) -> None:
    worker = stage.worker(concurrency=2, environment=clock.environment)
    job = await held(stage, worker)
    later = await stage.jobs.quick.options(delay_seconds=1800).enqueue(1)
    stage.worker(concurrency=2, environment=clock.environment)
    clock.set("+1h")
    await stage.ended(later)
    stage.open_gate("go")
    (ended,) = await stage.ended(job)
    fences = [entry["fence"] for entry in stage.ledger("start", job.id)]
    assert fences == sorted(set(fences))
    assert (ended.state, ended.fence) == (State.SUCCEEDED, fences[-1] + 1)
    assert ended.result == f"attempt {ended.attempts}"
    assert len(await stage.hf.jobs.attempts(job.id)) == ended.attempts
