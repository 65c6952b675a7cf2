"""10. The same idempotency key gives the same job; with a different body, an error."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from uuid import uuid4

import asyncpg
import pytest

from holdfast import Holdfast, IdempotencyConflict, State
from holdfast.runtime.seam import Seam
from tests.promises.handlers import Jobs
from tests.promises.stage import Stage, both_stores
from tests.support.processes import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.long]

CLIENTS = 4
KEYS = [f"key {number}" for number in range(15)]


@both_stores
async def test_processes_that_race_for_a_key_get_the_same_job(stage: Stage) -> None:
    await stage.hf.jobs.counts()
    clients = [stage.client("race_for_keys", KEYS, seed) for seed in range(CLIENTS)]
    for client in clients:
        await client.prints()
    stage.open_gate("go")
    assert [await client.ended() for client in clients] == [0] * CLIENTS
    answers = {line for client in clients for line in client.output if line != "ready"}
    found = await stage.fetch("SELECT idempotency_key, id FROM jobs")
    assert answers == {f"{key} {job_id}" for key, job_id in found}
    assert sorted(key for key, _ in found) == sorted(KEYS)


async def test_a_key_whose_transaction_rolls_back_is_free(stage: Stage) -> None:
    ghost, seam = uuid4(), WatchedSeam()
    async with Holdfast(stage.url, seam=seam) as hf:
        async with key_taken_and_rolled_back(stage, seam, "key", str(ghost)) as waits:
            quick = Jobs(hf).quick.options(idempotency_key="key")
            enqueuing = asyncio.create_task(quick.enqueue(1))
            await wait_until(waits, "waiting for the key")
            assert not enqueuing.done()
        job = await enqueuing
    assert job.id != ghost
    assert (await stage.hf.get(job.id)).state is State.QUEUED
    again = await stage.jobs.quick.options(idempotency_key="key").enqueue(1)
    assert again.id == job.id


class WatchedSeam(Seam):
    """Tells when a transaction on SQLite begins, before it gets the lock of the file."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        connection = super().connect_sqlite(path)
        connection.set_trace_callback(self._note)
        return connection

    def _note(self, sql: str) -> None:
        if sql.startswith("BEGIN IMMEDIATE"):
            self.begun.set()


@asynccontextmanager
async def key_taken_and_rolled_back(
    stage: Stage, seam: WatchedSeam, key: str, job_id: str
) -> AsyncIterator[Callable[[], object]]:
    """Take the key in a transaction that is rolled back at the end of the block. Answer how to find
    out whether a transaction waits for it."""
    await stage.hf.jobs.counts()
    if stage.is_sqlite:
        path = stage.url.removeprefix("sqlite:///")
        local = sqlite3.connect(path, isolation_level=None)
        local.execute("BEGIN IMMEDIATE")
        local.execute(
            "INSERT INTO idempotency_keys VALUES ('', ?, ?, x'00', 9999999999999999)", (key, job_id)
        )
        seam.begun.clear()
        yield seam.begun.is_set
        local.execute("ROLLBACK")
        local.close()
        return
    connection = await asyncpg.connect(stage.url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute(
        "INSERT INTO holdfast.idempotency_keys VALUES ('', $1, $2, '', 'infinity')", key, job_id
    )
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND transactionid = pg_current_xact_id()::xid"
    yield lambda: connection.fetch(waiting)
    await transaction.rollback()
    await connection.close()


async def test_a_key_with_another_body_is_refused_and_nothing_is_enqueued(stage: Stage) -> None:
    keyed = stage.jobs.quick.options(idempotency_key="key")
    job = await keyed.enqueue(1)
    with pytest.raises(IdempotencyConflict, match=str(job.id)):
        await keyed.enqueue(2)
    with pytest.raises(IdempotencyConflict):
        await stage.jobs.unsteady.options(idempotency_key="key").enqueue(1)
    fresh = stage.jobs.quick.options(idempotency_key="fresh")
    with pytest.raises(IdempotencyConflict):
        await stage.hf.enqueue_many([fresh.call(1), stage.jobs.quick.call(1), keyed.call(2)])
    assert await stage.fetch("SELECT count(*) FROM jobs") == [(1,)]
    assert await stage.fetch("SELECT key FROM idempotency_keys") == [("key",)]
    assert (await fresh.enqueue(2)).arguments == {"number": 2}


async def test_a_key_belongs_to_its_tenant(stage: Stage) -> None:
    keyed = stage.jobs.quick.options(idempotency_key="key")
    tenants = [keyed, keyed.options(tenant="a"), keyed.options(tenant="b")]
    first = [await each.enqueue(1) for each in tenants]
    again = [await each.enqueue(1) for each in tenants]
    assert len({job.id for job in first}) == 3
    assert [job.id for job in again] == [job.id for job in first]
    assert [job.tenant for job in again] == ["default", "a", "b"]
    assert (await keyed.options(tenant="default").enqueue(1)).id == first[0].id
    with pytest.raises(IdempotencyConflict):
        await tenants[1].enqueue(2)


async def test_a_key_outlives_the_end_of_its_job(stage: Stage) -> None:
    keyed = stage.jobs.quick.options(idempotency_key="key")
    job = await keyed.enqueue(5)
    assert await stage.worker("--until-empty").ended() == 0
    again = await keyed.enqueue(5)
    assert (again.id, again.state, again.result) == (job.id, State.SUCCEEDED, 5)
    with pytest.raises(IdempotencyConflict):
        await keyed.enqueue(6)
    assert len(stage.ledger("start")) == 1
