"""9. Losing, doubling or reordering every wake-up message costs latency only."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from holdfast import State
from tests.promises.stage import Stage, both_stores
from tests.support.pooling import needs_a_session
from tests.support.processes import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.long]

TERMINATE = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND query ILIKE 'LISTEN%'
"""


@pytest.fixture
def sockets() -> Iterator[Path]:
    """Where a worker keeps its sockets: a short path, and not where clients send to."""
    with tempfile.TemporaryDirectory(prefix="hf", dir="/tmp") as folder:
        yield Path(folder)


@both_stores
async def test_every_job_runs_though_every_wake_up_is_lost(stage: Stage, sockets: Path) -> None:
    worker = stage.worker(environment={"TMPDIR": str(sockets)})
    await worker.logs("worker_started")
    jobs = []
    for number in range(12):
        await silence(stage, sockets)
        jobs.append(await stage.jobs.quick.enqueue(number))
        await asyncio.sleep(0.05)
    ended = await stage.ended(*jobs)
    assert [job.result for job in ended] == list(range(12))
    assert {job.attempts for job in ended} == {1}
    assert worker.code is None


def all_sockets(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_socket()]


async def silence(stage: Stage, sockets: Path) -> None:
    if stage.is_sqlite:
        for found in all_sockets(sockets):
            os.unlink(found)
    else:
        await stage.fetch(TERMINATE)


@both_stores
async def test_doubled_reordered_false_and_unreadable_wake_ups_change_nothing(
    stage: Stage, sockets: Path
) -> None:
    worker = stage.worker(environment={"TMPDIR": str(sockets)})
    running = await stage.jobs.gated.enqueue("gate")
    await stage.noted("start", running.id)
    jobs = []
    for number in range(10):
        await mislead(stage, sockets, str(running.id))
        jobs.append(await stage.jobs.quick.enqueue(number))
        await mislead(stage, sockets, str(jobs[-1].id))
    ended = await stage.ended(*jobs)
    assert [job.state for job in ended] == [State.SUCCEEDED] * 10
    assert not stage.ledger("canceled")
    stage.open_gate("gate")
    await stage.ended(running)
    assert {job.attempts for job in await stage.ended(running, *jobs)} == {1}
    assert worker.code is None


async def mislead(stage: Stage, sockets: Path, job_id: str) -> None:
    """Announce work that doesn't exist, and cancellations that never happened."""
    messages = [f"c:{job_id}", f"c:{uuid4()}", "c:nothing", "q:default", "q:nowhere", "q:", "x", ""]
    if not stage.is_sqlite:
        for order in (messages, messages[::-1]):
            values = ", ".join(f"('{message}')" for message in order)
            await stage.fetch(f"SELECT pg_notify('holdfast', said) FROM (VALUES {values}) v (said)")
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        found = all_sockets(sockets)
        assert found, "the worker has no socket"
        for path in found:
            for message in [*messages * 2, "\udcff"]:
                with suppress(BlockingIOError):
                    sender.sendto(message.encode(errors="surrogateescape"), str(path))


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
@needs_a_session
async def test_a_worker_gets_wake_ups_again_after_its_listener_was_terminated(stage: Stage) -> None:
    """Not by polling: it polls here only once in a while."""
    stage.worker(poll_seconds=3600)
    await stage.ended(await stage.jobs.quick.enqueue(0))
    await stage.fetch(TERMINATE)
    await wait_until(lambda: stage.fetch(LISTENERS), "listening again")
    await stage.ended(await stage.jobs.quick.enqueue(1))


LISTENERS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND query ILIKE 'LISTEN%'
"""
