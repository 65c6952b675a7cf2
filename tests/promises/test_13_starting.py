"""13. A worker that starts while its database does not answer keeps trying: it works as soon as it
can, and stops on a signal."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.promises.handlers import FOLDER
from tests.promises.stage import Stage
from tests.support.processes import Process, wait_until
from tests.support.proxy import Proxy

LEASE_SECONDS = 3.0
postgresql = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
# Which connection the start waits for, by what it sends to the server, and how often.
STEPS = {
    "first": (b"application_name", 1),
    "keeper": (b"application_name", 2),
    "wake-ups": (b"LISTEN", 1),
}


@pytest.fixture
async def network(stage: Stage) -> AsyncIterator[Proxy]:
    await stage.hf.migrate()
    with Proxy(int(stage.url.rpartition("/")[0].rpartition(":")[2])) as proxy:
        yield proxy


def start(stage: Stage, network: Proxy, *arguments: str) -> Process:
    """Start a worker that reaches the database through this network."""
    url = network.url(stage.url.rpartition("/")[2])
    return stage.worker(
        *arguments,
        lease_seconds=LEASE_SECONDS,
        grace_seconds=0,
        environment={"HOLDFAST_DATABASE_URL": url},
    )


@pytest.mark.slow
@postgresql
async def test_a_worker_that_starts_while_nothing_answers_works_when_it_can(
    stage: Stage, network: Proxy
) -> None:
    job = await stage.jobs.quick.enqueue(1)
    network.stall()
    worker = start(stage, network)
    await worker.logs("open_failed")
    network.resume()
    await stage.ended(job)
    assert worker.code is None


@pytest.mark.parametrize("step", STEPS)
@postgresql
async def test_a_worker_stopped_while_its_start_waits_for_an_answer_exits_cleanly(
    stage: Stage, network: Proxy, step: str
) -> None:
    marker, times = STEPS[step]
    stall = network.stall_at(marker, times=times)
    worker = start(stage, network)
    await wait_until(stall.begun.is_set, lambda: f"stalled: {worker.text}")
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    assert worker.events("stop_overdue") == []


@postgresql
async def test_a_worker_that_can_not_listen_yet_still_runs_jobs(
    stage: Stage, network: Proxy
) -> None:
    stall = network.stall_at(b"LISTEN", alone=True)
    job = await stage.jobs.quick.enqueue(1)
    worker = start(stage, network)
    await stage.ended(job)
    assert stall.begun.is_set()
    assert worker.code is None


@postgresql
async def test_processes_stopped_while_nothing_answers_exit_cleanly(
    stage: Stage, network: Proxy
) -> None:
    stall = network.stall_at(b"application_name", times=2)
    supervisor = start(stage, network, "--processes=2")
    await wait_until(stall.begun.is_set, lambda: f"stalled: {supervisor.text}")
    supervisor.signal(signal.SIGTERM)
    assert await supervisor.ended() == 0


@postgresql
async def test_ctrl_c_works_while_the_migration_waits(stage: Stage, network: Proxy) -> None:
    stall = network.stall_at(b"application_name")
    url = network.url(stage.url.rpartition("/")[2])
    command = ["-m", "holdfast.cli.main", "dev", "tests.promises.app:hf"]
    environment = {"HOLDFAST_DATABASE_URL": url, FOLDER: str(stage.folder)}
    dev = Process("dev", command, stage.folder, environment)
    stage.processes.append(dev)
    await wait_until(stall.begun.is_set, lambda: f"stalled: {dev.text}")
    dev.signal(signal.SIGTERM)
    assert await dev.ended() == 0


@contextmanager
def locked(stage: Stage) -> Iterator[None]:
    """Keep the file locked, as a long transaction of another program does."""
    path = Path(stage.url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.slow
@sqlite
async def test_a_worker_that_starts_while_the_file_is_locked_works_when_it_can(
    stage: Stage,
) -> None:
    job = await stage.jobs.quick.enqueue(1)
    with locked(stage):
        worker = stage.worker(lease_seconds=LEASE_SECONDS)
        await worker.logs("open_failed")
    await stage.ended(job)
    assert worker.code is None


@sqlite
async def test_a_worker_stopped_while_the_file_is_locked_exits_cleanly(stage: Stage) -> None:
    await stage.hf.migrate()
    with locked(stage):
        worker = stage.worker(lease_seconds=LEASE_SECONDS, grace_seconds=0)
        await wait_until(lambda: has_open(worker, stage), "at the file")
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0


def has_open(worker: Process, stage: Stage) -> bool:
    """Has the process opened the file of the database?"""
    path = stage.url.removeprefix("sqlite:///")
    links = Path(f"/proc/{worker.pid}/fd").glob("*")
    return any(link.exists() and str(link.readlink()) == path for link in links)
