"""13. The database crashes, fails over, fills up or stalls: nothing is lost, nothing happens twice,
and the workers recover on their own."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest

from holdfast import JobNotFound, State
from tests.promises.accounts import all_end
from tests.promises.stage import Stage
from tests.support.postgres import Server
from tests.support.processes import Process, wait_until
from tests.support.proxy import Proxy

pytestmark = [pytest.mark.heavy, pytest.mark.long]

RESTARTS = 3
# A job whose claim was committed while the answer was lost waits for it.
LEASE_SECONDS = 5.0


@asynccontextmanager
async def staged(url: str, folder: Path) -> AsyncIterator[Stage]:
    stage = Stage(url, folder)
    try:
        await stage.hf.migrate()
        yield stage
    finally:
        await stage.close()


async def more_happens(stage: Stage, clients: list[Process], jobs: int = 200) -> None:
    """Wait until this many more jobs were acknowledged and finished."""
    for client in clients:
        await client.prints(len(client.output) + jobs)
    await stage.noted("finish", times=len(stage.ledger("finish")) + jobs)


async def test_crashes_of_postgresql_under_load_lose_nothing_and_finish_nothing_twice(
    own_postgres: Server, tmp_path: Path
) -> None:
    async with staged(own_postgres.url("postgres"), tmp_path) as stage:
        worker = stage.worker(concurrency=50, lease_seconds=LEASE_SECONDS)
        clients = [stage.client("enqueue_through_failures") for _ in range(2)]
        for _ in range(RESTARTS):
            await more_happens(stage, clients)
            await stage.hf.close()
            own_postgres.crash()
            own_postgres.start()
        await more_happens(stage, clients)
        for client in clients:
            client.kill()
        await all_end(stage, clients)
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0


@pytest.fixture
def standby(own_postgres: Server) -> Iterator[Server]:
    """A standby that streams from `own_postgres`."""
    made = own_postgres.follower("standby")
    try:
        made.start()
        yield made
    finally:
        made.remove()


async def execute(server: Server, sql: str) -> None:
    connection = await asyncpg.connect(server.url("postgres"))
    try:
        await connection.execute(sql)
    finally:
        await connection.close()


async def replicate_synchronously(primary: Server) -> None:
    """Acknowledge no commit before a standby has it on its disk."""
    await execute(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
    await execute(primary, "SELECT pg_reload_conf()")
    await wait_until(lambda: is_synchronous(primary), "synchronous")


async def is_synchronous(primary: Server) -> bool:
    connection = await asyncpg.connect(primary.url("postgres"))
    try:
        states = await connection.fetch("SELECT sync_state FROM pg_stat_replication")
        return [row[0] for row in states] == ["sync"]
    finally:
        await connection.close()


async def promote(standby: Server) -> None:
    await execute(standby, "SELECT pg_promote()")


async def test_a_promoted_synchronous_standby_has_all_that_was_acknowledged(
    own_postgres: Server, standby: Server, tmp_path: Path
) -> None:
    """The clients find it behind a proxy, the worker by an address with both hosts."""
    await replicate_synchronously(own_postgres)
    hosts = f"127.0.0.1:{own_postgres.port},127.0.0.1:{standby.port}"
    url = f"postgresql://postgres@{hosts}/postgres?target_session_attrs=primary"
    with Proxy(own_postgres.port) as proxy:
        async with staged(proxy.url("postgres"), tmp_path) as stage:
            worker = stage.worker(
                concurrency=50,
                environment={"HOLDFAST_DATABASE_URL": url},
                lease_seconds=LEASE_SECONDS,
            )
            clients = [stage.client("enqueue_through_failures") for _ in range(2)]
            await more_happens(stage, clients)
            await stage.hf.close()
            own_postgres.kill()
            await promote(standby)
            proxy.switch(standby.port)
            await more_happens(stage, clients)
            for client in clients:
                client.kill()
            await all_end(stage, clients)
            assert worker.code is None


async def test_a_worker_left_on_the_old_primary_settles_nothing(
    own_postgres: Server, standby: Server, tmp_path: Path
) -> None:
    await replicate_synchronously(own_postgres)
    with Proxy(own_postgres.port) as network, Proxy(own_postgres.port) as others:
        async with staged(others.url("postgres"), tmp_path) as stage:
            left = stage.worker(environment={"HOLDFAST_DATABASE_URL": network.url("postgres")})
            job = await stage.jobs.gated.enqueue("gate")
            await stage.noted("start", job.id)
            await promote(standby)
            await stage.hf.close()
            others.switch(standby.port)
            stage.worker()
            await stage.let_run_out(job)
            await stage.noted("start", job.id, times=2)
            stage.open_gate("gate")
            await stage.noted("finish", job.id, times=2)
            (ended,) = await stage.ended(job)
            assert (ended.state, ended.attempts, ended.fence) == (State.SUCCEEDED, 2, 4)
            assert left.events("settle") == []
            own_postgres.kill()
            network.switch(standby.port)
            lost = await left.logs("lost")
            assert lost["job_id"] == str(job.id)
            assert await stage.hf.get(job.id) == ended


async def test_an_asynchronous_standby_may_lack_the_tail_and_its_fences(
    own_postgres: Server, standby: Server, tmp_path: Path
) -> None:
    """What docs/guides/operations.md says about it: the loss, and the step that keeps fences
    rising."""
    async with staged(own_postgres.url("postgres"), tmp_path) as stage:
        kept = await stage.jobs.quick.options(delay_seconds=3600).enqueue(1)
        await wait_until(lambda: has_job(standby, kept.id), "replicated")
        standby.stop()
        lost = await stage.jobs.quick.enqueue(2)
        worker = stage.worker()
        await stage.ended(lost)
        await stage.hf.jobs.retry(kept.id)
        await stage.ended(kept)
        worker.kill()
        own_postgres.kill()
    standby.start()
    await promote(standby)
    await execute(standby, "UPDATE holdfast.jobs SET fence = fence + 1000000")
    async with staged(standby.url("postgres"), tmp_path) as stage:
        with pytest.raises(JobNotFound):
            await stage.hf.get(lost.id)
        assert (await stage.hf.get(kept.id)).state is State.QUEUED
        stage.worker()
        await stage.hf.jobs.retry(kept.id)
        await stage.ended(kept)
        fences = [entry["fence"] for entry in stage.ledger("finish", kept.id)]
        assert fences == [1, 1_000_001]


async def has_job(server: Server, job_id: UUID) -> bool:
    connection = await asyncpg.connect(server.url("postgres"))
    try:
        sql = "SELECT true FROM holdfast.jobs WHERE id = $1"
        return bool(await connection.fetchval(sql, job_id))
    finally:
        await connection.close()
