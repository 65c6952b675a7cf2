"""13. A frozen process is killed by its warden, and blocks nobody else."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from holdfast import Job, State
from tests.promises.freezing import Freezing
from tests.promises.stage import Stage, both_stores
from tests.support.crashing import is_alive
from tests.support.processes import Process, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.long]

SHORT_LEASE_SECONDS = 1.0


@pytest.fixture
def freezing(stage: Stage) -> Freezing:
    return Freezing(stage.hf)


def wardens(worker: Process) -> list[int]:
    """The wardens of this process that are alive."""
    children = Path(f"/proc/{worker.pid}/task").glob("*/children")
    pids = [int(pid) for each in children for pid in each.read_text().split()]
    return [pid for pid in pids if title(pid) == "holdfast warden" and is_alive(pid)]


def title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""


def ignored(pid: int) -> set[int]:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    mask = int(status.partition("SigIgn:")[2].split()[0], 16)
    return {number for number in signal.valid_signals() if mask >> (number - 1) & 1}


async def warden(worker: Process) -> int:
    await wait_until(lambda: wardens(worker), lambda: f"a warden: {worker.text}")
    return wardens(worker)[0]


@both_stores
async def test_a_frozen_process_is_ended_with_a_traceback_and_the_names_of_its_jobs(
    stage: Stage, freezing: Freezing
) -> None:
    neighbor = await freezing.wait.enqueue("gate")
    worker = stage.worker(app="freezing:hf", lease_seconds=SHORT_LEASE_SECONDS)
    await stage.noted("start", neighbor.id)
    await warden(worker)
    job = await freezing.freeze.enqueue()
    assert await worker.ended() == -signal.SIGABRT
    told = await worker.logs("frozen")
    assert (told["level"], told["process_id"]) == ("error", worker.pid)
    assert f"freeze {job.id}" in told["message"]
    assert f"wait {neighbor.id}" in told["message"]
    assert "in catastrophe" in worker.text
    stage.worker("--queues=others", app="freezing:hf")
    await wait_until(lambda: is_taken_back(stage, neighbor), lambda: f"back: {stage.logs()}")


async def is_taken_back(stage: Stage, job: Job) -> bool:
    return (await stage.hf.get(job.id)).state is State.QUEUED


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_frozen_process_is_replaced_and_only_the_job_that_froze_it_is_dead(
    stage: Stage, freezing: Freezing
) -> None:
    job = await freezing.freeze.options(max_attempts=1).enqueue()
    others = await stage.hf.enqueue_many([freezing.wait.call("gate") for _ in range(5)])
    stage.open_gate("gate.2")
    worker = stage.worker(
        "--processes=1", "--until-empty", app="freezing:hf", lease_seconds=SHORT_LEASE_SECONDS
    )
    assert await worker.ended() == 0
    ended, *neighbors = await stage.ended(job, *others)
    assert (ended.state, ended.crashes) == (State.DEAD, 2)
    died = await worker.logs("child_ended")
    assert "its warden killed it because it was frozen" in died["message"]
    assert [each.state for each in neighbors] == [State.SUCCEEDED] * len(others)


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_frozen_process_keeps_no_database_locked(stage: Stage, freezing: Freezing) -> None:
    """Its lease lasts for minutes, but the others can't write."""
    worker = stage.worker(app="freezing:hf")
    await warden(worker)
    job = await freezing.freeze_with_lock.enqueue()
    await stage.noted("start", job.id)
    assert await worker.ended() == -signal.SIGABRT
    assert (await freezing.wait.enqueue("never")).state is State.QUEUED
    assert "keeps an SQLite database locked" in (await worker.logs("frozen"))["message"]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_process_that_was_stopped_in_the_middle_of_a_write_keeps_no_database_locked(
    stage: Stage, freezing: Freezing
) -> None:
    job = await freezing.keep_lock.enqueue()
    worker = stage.worker(app="freezing:hf", lease_seconds=SHORT_LEASE_SECONDS)
    await stage.noted("start", job.id)
    await warden(worker)
    worker.signal(signal.SIGSTOP)
    assert await worker.ended() == -signal.SIGKILL
    assert (await freezing.wait.enqueue("never")).state is State.QUEUED


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_warden_that_was_killed_is_replaced_and_none_outlives_its_worker(
    stage: Stage,
) -> None:
    worker = stage.worker()
    first = await warden(worker)
    # What systemd sends to all processes at once, and a terminal that closes.
    assert {signal.SIGTERM, signal.SIGINT, signal.SIGHUP} <= ignored(first)
    os.kill(first, signal.SIGKILL)
    assert "was killed by SIGKILL" in (await worker.logs("warden_lost"))["message"]
    second = await warden(worker)
    assert second != first
    worker.kill()
    await wait_until(lambda: not is_alive(second), "ended with its worker")
    stopped = stage.worker()
    third = await warden(stopped)
    stopped.signal(signal.SIGTERM)
    assert await stopped.ended() == 0
    await wait_until(lambda: not is_alive(third), "ended by its worker")
