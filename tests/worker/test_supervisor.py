"""`holdfast worker --processes N`: workers that are kept alive, and stop together."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import State
from holdfast.observability.metrics import Metrics
from holdfast.runtime.seam import Process as SeamProcess
from holdfast.runtime.seam import Seam
from holdfast.worker.events import Events
from holdfast.worker.processes.launch import Launch
from holdfast.worker.processes.supervisor import Supervisor
from tests.promises.stage import Stage
from tests.support.crashing import is_alive, started
from tests.support.processes import WAIT_SECONDS, Process, freeze, wait_until
from tests.support.running import execute

pytestmark = pytest.mark.heavy

LONG_LEASE_SECONDS = 3600  # a job that starts again before its end was taken back


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(f"sqlite:///{tmp_path / 'jobs.db'}", tmp_path)
    try:
        yield made
    finally:
        children = [pid for each in made.processes for pid in started(each)]
        await made.close()
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


async def children(worker: Process, count: int) -> list[int]:
    """Wait until so many processes have been started, and are at work."""
    await wait_until(
        lambda: len(worker.events("worker_started")) >= count, lambda: f"started: {worker.text}"
    )
    return started(worker)


def title(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()


async def test_processes_share_the_jobs_and_are_known_by_name(stage: Stage) -> None:
    jobs = await stage.hf.enqueue_many([stage.jobs.gated.call("gate") for _ in range(2)])
    worker = stage.worker("--processes=2", "--until-empty", concurrency=1)
    await stage.noted("start", times=2)
    pids = started(worker)
    assert sorted(entry["pid"] for entry in stage.ledger("start")) == sorted(pids)
    assert sorted(map(title, pids)) == ["holdfast 1/2", "holdfast 2/2"]
    stage.open_gate("gate")
    assert await worker.ended() == 0
    assert [job.state for job in await stage.ended(*jobs)] == [State.SUCCEEDED] * 2
    assert [event["level"] for event in worker.events("child_ended")] == ["info", "info"]


async def test_a_killed_process_is_replaced_and_its_jobs_are_taken_back_at_once(
    stage: Stage,
) -> None:
    job = await stage.jobs.gated.enqueue("gate.2")
    worker = stage.worker("--processes=1", lease_seconds=LONG_LEASE_SECONDS)
    first = await stage.noted("start", job.id)
    os.kill(first["pid"], signal.SIGKILL)
    again = await stage.noted("start", job.id, times=2)
    assert again["attempt"] == 2
    assert started(worker) == [first["pid"], again["pid"]]
    died = await worker.logs("child_ended")
    assert died["process_id"] == first["pid"]
    assert died["message"] == "worker 1/1 was killed by SIGKILL"
    (crashed,) = await stage.hf.jobs.attempts(job.id)
    assert (crashed.outcome, crashed.error_code, crashed.worker) == (
        "crashed",
        "CRASHED",
        died["worker_id"],
    )
    assert crashed.error_text is not None
    assert crashed.error_text.endswith("was killed by SIGKILL")
    stage.open_gate("gate.2")
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.crashes) == (State.SUCCEEDED, 1)


async def test_a_supervisor_goes_on_though_it_can_take_nothing_back(stage: Stage) -> None:
    """The schema of its database is one that it does not know."""
    await stage.hf.enqueue_many([stage.jobs.gated.call("never") for _ in range(2)])
    worker = stage.worker("--processes=2", concurrency=1)
    await stage.noted("start", times=2)  # both have opened all that they need of the database
    first, second = started(worker)
    await execute(stage.url, "INSERT INTO schema_version VALUES (99, 'later', 0)")
    os.kill(first, signal.SIGKILL)
    assert "has version 99" in (await worker.logs("sweep_failed"))["message"]
    await worker.logs("child_restarts")
    assert worker.code is None
    assert is_alive(second)
    await execute(stage.url, "DELETE FROM schema_version WHERE version = 99")
    await children(worker, 3)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
async def test_a_signal_lets_every_process_finish_its_jobs(
    stage: Stage, number: signal.Signals
) -> None:
    jobs = await stage.hf.enqueue_many([stage.jobs.gated.call("gate") for _ in range(2)])
    worker = stage.worker("--processes=2", concurrency=1)
    await stage.noted("start", times=2)
    worker.signal(number)
    await wait_until(lambda: len(worker.events("shutdown")) == 3, "told to all")
    late = await stage.jobs.quick.options(priority=-1).enqueue(1)
    stage.open_gate("gate")
    assert await worker.ended() == 0
    assert [job.attempts for job in await stage.ended(*jobs)] == [1, 1]
    assert (await stage.hf.get(late.id)).fence == 0
    assert len(started(worker)) == 2


async def test_the_second_signal_hurries_every_process(stage: Stage) -> None:
    jobs = await stage.hf.enqueue_many([stage.jobs.gated.call("never") for _ in range(2)])
    worker = stage.worker("--processes=2", concurrency=1, grace_seconds=3600)
    await stage.noted("start", times=2)
    worker.signal(signal.SIGTERM)
    await wait_until(lambda: len(worker.events("shutdown")) == 3, "told to all")
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    for job in jobs:
        found = await stage.hf.get(job.id)
        assert (found.state, found.attempts, found.releases) == (State.QUEUED, 0, 1)


class SlowStart(Seam):
    """A machine that takes its time to start a process."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def start_process(self, command: Sequence[str], **options: Any) -> SeamProcess:
        self.asked.set()
        await self.go.wait()
        return await super().start_process(command, **options)


async def test_a_signal_that_comes_while_a_process_starts_is_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", stage.url)
    seam = SlowStart()
    supervisor = Supervisor(
        launch=Launch("tests.promises.app:hf", path=tuple(sys.path)),
        count=1,
        until_empty=False,
        grace_seconds=30,
        seam=seam,
        reclaim=lambda *worker: pytest.fail(f"a crash: {worker}"),
        events=Events(None, Metrics(), seam),
    )
    running = asyncio.create_task(supervisor.run())
    await asyncio.wait_for(seam.asked.wait(), WAIT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    seam.go.set()
    assert await asyncio.wait_for(running, WAIT_SECONDS)


async def test_a_signal_that_comes_before_a_restart_is_not_lost(stage: Stage) -> None:
    worker = stage.worker("--processes=1")
    (first,) = await children(worker, 1)
    os.kill(first, signal.SIGKILL)
    await worker.logs("child_restarts")
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    assert started(worker) == [first]


async def test_processes_end_when_their_supervisor_was_killed(stage: Stage) -> None:
    job = await stage.jobs.gated.enqueue("gate")
    worker = stage.worker("--processes=2", concurrency=1)
    await stage.noted("start", job.id)
    pids = await children(worker, 2)
    worker.kill()
    stage.open_gate("gate")
    await wait_until(lambda: not any(map(is_alive, pids)), lambda: f"ended: {worker.text}")
    (ended,) = await stage.ended(job)
    assert (ended.state, ended.attempts) == (State.SUCCEEDED, 1)


async def test_a_process_that_blocks_ends_after_its_supervisor_was_killed(stage: Stage) -> None:
    """Nothing can be told to it; it looks for its parent beside its event loop."""
    job = await stage.jobs.gated_and_blocking.enqueue("never")
    worker = stage.worker("--processes=1", grace_seconds=0, lease_seconds=LONG_LEASE_SECONDS)
    await stage.noted("start", job.id)
    (pid,) = await children(worker, 1)
    worker.kill()
    await wait_until(lambda: not is_alive(pid), lambda: f"ended: {worker.text}")
    found = await stage.hf.get(job.id)
    assert (found.state, found.attempts, found.releases) == (State.QUEUED, 0, 1)


@pytest.mark.parametrize(
    ("app", "options", "code", "told"),
    [
        ("missing:hf", {}, 1, "no module named 'tests.promises.missing'"),
        ("app:nothing", {}, 1, "has no 'nothing'"),
        ("app:hf", {"queues": "mail:0"}, 1, "is not a list of queues"),
        ("app:hf", {"queues": "mail-*"}, 1, "'mail-*': queues can't be selected by pattern"),
        ("app:hf", {"queues": "mail-?"}, 1, "'mail-?': queues can't be selected by pattern"),
        ("app:hf", {"queues": "mail-[12]"}, 1, "'mail-[12]': queues can't be selected by pattern"),
        ("app:hf", {"processes": "0"}, 2, "0 is not in the range"),
    ],
)
async def test_what_can_not_be_right_is_told_once_and_starts_nothing(
    stage: Stage, app: str, options: dict[str, Any], code: int, told: str
) -> None:
    words = [f"--{name}={value}" for name, value in ({"processes": "2"} | options).items()]
    worker = stage.worker(*words, app=app)
    assert await worker.ended() == code
    assert told in worker.text
    assert "child_started" not in worker.text


async def test_a_process_that_can_not_start_is_tried_again_and_told_at_the_end(
    stage: Stage,
) -> None:
    worker = stage.worker("--processes=1", app="broken:hf")
    await wait_until(lambda: len(started(worker)) == 2, lambda: f"started twice: {worker.text}")
    assert "the mail server is away" in worker.text
    worker.signal(signal.SIGTERM)
    await worker.ended()
    assert (await worker.logs("child_ended"))["message"] == "worker 1/1 exited with code 1"


@pytest.mark.slow
async def test_a_process_that_does_not_stop_is_killed_in_the_end(stage: Stage) -> None:
    """It stands still, and so hears of nothing."""
    job = await stage.jobs.gated.enqueue("never")
    worker = stage.worker("--processes=1", grace_seconds=0, lease_seconds=LONG_LEASE_SECONDS)
    started = await stage.noted("start", job.id)
    await freeze(started["pid"], stage.url)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 1
    assert (await worker.logs("child_ended"))["message"] == (
        "worker 1/1 did not stop in time and was killed"
    )
    found = await stage.hf.get(job.id)
    assert (found.state, found.crashes) == (State.QUEUED, 1)
