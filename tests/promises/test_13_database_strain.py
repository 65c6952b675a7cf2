"""13. The database answers late, or has no free connection, or a full disk: no lease is lost,
errors say why, and everything recovers on its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from holdfast import Job, State, StoreUnavailable
from holdfast.runtime.seam import Seam
from holdfast.stores.registry import make_store
from tests.promises.clients import BATCH_JOBS
from tests.promises.stage import Stage
from tests.support.postgres import Server, finish, start_all, system_binaries
from tests.support.processes import LOOK_SECONDS, Process, wait_until
from tests.support.proxy import Proxy
from tests.support.services import missing

pytestmark = [pytest.mark.heavy, pytest.mark.long]

# After an outage, a worker has a third of this to connect and renew before others reclaim its jobs:
# long enough for a machine that runs many tests at once.
LEASE_SECONDS = 12.0
STALL_SECONDS = 1.5 * LEASE_SECONDS


@asynccontextmanager
async def locked(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Block every statement on the jobs."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("LOCK TABLE holdfast.jobs")
            yield connection
    finally:
        await connection.close()


async def while_nothing_answers(stage: Stage) -> None:
    """Let a worker finish some jobs and others become due, for longer than any lease lasts."""
    stage.open_gate("early")
    await asyncio.sleep(STALL_SECONDS)


async def prepare(stage: Stage, url: str) -> list[Job]:
    """Start jobs in a worker, beside another that reclaims jobs as soon as their leases expire."""
    variables = {"HOLDFAST_DATABASE_URL": url}
    eager = stage.worker(
        "--queues=others", environment=variables, lease_seconds=LEASE_SECONDS, reclaim_seconds=0.2
    )
    stage.worker(environment=variables, lease_seconds=LEASE_SECONDS)
    await eager.logs("worker_started")
    early = await stage.hf.enqueue_many([stage.jobs.gated.call("early") for _ in range(4)])
    late = await stage.hf.enqueue_many([stage.jobs.gated.call("late") for _ in range(4)])
    soon = stage.jobs.gated.options(delay_seconds=2)
    due_meanwhile = await stage.hf.enqueue_many([soon.call("late") for _ in range(2)])
    await stage.noted("start", times=len(early + late))
    await wait_until(lambda: is_renewed(stage), "renewed")
    return early + late + due_meanwhile


async def is_renewed(stage: Stage) -> bool:
    """Has the keeper renewed once? Then its statement is prepared, and begins before it waits."""
    fresh = f"lease_expires_at = started_at + interval '{LEASE_SECONDS} seconds'"
    return await stage.fetch(f"SELECT FROM jobs WHERE state = 'running' AND {fresh}") == []


async def is_all_held(stage: Stage) -> bool:
    """Is no lease expired?"""
    ran_out = "SELECT FROM jobs WHERE state = 'running' AND lease_expires_at < now()"
    return await stage.fetch(ran_out) == []


async def check_nothing_was_lost(stage: Stage, jobs: list[Job]) -> None:
    await stage.noted("finish", times=4)
    await stage.noted("start", times=len(jobs))
    await wait_until(lambda: is_all_held(stage), "held again")
    stage.open_gate("late")
    for job in await stage.ended(*jobs):
        assert (job.state, job.attempts, job.fence) == (State.SUCCEEDED, 1, 2)
        assert len(stage.ledger("start", job.id)) == 1


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_statements_that_wait_longer_than_a_lease_lose_none(stage: Stage) -> None:
    jobs = await prepare(stage, stage.url)
    async with locked(stage.url):
        await while_nothing_answers(stage)
    await check_nothing_was_lost(stage, jobs)


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_renewal_that_had_to_wait_counts_from_its_end(stage: Stage) -> None:
    store = make_store(stage.url, Seam(), stage.hf.settings)
    try:
        await store.open()
        job = await stage.jobs.quick.enqueue(1)
        claimed = await store.claim_by_id(job.id, "worker", 60)
        assert claimed is not None
        # From here on the statement is prepared, and starts before it waits.
        assert await store.renew([claimed.lease], 60) == []
        async with locked(stage.url) as connection:
            renewing = asyncio.create_task(store.renew([claimed.lease], 60))
            await wait_until(lambda: is_waited_for(connection), "waits")
            waited_until = await connection.fetchval("SELECT clock_timestamp()")
        assert await renewing == []
    finally:
        await store.close()
    held = await stage.hf.get(job.id)
    assert held.lease_expires_at is not None
    assert held.lease_expires_at >= waited_until + timedelta(seconds=60)


async def is_waited_for(connection: asyncpg.Connection) -> bool:
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND relation = 'holdfast.jobs'::regclass"
    return bool(await connection.fetch(waiting))


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_network_that_stalls_longer_than_a_lease_loses_none(stage: Stage) -> None:
    address, _, database = stage.url.rpartition("/")
    with Proxy(int(address.rpartition(":")[2])) as proxy:
        jobs = await prepare(stage, proxy.url(database))
        proxy.stall()
        await while_nothing_answers(stage)
        proxy.resume()
        await check_nothing_was_lost(stage, jobs)


@pytest.fixture
def crowded_postgres() -> Iterator[Server]:
    """A server with few connections."""
    binaries = system_binaries() or missing("PostgreSQL is not installed")
    server = Server("crowded", binaries, max_connections="12")
    try:
        start_all([server])
        yield server
    finally:
        server.remove()


class Crowd:
    """Another client, which takes every connection."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._taken: list[asyncpg.Connection] = []

    @asynccontextmanager
    async def everywhere(self) -> AsyncIterator[None]:
        """Take the engine's connections, too. Close all of them at the end of the block."""
        self._taken.append(await asyncpg.connect(self._url))
        taking = asyncio.create_task(self._take_all())
        try:
            yield
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
            while self._taken:
                await self._taken.pop().close()

    async def _take_all(self) -> None:
        while True:
            await self._take_free_ones()
            await self._taken[0].execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'holdfast'"
            )
            await asyncio.sleep(LOOK_SECONDS)

    async def _take_free_ones(self) -> None:
        while True:
            try:
                self._taken.append(await asyncpg.connect(self._url))
            except asyncpg.TooManyConnectionsError:
                return


async def test_workers_log_that_a_server_has_no_free_connections_and_wait(
    crowded_postgres: Server, tmp_path: Path
) -> None:
    url = crowded_postgres.url("postgres")
    crowd = Crowd(url)
    async with AsyncExitStack() as stack:
        stage = Stage(url, tmp_path)
        stack.push_async_callback(stage.close)
        await stage.hf.migrate()
        worker = stage.worker()
        gates = [f"gate {number}" for number in range(8)]
        jobs = await stage.hf.enqueue_many([stage.jobs.gated.call(gate) for gate in gates])
        await stage.noted("start", times=len(jobs))
        async with crowd.everywhere():
            await wait_until(partial(is_refused, stage), "refused")
            for event in ("claim_failed", "renew_failed", "sweep_failed"):
                await tells(worker, event, "has no free connection")
            for gate in gates:  # one by one: some may get a connection before the crowd
                stage.open_gate(gate)
                await asyncio.sleep(0.1)
            await tells(worker, "settle_failed", "has no free connection")
        ended = await stage.ended(*jobs, await stage.jobs.quick.enqueue(2))
        assert [(each.state, each.attempts) for each in ended] == [(State.SUCCEEDED, 1)] * 9
        assert worker.code is None


async def is_refused(stage: Stage) -> bool:
    """Does an enqueue fail because there is no free connection?"""
    try:
        await stage.jobs.quick.enqueue(1)
    except StoreUnavailable as error:
        return "too many clients" in str(error)
    return False


async def tells(worker: Process, event: str, text: str) -> None:
    await wait_until(
        lambda: any(text in entry["message"] for entry in worker.events(event)),
        lambda: f"{event} with {text!r}: {worker.text}",
    )


SMALL_DISK_BYTES = 64 * 1024**2
CHUNK_BYTES = 4096
SPARE_BYTES = 2 * 1024**2


class SmallDisk:
    """A disk in memory under a server's data or its log, and a file that fills it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self._folder = folder
        self._ballast = folder / "ballast"
        folder.mkdir()
        owner = server.directory.stat()
        options = f"size={SMALL_DISK_BYTES},mode=700,uid={owner.st_uid},gid={owner.st_gid}"
        command = ["mount", "-t", "tmpfs", "-o", options, "small-disk", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            missing("a small disk can't be mounted here")

    def fill(self) -> None:
        """Leave room for a few batches."""
        with self._ballast.open("wb", buffering=0) as ballast, suppress(OSError):
            while True:
                ballast.write(bytes(CHUNK_BYTES))
        os.truncate(self._ballast, self._ballast.stat().st_size - SPARE_BYTES)

    def make_room(self) -> None:
        self._ballast.unlink()

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self._folder)], check=True)


@contextmanager
def small_postgres(*, log: bool) -> Iterator[tuple[Server, SmallDisk]]:
    """A server with either its data or its log on a small disk, and the other on a large one."""
    binaries = system_binaries() or missing("PostgreSQL is not installed")
    server = Server("small", binaries, durable=True)
    try:
        logs = server.directory / "log"
        disk = SmallDisk(server, logs if log else server.data)
        try:
            finish(server, server.initialize(f"--waldir={logs}"))
            server.start()
            yield server, disk
        finally:
            server.stop()
            disk.unmount()
    finally:
        server.remove()


@pytest.mark.parametrize("full", ["data", "log"])
async def test_a_full_disk_is_reported_and_leaves_nothing_half_done(
    full: str, tmp_path: Path
) -> None:
    with small_postgres(log=full == "log") as (server, disk):
        stage = Stage(server.url("postgres"), tmp_path)
        try:
            await stage.hf.migrate()
            worker = stage.worker(concurrency=5)
            held = await stage.hf.enqueue_many([stage.jobs.gated.call("gate") for _ in range(5)])
            await stage.noted("start", times=len(held))
            disk.fill()
            acknowledged, error = await enqueue_until_full(stage)
            stage.open_gate("gate")
            disk.make_room()
            if full == "data":
                assert "No space left on device" in str(error)
            else:
                await stage.hf.close()
                server.crash()
                server.start()
            ended = await stage.ended(*held, await stage.jobs.quick.enqueue(1))
            assert [job.attempts for job in ended] == [1] * len(ended)
            assert worker.code is None
            await check_batches(stage, acknowledged)
        finally:
            await stage.close()


async def check_batches(stage: Stage, acknowledged: int) -> None:
    rows = await stage.fetch("SELECT correlation_id FROM jobs WHERE correlation_id IS NOT NULL")
    batches = Counter(int(row[0]) for row in rows)
    assert set(batches.values()) == {BATCH_JOBS}
    # The server may have committed the last one and died before it could say so.
    assert set(range(acknowledged)) <= set(batches) <= set(range(acknowledged + 1))


async def enqueue_until_full(stage: Stage) -> tuple[int, StoreUnavailable]:
    """Enqueue batches of large jobs; return how many were acknowledged before the first error."""
    for number in range(1000):
        batch = stage.jobs.hopeless.options(correlation_id=str(number), delay_seconds=3600)
        text = os.urandom(20_000).hex()
        try:
            await stage.hf.enqueue_many([batch.call(text) for _ in range(BATCH_JOBS)])
        except StoreUnavailable as error:
            return number, error
    raise AssertionError("the disk was not full")
