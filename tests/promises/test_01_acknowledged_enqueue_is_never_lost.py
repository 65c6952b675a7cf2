"""1. An acknowledged enqueue is never lost."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from holdfast import Holdfast
from holdfast.runtime.seam import Seam
from tests.promises.clients import ids
from tests.promises.handlers import Jobs
from tests.promises.stage import Stage, both_stores, random_seed
from tests.support.postgres import Server

pytestmark = [pytest.mark.heavy, pytest.mark.long]

CLIENTS = (
    "enqueue_one_by_one",
    "enqueue_batches",
    "enqueue_with_keys",
    "enqueue_at_once",
    "enqueue_from_plain_code",
)
WAL_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24


async def recorded(stage: Stage) -> set[UUID]:
    return {UUID(str(row[0])) for row in await stage.fetch("SELECT id FROM jobs")}


@both_stores
async def test_clients_killed_at_random_moments_lose_nothing_acknowledged(stage: Stage) -> None:
    random = Random(random_seed())
    await stage.hf.get((await stage.jobs.quick.enqueue(0)).id)
    clients = [stage.client(name) for name in CLIENTS]
    for client in clients:
        await client.prints()
        await asyncio.sleep(random.random() / 20)
        client.kill()
    acknowledged = {job_id for client in clients for job_id in ids(client.output)}
    assert acknowledged <= await recorded(stage)


@both_stores
async def test_a_client_killed_with_the_acknowledgment_has_enqueued(stage: Stage) -> None:
    await stage.jobs.quick.enqueue(0)
    clients = [stage.client("enqueue_and_die") for _ in range(3)]
    for client in clients:
        await client.ended()
    acknowledged = {job_id for client in clients for job_id in ids(client.output)}
    assert len(acknowledged) == len(clients)
    assert acknowledged <= await recorded(stage)


async def test_a_crash_of_postgresql_loses_nothing_acknowledged(
    own_postgres: Server, tmp_path: Path
) -> None:
    stage = Stage(own_postgres.url("postgres"), tmp_path)
    try:
        await stage.hf.migrate()
        clients = [stage.client("enqueue_one_by_one"), stage.client("enqueue_with_keys")]
        for client in clients:
            await client.prints(20)
        own_postgres.stop(signal.SIGQUIT)
        for client in clients:
            client.kill()
        own_postgres.start()
        acknowledged = {job_id for client in clients for job_id in ids(client.output)}
        assert acknowledged <= await recorded(stage)
    finally:
        await stage.close()


class Watching(Seam):
    """Keeps the connections, to ask them how they are set."""

    def __init__(self) -> None:
        super().__init__()
        self.connections: list[sqlite3.Connection] = []

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        self.connections.append(super().connect_sqlite(path))
        return self.connections[-1]


async def test_sqlite_syncs_every_commit_to_the_disk(tmp_path: Path) -> None:
    seam = Watching()
    async with Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}", seam=seam) as hf:
        await Jobs(hf).quick.enqueue(1)
        writers = [each for each in seam.connections if not pragma(each, "query_only")]
        assert [pragma(writer, "synchronous") for writer in writers] == [2]
        assert [pragma(writer, "journal_mode") for writer in writers] == ["wal"]


async def test_sqlite_recovers_every_acknowledged_job_whatever_was_torn_off(
    tmp_path: Path,
) -> None:
    """What a power cut leaves: all that was synced, and any part of what came after it."""
    path = tmp_path / "jobs.db"
    log = tmp_path / "jobs.db-wal"
    acknowledged: list[tuple[int, UUID]] = []
    async with Holdfast(f"sqlite:///{path}") as hf:
        jobs = Jobs(hf)
        first = (await jobs.quick.enqueue(0)).id
        acknowledged.append((log.stat().st_size, first))
        for number in range(3):
            made = await jobs.quick.options(idempotency_key=f"key {number}").enqueue(number)
            acknowledged.append((log.stat().st_size, made.id))
        database, whole = path.read_bytes(), log.read_bytes()
    frame_bytes = FRAME_HEADER_BYTES + int.from_bytes(whole[8:12], "big")
    boundaries = range(WAL_HEADER_BYTES, len(whole) + 1, frame_bytes)
    assert [size for size, _ in acknowledged] == sorted({size for size, _ in acknowledged})
    for boundary in boundaries:
        if boundary < acknowledged[0][0]:
            continue
        for torn in (whole[:boundary], whole[: boundary + 7], whole[:boundary] + b"\xff" * 5000):
            kept = {job_id for size, job_id in acknowledged if size <= boundary}
            found = recovered(tmp_path / "copy.db", database, torn)
            assert kept <= found <= {job_id for _, job_id in acknowledged}


def recovered(path: Path, database: bytes, log: bytes) -> set[UUID]:
    for stale in path.parent.glob(f"{path.name}*"):
        stale.unlink()
    path.write_bytes(database)
    path.with_name(f"{path.name}-wal").write_bytes(log)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return {UUID(row[0]) for row in connection.execute("SELECT id FROM jobs")}


def pragma(connection: sqlite3.Connection, name: str) -> object:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]
