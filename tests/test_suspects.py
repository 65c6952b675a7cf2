"""Jobs that may have killed their process run alone in one: which, and what waits meanwhile."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import Context, Holdfast, Retry, State
from tests.promises.stage import Stage
from tests.support.crashing import is_alive, make_suspects, started
from tests.support.processes import Process, pause, wait_until
from tests.support.running import QUICK, WAIT_SECONDS_MAX


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path)
    try:
        yield made
    finally:
        await made.close()


class Company:
    """Who runs at the same time, in one process."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.seen: list[tuple[str, int]] = []

    async def stay(self, kind: str, steps: int) -> None:
        self.inside[kind] += 1
        for _ in range(steps):
            await pause(0.002)
            self.seen.append((kind, self.inside.total()))
        self.inside[kind] -= 1

    def most(self, kind: str) -> int:
        return max(count for each, count in self.seen if each == kind)


async def test_where_no_process_can_be_started_suspects_run_alone_in_this_one(
    hf: Holdfast,
) -> None:
    company = Company()

    @hf.job
    async def stay(kind: str, steps: int) -> None:
        await company.stay(kind, steps)

    suspects = await hf.enqueue_many([stay.call("suspect", 5) for _ in range(3)])
    await make_suspects(hf, suspects)
    others = await hf.enqueue_many([stay.call("other", 5 * steps) for steps in range(1, 9)])
    report = await hf.run_worker(concurrency=4, until_empty=True)
    assert report.succeeded == 11
    assert company.most("suspect") == 1
    assert company.most("other") == 4
    for job in [*suspects, *others]:
        assert (await hf.get(job.id)).state is State.SUCCEEDED


async def test_a_worker_of_one_slot_runs_suspects_and_others_in_turns(hf: Holdfast) -> None:
    order: list[str] = []

    @hf.job
    async def note(kind: str) -> None:
        order.append(kind)

    await make_suspects(hf, await hf.enqueue_many([note.call("suspect") for _ in range(30)]))
    await hf.enqueue_many([note.call("other") for _ in range(100)])
    await hf.run_worker(concurrency=1, until_empty=True)
    assert Counter(order) == {"suspect": 30, "other": 100}
    first, last = order.index("suspect"), 129 - order[::-1].index("suspect")
    assert order[first:last].count("other") >= 25


async def test_a_last_attempt_in_company_is_given_back_and_run_alone(hf: Holdfast) -> None:
    @hf.job
    async def once(ctx: Context) -> int:
        return ctx.attempt

    job = await once.options(max_attempts=1).enqueue()
    await make_suspects(hf, [job], crashes=1)
    await hf.run_worker(until_empty=True)
    assert await hf.result(job.id) == 1


async def test_until_empty_finds_a_suspect_that_is_tried_again(local_url: str) -> None:
    async with Holdfast(local_url, **QUICK, reclaim_seconds=3600) as hf:

        @hf.job(retry=Retry.schedule([0.2] * 4))
        async def flaky(ctx: Context) -> int:
            if ctx.attempt == 3:
                raise ConnectionError("not yet")
            return ctx.attempt

        job = await flaky.enqueue()
        await make_suspects(hf, [job])
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await hf.run_worker(until_empty=True)
        assert await hf.result(job.id) == 4


async def test_suspects_of_other_queues_are_left_alone(local_hf: Holdfast) -> None:
    @local_hf.job
    async def nothing() -> None: ...

    served = await nothing.options(queue="served").enqueue()
    other = await nothing.options(queue="other").enqueue()
    await make_suspects(local_hf, [served, other])
    await local_hf.run_worker(queues=["served"], until_empty=True)
    assert (await local_hf.get(served.id)).state is State.SUCCEEDED
    assert (await local_hf.get(other.id)).state is State.QUEUED


async def test_suspects_run_in_processes_of_their_own_beside_the_others(stage: Stage) -> None:
    suspects = await stage.hf.enqueue_many([stage.jobs.gated.call("gate") for _ in range(3)])
    await make_suspects(stage.hf, suspects)
    worker = stage.worker("--until-empty", alone_processes=2)
    await stage.noted("start", times=2)
    other = await stage.jobs.quick.enqueue(1)
    await stage.ended(other)
    pids = {entry["pid"] for entry in stage.ledger("start") if entry["name"] == "gated"}
    assert pids == set(started(worker))
    assert len(pids) == 2
    assert worker.pid not in pids
    stage.open_gate("gate")
    assert await worker.ended() == 0
    for job in await stage.ended(*suspects):
        assert (job.state, job.attempts, job.crashes) == (State.SUCCEEDED, 3, 2)


async def test_a_worker_that_is_told_to_stop_stops_its_suspects_too(stage: Stage) -> None:
    suspect = await stage.jobs.gated.enqueue("never")
    await make_suspects(stage.hf, [suspect])
    worker = stage.worker(grace_seconds=60)
    await stage.noted("start", suspect.id)
    worker.signal(signal.SIGTERM)
    await wait_until(lambda: len(worker.events("shutdown")) == 2, "told to both")
    assert worker.code is None
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    found = await stage.hf.get(suspect.id)
    assert (found.state, found.releases, found.crashes) == (State.QUEUED, 1, 2)
    assert not any(is_alive(pid) for pid in started(worker))


async def test_processes_for_suspects_end_with_their_worker(stage: Stage) -> None:
    suspect = await stage.jobs.gated.enqueue("never")
    await make_suspects(stage.hf, [suspect])
    worker = stage.worker(grace_seconds=0)
    start = await stage.noted("start", suspect.id)
    worker.kill()
    await wait_until(lambda: not is_alive(start["pid"]), lambda: f"ended: {worker.text}")
    found = await stage.hf.get(suspect.id)
    assert (found.state, found.releases, found.crashes) == (State.QUEUED, 1, 2)


async def test_an_app_in_a_module_finds_its_processes_without_the_command_line(
    stage: Stage,
) -> None:
    poison = await stage.jobs.poison.options(max_attempts=3).enqueue("kill")
    await make_suspects(stage.hf, [poison])
    program = "import asyncio, tests.promises.app as app"
    worker = run_program(stage, f"{program}; asyncio.run(app.hf.run_worker(until_empty=True))")
    assert await worker.ended() == 0
    (ended,) = await stage.ended(poison)
    assert (ended.state, ended.error_code) == (State.DEAD, "CRASHED")
    assert stage.ledger("start")[0]["pid"] != worker.pid


def run_program(stage: Stage, program: str) -> Process:
    return stage._start("program", ["-c", program], {})


async def test_a_module_that_no_other_process_can_import_runs_its_suspects_itself(
    stage: Stage,
) -> None:
    suspect = await stage.jobs.quick.enqueue(1)
    await make_suspects(stage.hf, [suspect])
    worker = stage.worker("--until-empty", app="once:hf")
    assert await worker.ended() == 0
    assert stage.ledger("start")[0]["pid"] == worker.pid
    assert "exited with code 1" in (await worker.logs("alone_unavailable"))["message"]
    assert (await stage.ended(suspect))[0].state is State.SUCCEEDED
