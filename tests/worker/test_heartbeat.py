"""Workers that are there can be seen, and those that are no longer there, too."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from holdfast import Context, Holdfast, State, WorkerStatus
from holdfast.domain.workers import Load
from holdfast.runtime.seam import Seam
from holdfast.testing.conformance.workers import WORKER
from holdfast.worker.reclaim import reclaim_worker
from tests.promises.stage import Stage, both_stores
from tests.support.command import command
from tests.support.processes import wait_until
from tests.support.running import QUICK, WAIT_SECONDS_MAX, execute, seen_events, signal, working
from tests.support.stores import full_store

pytestmark = pytest.mark.heavy

RENEW_SECONDS = 0.2
REFUSE_SQLITE = (
    "CREATE TRIGGER refused BEFORE INSERT ON workers BEGIN SELECT RAISE(ABORT, 'not here'); END"
)
REFUSE_POSTGRES = "ALTER TABLE workers ADD CONSTRAINT refused CHECK (false)"


@pytest.fixture
async def quick(store_url: str) -> AsyncIterator[Holdfast]:
    """Renewing so often that a test can wait for it."""
    async with Holdfast(store_url, **QUICK, renew_seconds=RENEW_SECONDS) as app:
        yield app


@pytest.fixture
async def stage(store_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(store_url, tmp_path)
    try:
        yield made
    finally:
        await made.close()


async def seen(hf: Holdfast, count: int = 1) -> Sequence[WorkerStatus]:
    """Wait until so many workers are seen."""

    async def come() -> bool:
        return len(await hf.workers.list()) == count

    await wait_until(come, f"{count} workers")
    return await hf.workers.list()


async def seen_after(hf: Holdfast, moment: datetime) -> WorkerStatus:
    async def again() -> bool:
        return any(each.seen_at > moment for each in await hf.workers.list())

    await wait_until(again, f"seen after {moment}")
    (worker,) = await hf.workers.list()
    return worker


async def renewed(hf: Holdfast, job_id: UUID, times: int) -> None:
    """Wait until its lease was renewed so often."""
    seen: set[datetime | None] = set()

    async def is_renewed() -> bool:
        seen.add((await hf.get(job_id)).lease_expires_at)
        return len(seen - {None}) > times

    await wait_until(is_renewed, f"renewed {times} times")


async def test_a_worker_is_seen_from_its_boot_to_its_clean_stop(hf: Holdfast) -> None:
    @hf.job
    async def send() -> None: ...

    @hf.job
    async def resize() -> None: ...

    async with working(hf, concurrency=100, queues="mail,images:4"):
        (worker,) = await seen(hf)
        host, pid = socket.gethostname()[:80], os.getpid()
        assert (worker.host, worker.pid, worker.version) == (host, pid, version("holdfast"))
        assert worker.id.startswith(f"{host}:{pid}:")
        assert worker.queues == {"mail": None, "images": 4}
        assert worker.names == ("resize", "send")
        assert (worker.running, worker.concurrency) == (0, 100)
        assert (worker.lost, worker.suspects_only) == (False, False)
        assert abs((worker.seen_at - Seam().now()).total_seconds()) < 30
        assert 0 <= (worker.seen_at - worker.started_at).total_seconds() < 30
    assert await hf.workers.list() == []


@pytest.mark.parametrize(
    ("queues", "told"),
    [(None, None), ("*", None), ("*,images:4", {"images": 4, "*": None}), ("a", {"a": None})],
)
async def test_a_worker_tells_the_queues_that_it_serves(
    local_hf: Holdfast, queues: str | None, told: dict[str, int | None] | None
) -> None:
    @local_hf.job
    async def nothing() -> None: ...

    async with working(local_hf, queues=queues):
        (worker,) = await seen(local_hf)
        assert worker.queues == told
        assert worker.serves("a")
        assert worker.serves("images") == (queues != "a")


async def test_two_workers_of_one_process_are_two(hf: Holdfast) -> None:
    @hf.job
    async def nothing() -> None: ...

    async with working(hf), working(hf):
        first, second = await seen(hf, 2)
        assert first.pid == second.pid
        assert first.id != second.id


async def test_a_worker_that_has_nothing_to_do_is_seen_again_and_again(quick: Holdfast) -> None:
    @quick.job
    async def nothing() -> None: ...

    async with working(quick):
        (first,) = await seen(quick)
        second = await seen_after(quick, first.seen_at)
        third = await seen_after(quick, second.seen_at)
        assert (third.id, third.started_at) == (first.id, first.started_at)
        assert (second.seen_at - first.seen_at).total_seconds() > 0.75 * RENEW_SECONDS


async def test_a_worker_tells_how_much_it_runs(quick: Holdfast) -> None:
    gate = asyncio.Event()

    @quick.job
    async def hold() -> None:
        await signal(gate)

    jobs = await quick.enqueue_many(
        [hold.options(queue=queue).call() for queue in ("mail", "images", "images")]
    )

    async def loaded(load: tuple[int, tuple[str, ...]]) -> bool:
        return [(each.running, each.full_queues) for each in await quick.workers.list()] == [load]

    async with working(quick, concurrency=7, queues="mail,images:2"):
        await wait_until(lambda: loaded((3, ("images",))), "a load of 3, with images full")
        gate.set()
        await wait_until(lambda: loaded((0, ())), "a load of 0")
    assert {(await quick.get(job.id)).state for job in jobs} == {State.SUCCEEDED}


@both_stores
async def test_a_worker_that_is_killed_is_seen_as_lost_beside_its_successor(stage: Stage) -> None:
    killed = stage.worker(lease_seconds=0.6)
    await seen(stage.hf)
    killed.kill()
    worker = stage.worker()

    async def lost() -> bool:
        return {each.pid: each.lost for each in await stage.hf.workers.list()} == {
            killed.pid: True,
            worker.pid: False,
        }

    await wait_until(lost, lambda: f"one lost, one alive: {stage.logs()}")
    told = await command("workers", url=stage.url)
    lines = {line.split()[2]: line for line in told.splitlines()}
    assert "lost, " in lines[str(killed.pid)]
    assert "lost" not in lines[str(worker.pid)]


async def test_a_worker_that_is_known_to_have_died_is_not_seen_any_more(hf: Holdfast) -> None:
    store = await full_store(hf)
    await store.register(WORKER, Load())
    assert await reclaim_worker(store, WORKER.id, "was killed by the test") == []
    assert await hf.workers.list() == []


async def test_a_worker_that_was_forgotten_introduces_itself_again(
    quick: Holdfast, store_url: str
) -> None:
    @quick.job
    async def nothing() -> None: ...

    async with working(quick, queues="mail:3"):
        (first,) = await seen(quick)
        before = await seen_after(quick, first.seen_at)
        await execute(store_url, "DELETE FROM workers")
        (after,) = await seen(quick)
        assert (after.id, after.queues) == (before.id, before.queues)
        # Not when it was seen anew.
        assert after.started_at < before.seen_at < after.seen_at


async def test_where_nobody_can_be_seen_jobs_run_all_the_same(
    quick: Holdfast, store_url: str
) -> None:
    gate = asyncio.Event()

    @quick.job
    async def hold(ctx: Context) -> int:
        await signal(gate)
        return ctx.attempt

    await execute(store_url, REFUSE_SQLITE if store_url.startswith("sqlite") else REFUSE_POSTGRES)
    async with seen_events() as events, working(quick):
        await events.first("presence_failed")
        job = await hold.enqueue()
        await renewed(quick, job.id, times=5)
        gate.set()
        assert await quick.result(job.id, timeout_seconds=WAIT_SECONDS_MAX) == 1
    # Told once, though it is tried at every renewal.
    assert len(events.named("presence_failed")) == 1


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_sight_that_has_to_wait_costs_no_lease(quick: Holdfast, store_url: str) -> None:
    gate = asyncio.Event()

    @quick.job
    async def hold(ctx: Context) -> int:
        await signal(gate)
        return ctx.attempt

    job = await hold.enqueue()
    connection = await asyncpg.connect(store_url)
    try:
        async with seen_events() as events, working(quick):
            await seen(quick)
            async with connection.transaction():
                await connection.execute("LOCK TABLE holdfast.workers")
                await events.first("presence_failed")
                await renewed(quick, job.id, times=10)
            gate.set()
            assert await quick.result(job.id, timeout_seconds=WAIT_SECONDS_MAX) == 1
        assert events.named("lost") == events.named("reclaim") == []
    finally:
        await connection.close()


@both_stores
async def test_the_command_lists_workers_for_people_and_for_scripts(
    hf: Holdfast, store_url: str
) -> None:
    @hf.job
    async def nothing() -> None: ...

    assert await command("workers", url=store_url) == "no workers\n"
    async with working(hf, concurrency=100, queues="mail,images:4"):
        (worker,) = await seen(hf)
        heads, line = (await command("workers", url=store_url)).splitlines()
        assert heads.split() == [
            "WORKER",
            "HOST",
            "PID",
            "HOLDFAST",
            "QUEUES",
            "LOAD",
            "UP",
            "SEEN",
        ]
        words = line.split()
        assert words[:3] == [worker.id, worker.host, str(worker.pid)]
        assert words[3:6] == [worker.version, "mail,images:4", "0/100"]
        (told,) = (await command("workers", "--json", url=store_url)).splitlines()
        found = json.loads(told)
        assert (found["id"], found["queues"]) == (worker.id, {"mail": None, "images": 4})
        assert (found["names"], found["lost"]) == (list(worker.names), False)
