"""When workers call the sweeps of an application, and what a failing sweep costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import BadArguments, ConfigurationError, Holdfast, StoreUnavailable, SweepContext
from holdfast.testing import sandbox
from holdfast.testing.simulation import Simulation
from tests.support.processes import turn
from tests.support.running import QUICK, seen_events, signal, working

FAR_SECONDS = 3600.0


class Calls:
    """A sweep's calls, and what each of them returns or raises; the last one for ever."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers) or [None]
        self.workers: list[str] = []
        self._came = asyncio.Event()

    async def sweep(self, ctx: SweepContext) -> float | None:
        self.workers.append(ctx.worker_id)
        self._came.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        made: float | None = answer
        return made

    async def reach(self, count: int) -> None:
        while len(self.workers) < count:
            self._came.clear()
            await signal(self._came)


@pytest.fixture
async def slow_hf(store_url: str) -> AsyncIterator[Holdfast]:
    """What it does at once, it was told to do."""
    async with Holdfast(store_url, **{**QUICK, "poll_seconds": FAR_SECONDS}) as app:
        yield app


async def test_a_sweep_is_called_at_the_start_when_woken_and_when_it_asked(
    slow_hf: Holdfast,
) -> None:
    calls = Calls(0, 0.01, None)
    slow_hf.sweep(queue="reports")(calls.sweep)
    async with seen_events() as seen, working(slow_hf):
        await calls.reach(3)
        await slow_hf.queues.wake("other")
        await slow_hf.queues.wake("reports")
        await calls.reach(4)
        assert set(calls.workers) == {seen.named("worker_started")[0].fields["worker_id"]}


async def test_a_wake_up_in_a_transaction_comes_with_its_commit(slow_hf: Holdfast) -> None:
    called, found = asyncio.Event(), asyncio.Event()

    @slow_hf.job(queue="elsewhere")
    async def work() -> None: ...

    @slow_hf.sweep(queue="reports")
    async def look(ctx: SweepContext) -> None:
        called.set()
        if (await slow_hf.jobs.list()).jobs:
            found.set()

    async with working(slow_hf, queues=["reports"]):
        await signal(called)
        async with slow_hf.transaction() as connection:
            await slow_hf.queues.wake("reports", connection=connection)
            await work.options(connection=connection).enqueue()
            for _ in range(20):
                await turn()  # a wake-up that was not held back would come now, and find nothing
        await signal(found)


async def test_a_worker_calls_the_sweeps_of_its_own_queues(local_hf: Holdfast) -> None:
    own, other = Calls(), Calls()
    local_hf.sweep(queue="own")(own.sweep)

    @local_hf.sweep(queue="other")
    async def others(ctx: SweepContext) -> float | None:
        return await other.sweep(ctx)

    await local_hf.run_worker(queues=["own", "more"], until_empty=True)
    assert own.workers
    assert other.workers == []


async def test_a_worker_is_not_done_while_a_sweep_has_something_to_do(
    local_hf: Holdfast,
) -> None:
    run: list[int] = []

    @local_hf.job
    async def work(number: int) -> None:
        run.append(number)

    @local_hf.sweep(queue="default")
    async def add(ctx: SweepContext) -> float | None:
        turns.append(len(turns))
        if len(turns) in (3, 4, 5):
            await work.enqueue(len(turns))
        return FAR_SECONDS if len(turns) > 5 else 0.1

    turns: list[int] = []
    await local_hf.run_worker(until_empty=True)
    assert sorted(run) == [3, 4, 5]


async def test_a_paused_queue_pauses_its_sweep(hf: Holdfast) -> None:
    calls = Calls()
    hf.sweep(queue="reports")(calls.sweep)
    await hf.queues.pause("reports")
    await hf.run_due()
    assert calls.workers == []
    async with working(hf):
        await hf.queues.resume("reports")
        await calls.reach(1)


async def test_a_sweep_that_fails_is_called_again_and_said_once(local_hf: Holdfast) -> None:
    errors = [ZeroDivisionError("secret"), ZeroDivisionError("secret"), asyncio.CancelledError()]
    calls = Calls(*errors, "soon", StoreUnavailable("away"), None)
    local_hf.sweep(queue="reports")(calls.sweep)

    @local_hf.job
    async def work() -> None: ...

    async with seen_events() as seen, working(local_hf):
        await calls.reach(6)
        job = await work.enqueue()
        await local_hf.result(job, timeout_seconds=10)
    failed = [event for event in seen.named("sweep_failed") if event.fields.get("name")]
    assert [event.fields.get("error_code") for event in failed] == [
        "ZeroDivisionError",
        "CancelledError",
        "TypeError",
        None,
    ]
    assert all("raise answer" in str(event.traceback) for event in failed[:2])
    assert "secret" not in "".join(map(str, failed))


async def test_a_worker_that_stops_begins_no_turn(local_hf: Holdfast) -> None:
    entered, go = asyncio.Event(), asyncio.Event()
    turns: list[str] = []

    @local_hf.sweep(queue="reports")
    async def busy(ctx: SweepContext) -> float | None:
        turns.append("begun")
        entered.set()
        await go.wait()
        turns.append("ended")
        return 0

    async with Holdfast(local_hf._url, **{**QUICK, "grace_seconds": 10}) as other:
        other._sweeps.extend(local_hf._sweeps)
        worker = asyncio.create_task(other.run_worker())
        await signal(entered)
        worker.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await worker
    assert turns == ["begun", "ended"]


def test_a_sweep_is_called_at_least_every_so_often(tmp_path: Path) -> None:
    async def run_for_a_minute(simulation: Simulation) -> list[float]:
        seam = simulation.seam("worker")
        hf = Holdfast(f"sqlite:///{tmp_path}/jobs.db", seam=seam)
        times: list[float] = []

        @hf.sweep(queue="reports", every_seconds=20)
        async def collect(ctx: SweepContext) -> float | None:
            times.append(seam.monotonic())
            return 5 if seam.monotonic() < 5 else FAR_SECONDS

        worker = simulation.start("worker", hf.run_worker)
        await simulation.pass_time(60)
        worker.cancel()
        await asyncio.wait({worker})
        return times

    with Simulation(seed=1) as simulation:
        times = simulation.run(run_for_a_minute(simulation))
    assert sorted({round(time - times[0]) for time in times}) == [0, 5, 25, 45]


async def test_a_sandbox_moves_the_clock_to_what_a_sweep_waits_for(local_url: str) -> None:
    hf = Holdfast(local_url)

    @hf.sweep(queue="reports")
    async def collect(ctx: SweepContext) -> float | None:
        left = (due - await hf.now()).total_seconds()
        if left <= 0:
            done.append(left)
        return left if left > 0 else None

    done: list[float] = []
    async with sandbox(hf) as box:
        due = (await box.now()).replace(hour=7)
        await box.drain()
        assert done == []
        await box.drain(with_delayed=True)
        assert await box.now() == due
        assert done


def test_a_sweep_that_can_not_be_is_refused(local_url: str) -> None:
    hf = Holdfast(local_url)

    def plain(ctx: SweepContext) -> None: ...

    async def collect(ctx: SweepContext) -> None: ...

    with pytest.raises(ConfigurationError, match="async"):
        hf.sweep(queue="reports")(plain)  # type: ignore[arg-type]
    for options in ({"queue": ""}, {"queue": "a", "every_seconds": 0}):
        with pytest.raises((BadArguments, ConfigurationError)):
            hf.sweep(**options)(collect)
    hf.sweep(queue="reports")(collect)
    with pytest.raises(ConfigurationError, match="already exists"):
        hf.sweep(queue="other")(collect)
