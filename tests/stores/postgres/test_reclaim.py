"""What an old transaction keeps of the leases that ended makes no look at them slow."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import asyncpg
import pytest

from holdfast.domain.job import NewJob
from holdfast.domain.retention import A_WEEK
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.reclaim import LOOK_BACK_SECONDS, SCAN_SHARE
from holdfast.stores.postgres.rows import SQL
from holdfast.stores.postgres.settle import retention_values
from tests.support.seams import HandSeam

pytestmark = pytest.mark.both_postgres

HOUR_SECONDS = 3600.0
BATCH = 10
MANY_THAT_RAN_OUT = """
INSERT INTO holdfast.jobs (
    id, name, queue, priority, arguments, max_attempts, state, attempt, fence, lease_owner,
    started_at, lease_expires_at
)
SELECT
    gen_random_uuid(), 'resize', 'images', 0, '{}', 5, 'running', 1, 1, 'dead',
    now(), now() - interval '1 hour'
FROM generate_series(1, 5000)
"""


class Leases:
    """Jobs that a worker which died has leased."""

    def __init__(self, connection: asyncpg.Connection, store: PostgresStore) -> None:
        self._connection = connection
        self._store = store

    async def add(self, *, ran_out_seconds: float) -> UUID:
        job_id = uuid4()
        await self._store.enqueue([NewJob(id=job_id, name="resize", arguments=b"{}")])
        await self._connection.execute(
            """
            UPDATE holdfast.jobs
            SET state = 'running', attempt = 1, fence = 1, lease_owner = 'dead', started_at = now(),
                lease_expires_at = now() - make_interval(secs => $2)
            WHERE id = $1
            """,
            job_id,
            ran_out_seconds,
        )
        return job_id


@pytest.fixture
def seam() -> HandSeam:
    return HandSeam()


@pytest.fixture
async def store(postgres_url: str, seam: HandSeam) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, seam)
    await store.migrate()
    yield store
    await store.close()


@pytest.fixture
async def leases(store: PostgresStore, postgres_url: str) -> AsyncIterator[Leases]:
    connection = await asyncpg.connect(postgres_url)
    yield Leases(connection, store)
    await connection.close()


async def taken_back(store: PostgresStore, limit: int = BATCH) -> set[UUID]:
    return {each.job_id for each in await store.reclaim(limit)}


async def swept_slowly(store: PostgresStore, seam: HandSeam, seconds: float) -> None:
    seam.step_seconds = seconds
    assert await taken_back(store) == set()
    seam.step_seconds = 0.0


async def test_quick_sweeps_find_whatever_ran_out(
    store: PostgresStore, leases: Leases, seam: HandSeam
) -> None:
    assert await taken_back(store) == set()
    for seconds in (1.0, HOUR_SECONDS):
        seam.seconds += 1.0
        lost = await leases.add(ran_out_seconds=seconds)
        assert await taken_back(store) == {lost}


async def test_after_a_slow_sweep_looks_go_back_to_the_last_one_until_the_next_is_due(
    store: PostgresStore, leases: Leases, seam: HandSeam
) -> None:
    await swept_slowly(store, seam, 1.0)
    late = await leases.add(ran_out_seconds=HOUR_SECONDS)  # as one that committed late
    seam.seconds += 3.0
    lost = await leases.add(ran_out_seconds=1.0 + LOOK_BACK_SECONDS)
    assert await taken_back(store) == {lost}
    seam.seconds += SCAN_SHARE * 1.0
    assert await taken_back(store) == {late}


async def test_a_look_that_left_some_is_followed_by_one_at_everything(
    store: PostgresStore, leases: Leases, seam: HandSeam
) -> None:
    await swept_slowly(store, seam, 1.0)
    seam.seconds += 1.0
    lost = [await leases.add(ran_out_seconds=1.0) for _ in range(2)]
    late = await leases.add(ran_out_seconds=HOUR_SECONDS)
    assert await taken_back(store, limit=1) | await taken_back(store) == {late, *lost}


async def test_a_probe_of_the_database_is_no_look(
    store: PostgresStore, leases: Leases, seam: HandSeam
) -> None:
    await swept_slowly(store, seam, 10.0)
    seam.seconds += 100.0
    lost = await leases.add(ran_out_seconds=99.0)
    await leases.add(ran_out_seconds=HOUR_SECONDS)
    assert await taken_back(store, limit=0) == set()
    assert await taken_back(store) == {lost}


async def test_a_look_does_not_walk_over_what_an_old_transaction_keeps(
    store: PostgresStore, postgres_url: str
) -> None:
    connection, old = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    await connection.execute(MANY_THAT_RAN_OUT)
    await old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await old.fetch("SELECT FROM holdfast.attempts")
    await connection.execute("UPDATE holdfast.jobs SET lease_expires_at = now() + interval '1 day'")
    # As the engine calls it. The first call in a session also reads the catalog.
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    _, look, sweep = [await pages_read(connection, back) for back in (60.0, 60.0, None)]
    await connection.close()
    await old.close()
    assert look * 10 < sweep


async def pages_read(connection: asyncpg.Connection, back_seconds: float | None) -> int:
    statement = SQL["reclaim"]
    values = statement.arguments(
        {
            "limit": BATCH,
            "outcome": "lost",
            "error_code": "LEASE_LOST",
            "reason": "",
            "crashes_in_company_max": 2,
            "back_seconds": back_seconds,
            **retention_values(A_WEEK),
        }
    )
    async with connection.transaction():
        answer = await connection.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.sql}", *values
        )
    plan = json.loads(answer)[0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])
