"""The clock of PostgreSQL's machine is set forward or back by an hour under load: nothing is lost,
nothing is recorded twice, and nothing waits longer than the clock explains.
docs/guides/operations.md has the table."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from holdfast import Job, State
from tests.promises.accounts import all_end
from tests.promises.stage import Stage
from tests.support.clocks import Clock
from tests.support.postgres import Server, start_all, system_binaries
from tests.support.processes import Process, wait_until
from tests.support.services import missing

pytestmark = [pytest.mark.heavy, pytest.mark.long]

LEASE_SECONDS = 6.0
RENEW_SECONDS = 1.0
MORE_JOBS = 50


class Clocked(Server):
    """A server whose clock can be set."""

    def __init__(self) -> None:
        super().__init__("clocked", system_binaries() or missing("PostgreSQL is not installed"))
        self.clock = Clock(self.directory)
        self.environment = self.clock.environment


@pytest.fixture
def server() -> Iterator[Clocked]:
    made = Clocked()
    try:
        start_all([made])
        yield made
    finally:
        made.remove()


@pytest.fixture
async def stage(server: Clocked, tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(server.url("postgres"), tmp_path)
    try:
        await made.hf.migrate()
        yield made
    finally:
        await made.close()


def start(stage: Stage, concurrency: int = 20) -> Process:
    return stage.worker(
        concurrency=concurrency, lease_seconds=LEASE_SECONDS, renew_seconds=RENEW_SECONDS
    )


async def at_work(stage: Stage) -> tuple[list[Process], Process, Job]:
    """Clients that enqueue, a worker that keeps up, and one that runs a long job."""
    clients = [stage.client("enqueue_through_failures")]
    holder = start(stage, concurrency=1)
    job = await stage.jobs.gated.options(priority=-1).enqueue("gate")
    await stage.noted("start", job.id)
    start(stage)
    await more_ends(stage)
    return clients, holder, job


async def more_ends(stage: Stage) -> None:
    await stage.noted("finish", times=len(stage.ledger("finish")) + MORE_JOBS)


async def renewed(stage: Stage, job: Job) -> None:
    """Wait until the job's lease was extended by the clock as it is now."""
    before = (await stage.hf.get(job.id)).lease_expires_at

    async def is_renewed() -> bool:
        return (await stage.hf.get(job.id)).lease_expires_at != before

    await wait_until(is_renewed, lambda: f"renewed: {stage.logs()}")


async def test_a_database_clock_set_forward_under_load_loses_and_doubles_nothing(
    server: Clocked, stage: Stage
) -> None:
    clients, holder, job = await at_work(stage)
    later = await stage.jobs.quick.options(delay_seconds=1800).enqueue(1)
    server.clock.set("+1h")
    await stage.ended(later)  # its time has come
    await more_ends(stage)
    stage.open_gate("gate")
    (ended,) = await stage.ended(job)
    assert ended.state is State.SUCCEEDED
    # Another worker may have taken the long job for abandoned: then its end counts, and no other.
    fences = [entry["fence"] for entry in stage.ledger("start", job.id)]
    assert (fences, ended.fence) == (sorted(set(fences)), fences[-1] + 1)
    heir = await stage.jobs.gated.options(priority=-1).enqueue("other gate.2")
    await taken_over(stage, heir)
    stage.open_gate("other gate.2")
    for client in clients:
        client.kill()
    await all_end(stage, clients, others=[job.id, later.id, heir.id])
    assert holder.code in (None, -9)


async def taken_over(stage: Stage, job: Job) -> None:
    """Kill the worker that runs the job; another has to start it again."""
    first = await stage.noted("start", job.id)
    await start(stage).logs("worker_started")
    for process in stage.processes:
        if process.pid == first["pid"]:
            process.kill()
    await stage.noted("start", job.id, times=2)


async def test_a_database_clock_set_back_under_load_delays_only_what_the_clock_explains(
    server: Clocked, stage: Stage
) -> None:
    clients, holder, job = await at_work(stage)
    waiting = await stage.jobs.quick.options(delay_seconds=2).enqueue(1)
    server.clock.set("-1h")
    await renewed(stage, job)
    await more_ends(stage)  # new jobs are due by the new clock
    heir = await stage.jobs.gated.options(priority=-1).enqueue("other gate.2")
    await taken_over(stage, heir)  # and new leases expire by it
    stage.open_gate("other gate.2")
    await stage.ended(heir)
    assert stage.ledger("start", waiting.id) == []
    stage.open_gate("gate")
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.attempts, ended.fence) == (State.SUCCEEDED, 1, 2)
    assert [entry["pid"] for entry in stage.ledger("start", job.id)] == [holder.pid]
    for client in clients:
        client.kill()
    server.clock.set("+0")
    await stage.ended(waiting)
    await all_end(stage, clients, others=[job.id, waiting.id, heir.id])
