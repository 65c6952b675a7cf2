"""Jobs that may have killed their process run alone in one: which, and what waits meanwhile."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from holdfast import Context, Holdfast, Job, Retry, State, WorkerHung
from holdfast.domain.job import Claimed, Reclaimed
from holdfast.observability.metrics import Metrics
from holdfast.runtime.seam import Process as SeamProcess
from holdfast.runtime.seam import Seam
from holdfast.worker.claimer import Claimer
from holdfast.worker.deadline import BLOCKED_CODE
from holdfast.worker.events import Events
from holdfast.worker.prefetch import Prefetch
from holdfast.worker.processes.launch import Launch
from holdfast.worker.quarantine import TRY_AGAIN_SECONDS, Quarantine
from holdfast.worker.reclaim import reclaim_worker
from holdfast.worker.setup import Setup
from holdfast.worker.slots import Slots
from holdfast.worker.strays import Strays
from tests.promises.stage import Stage
from tests.support.crashing import is_alive, make_suspects, started
from tests.support.processes import Process, wait_until
from tests.support.running import QUICK, WAIT_SECONDS_MAX, Company, execute, seen_events
from tests.support.running import signal as signaled

pytestmark = pytest.mark.heavy


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path)
    try:
        yield made
    finally:
        await made.close()


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


class Hanging:
    """Jobs of which one does not stop when it should."""

    def __init__(self, url: str, timeout_grace_seconds: float = 0.05) -> None:
        self.hf = Holdfast(
            url, **QUICK, reclaim_seconds=0.05, timeout_grace_seconds=timeout_grace_seconds
        )
        self.go = threading.Event()
        self.hang = self.hf.job(name="hang", timeout_seconds=0.05)(self._hang)
        self.quick = self.hf.job(name="quick")(lambda: None)
        self._url = url

    def _hang(self) -> None:
        self.go.wait(WAIT_SECONDS_MAX)

    async def postponed_suspect(self) -> Job:
        """Answer one that is due when it is told to be retried."""
        job = await self.quick.enqueue()
        await make_suspects(self.hf, [job])
        await execute(self._url, "UPDATE jobs SET run_at = run_at + 3600000000")
        return job

    async def __aenter__(self) -> Hanging:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.go.set()
        await self.hf.close()


async def test_a_worker_in_which_a_hung_handler_keeps_suspects_from_running_ends(
    local_url: str,
) -> None:
    async with Hanging(local_url) as jobs, seen_events() as seen:
        suspect = await jobs.postponed_suspect()
        await jobs.hang.options(max_attempts=1).enqueue()
        worker = asyncio.create_task(jobs.hf.run_worker(concurrency=3))
        await seen.first("hung")
        other = await jobs.quick.enqueue()
        await jobs.hf.result(other.id, timeout_seconds=WAIT_SECONDS_MAX)
        assert not worker.done()
        await jobs.hf.jobs.retry(suspect.id)
        with pytest.raises(WorkerHung, match="can't run beside 1 handlers that don't stop"):
            await asyncio.wait_for(worker, WAIT_SECONDS_MAX)
        await jobs.hf.run_due()
        assert (await jobs.hf.get(suspect.id)).state is State.SUCCEEDED


async def test_nothing_starts_beside_a_suspect_that_hangs(local_url: str) -> None:
    async with Hanging(local_url) as jobs, seen_events() as seen:
        suspect = await jobs.hang.options(max_attempts=3).enqueue()
        await make_suspects(jobs.hf, [suspect])
        worker = asyncio.create_task(jobs.hf.run_worker(concurrency=3))
        await seen.first("start")
        other = await jobs.quick.enqueue()
        with pytest.raises(WorkerHung):
            await asyncio.wait_for(worker, WAIT_SECONDS_MAX)
        assert (await jobs.hf.get(suspect.id)).state is State.DEAD
        assert (await jobs.hf.get(other.id)).fence == 0


class WatchedSlots(Slots):
    """Tells when somebody waits for all of them to be free."""

    def __init__(self, concurrency: int) -> None:
        super().__init__(concurrency, None)
        self.awaited = asyncio.Event()

    async def is_unused_within(self, seconds: float) -> bool:
        self.awaited.set()
        return await super().is_unused_within(seconds)


class Claiming:
    """A claimer that has suspects to run while a hung handler has one of its two slots."""

    def __init__(self, jobs: Hanging) -> None:
        self.jobs = jobs
        self.slots = WatchedSlots(2)
        self.slots.take(["default"])
        self.slots.hang()
        self.claimed: asyncio.Future[Sequence[Claimed]]
        self.claimed = asyncio.get_running_loop().create_future()

    async def _is_done(self) -> bool:
        return False

    async def first(self) -> list[UUID]:
        """Wait for what it claims first."""
        return [job.id for job in await asyncio.wait_for(self.claimed, WAIT_SECONDS_MAX)]

    async def __aenter__(self) -> Claiming:
        hf = self.jobs.hf
        setup = Setup(
            worker_id="claiming",
            store=await hf._store(),
            names=tuple(hf.names),
            slots=self.slots,
            settings=hf.settings,
            seam=Seam(),
            messengers=hf.messengers,
        )
        prefetch = Prefetch(self.slots, setup.seam, lambda runs: None)
        self.claimer = Claimer(
            setup,
            Strays(setup, list),
            prefetch,
            start=self.claimed.set_result,
            room=prefetch.wait_room,
            is_done=self._is_done,
        )
        self.claimer.run_suspects()
        self.task = asyncio.create_task(self.claimer.run())
        return self

    async def __aexit__(self, *error: object) -> None:
        self.claimer.stop()
        await asyncio.wait_for(self.task, WAIT_SECONDS_MAX)


async def test_a_suspect_runs_once_a_hung_handler_ends_within_the_grace(local_url: str) -> None:
    async with Hanging(local_url, timeout_grace_seconds=3600) as jobs:
        suspect = await jobs.quick.enqueue()
        await make_suspects(jobs.hf, [suspect])
        async with Claiming(jobs) as claiming:
            await signaled(claiming.slots.awaited)
            assert not claiming.claimed.done()
            claiming.slots.hung -= 1
            claiming.slots.give_back("default")
            assert await claiming.first() == [suspect.id]


async def test_a_worker_in_which_something_hangs_goes_on_when_another_has_the_suspects(
    local_url: str,
) -> None:
    async with Hanging(local_url) as jobs:
        job = await jobs.quick.enqueue()
        async with Claiming(jobs) as claiming:
            assert await claiming.first() == [job.id]


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
    worker = stage.worker(grace_seconds=3600)
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


async def test_queues_of_any_name_reach_the_processes_for_suspects(stage: Stage) -> None:
    queues = ["mail:high", "a, b"]
    suspects = [await stage.jobs.quick.options(queue=queue).enqueue(1) for queue in queues]
    await make_suspects(stage.hf, suspects)
    other = await stage.jobs.poison.options(queue="mail").enqueue("kill")
    program = "import asyncio, tests.promises.app as app"
    run = f"asyncio.run(app.hf.run_worker(queues={queues}, until_empty=True))"
    worker = run_program(stage, f"{program}; {run}")
    assert await worker.ended() == 0, worker.text
    for job in await stage.ended(*suspects):
        assert job.state is State.SUCCEEDED
    assert worker.pid not in {entry["pid"] for entry in stage.ledger("start")}
    assert (await stage.hf.get(other.id)).fence == 0


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


async def test_suspects_that_hang_are_no_reason_to_run_the_next_one_here(stage: Stage) -> None:
    """Their processes settle them and end, and have nothing leased then."""
    functions = (stage.jobs.hang_for_ever, stage.jobs.block_for_ever)
    hanging = [await each.options(max_attempts=3).enqueue() for each in functions]
    last = await stage.jobs.quick.options(priority=-1).enqueue(1)
    await make_suspects(stage.hf, [*hanging, last])
    worker = stage.worker("--until-empty", alone_processes=1, timeout_grace_seconds=0.1)
    assert await worker.ended() == 0
    assert [job.state for job in await stage.ended(*hanging)] == [State.DEAD] * 2
    assert (await stage.ended(last))[0].state is State.SUCCEEDED
    ends = [event["message"] for event in worker.events("child_ended")]
    assert ends[:2] == [f"a quarantine process exited with code {BLOCKED_CODE}"] * 2
    assert worker.events("alone_unavailable") == []
    assert worker.pid not in {entry["pid"] for entry in stage.ledger("start")}


class Machine(Seam):
    """One on which processes fail when they are told to, and whose clock can be set."""

    def __init__(self) -> None:
        super().__init__()
        self.late_seconds = 0.0
        self.started = 0
        self.go = asyncio.Event()

    def monotonic(self) -> float:
        return super().monotonic() + self.late_seconds

    async def start_process(self, command: Sequence[str], **options: Any) -> SeamProcess:
        self.started += 1
        await self.go.wait()
        return await super().start_process([sys.executable, "-c", "raise SystemExit(1)"])


class Starting:
    """Processes for suspects that don't come to work; `had` is what they had leased."""

    def __init__(self, had: Sequence[Reclaimed] | None) -> None:
        self.machine = Machine()
        self.had = had
        self.here = 0
        self.ended = 0
        self.suspects = Quarantine(
            find_launch=lambda: Launch("tests.promises.app:hf"),
            run_here=self._run_here,
            reclaim=self._reclaim,
            events=Events(None, Metrics(), self.machine),
            look=self._look_in_vain,
            died=lambda error: pytest.fail(f"died: {error!r}"),
            processes_max=4,
            seam=self.machine,
        )

    def _run_here(self) -> None:
        self.here += 1

    async def _reclaim(self, worker_id: str, reason: str) -> Sequence[Reclaimed] | None:
        self.ended += 1
        return self.had

    async def _look_in_vain(self) -> None: ...

    async def fail(self, count: int = 1) -> None:
        """Let so many processes start at once, and end."""
        before = self.ended
        self.machine.go.clear()
        self.suspects.found(count)
        self.machine.go.set()
        await wait_until(lambda: self.ended == before + count, "all of them ended")

    async def __aenter__(self) -> Starting:
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self.suspects.tasks:
            task.cancel()


async def test_a_database_that_can_not_be_asked_is_no_false_start() -> None:
    away = Holdfast("postgresql://127.0.0.1:1/away")._make_store()
    assert await reclaim_worker(away, "worker", "was killed") is None
    await away.close()
    async with Starting(had=None) as starting:
        for _ in range(3):
            await starting.fail()
        assert (starting.machine.started, starting.here) == (3, 0)


async def test_processes_that_fail_at_the_same_time_are_one_false_start() -> None:
    async with Starting(had=[]) as starting:
        await starting.fail(count=4)
        await starting.fail()
        assert (starting.machine.started, starting.here) == (5, 0)
        starting.suspects.found(1)
        assert (starting.machine.started, starting.here) == (5, 1)


async def test_processes_for_suspects_are_tried_again_after_some_minutes() -> None:
    async with Starting(had=[]) as starting, seen_events() as seen:
        await starting.fail()
        await starting.fail()
        starting.suspects.found(1)
        assert (starting.machine.started, starting.here) == (2, 1)
        starting.machine.late_seconds = TRY_AGAIN_SECONDS
        await starting.fail()
        starting.suspects.found(1)
        assert (starting.machine.started, starting.here) == (3, 2)
        assert len(seen.named("alone_unavailable")) == 2
