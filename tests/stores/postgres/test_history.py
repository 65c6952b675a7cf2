"""The history on PostgreSQL: days as partitions, made ahead and dropped whole, in nobody's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from time import time_ns
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast.domain.breakers import Strike
from holdfast.domain.errors import DuplicateJob, StoreRefused
from holdfast.domain.ids import IdMaker
from holdfast.domain.job import DEFAULT_TENANT, Claimed, Count, NewJob, Settlement, Standing
from holdfast.domain.retention import A_WEEK, Retention, parse_rules
from holdfast.domain.states import State
from holdfast.runtime.seam import Seam
from holdfast.stores.migrations import steps
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.rows import SQL
from holdfast.stores.postgres.settle import retention_values
from holdfast.stores.protocol import Claim
from tests.support.processes import WAIT_SECONDS, wait_until

pytestmark = pytest.mark.both_postgres

DAY = timedelta(days=1)
MEGABYTE = 1_000_000
ADD_DAY = "SELECT holdfast.add_history_day($1, $2, $3)"
SEAM = Seam()
IDS = IdMaker(SEAM.random)


def new_job(**changes: Any) -> NewJob:
    job_id = IDS.make(time_ns() // 1_000_000)
    return NewJob(**{"id": job_id, "name": "resize", "arguments": b"{}", **changes})


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as store:
        await store.migrate()
        yield store


@asynccontextmanager
async def opened(url: str, retention: Retention = A_WEEK) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(url, SEAM, retention=retention)
    try:
        yield store
    finally:
        await store.close()


async def running(store: PostgresStore, count: int = 1, **changes: Any) -> Sequence[Claimed]:
    await store.enqueue([new_job(**changes) for _ in range(count)])
    claimed: list[Claimed] = []
    # A claim that was slow looks for new lanes only after a while.
    while len(claimed) < count:
        claimed += await store.claim(Claim("worker", count - len(claimed), 30.0, ["resize"]))
    return claimed


def ended(job: Claimed, state: State = State.SUCCEEDED) -> Settlement:
    return Settlement(job_id=job.id, fence=job.fence, state=state)


async def today(connection: asyncpg.Connection) -> date:
    day = await connection.fetchval("SELECT (now() AT TIME ZONE 'UTC')::date")
    assert isinstance(day, date)
    return day


async def days(connection: asyncpg.Connection) -> list[date]:
    rows = await connection.fetch(
        "SELECT relname FROM pg_class JOIN pg_inherits ON pg_class.oid = inhrelid"
        " WHERE inhparent = 'holdfast.history'::regclass AND relname <> 'history_rest'"
        " ORDER BY relname"
    )
    return [datetime.strptime(row[0], "history_%Y%m%d").replace(tzinfo=UTC).date() for row in rows]


async def places(connection: asyncpg.Connection) -> dict[str, int]:
    """How many jobs each partition holds."""
    rows = await connection.fetch(
        "SELECT tableoid::regclass::text AS place, count(*) FROM holdfast.history GROUP BY 1"
    )
    return {row[0].removeprefix("holdfast."): row[1] for row in rows}


async def make_past(connection: asyncpg.Connection, days_ago: int) -> None:
    """Move all history into the past, and give its days their partitions there."""
    await connection.execute("SET session_replication_role = replica")
    await connection.execute(
        "UPDATE holdfast.history SET kept_until = now() - $1::interval", days_ago * DAY
    )
    await connection.execute("UPDATE holdfast.history_counts SET kept_day = $1", past(days_ago))
    await connection.execute("RESET session_replication_role")
    await connection.execute(ADD_DAY, past(days_ago), 1000, MEGABYTE)


def past(days_ago: int) -> date:
    return (datetime.now(UTC) - days_ago * DAY).date()


async def test_every_end_takes_the_job_out_of_the_live_ones(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    succeeded, failed, dead, running_one = await running(store, 4)
    alone = new_job(max_attempts=1)
    expiring, waiting = new_job(expires_in_seconds=0.001), new_job()
    await store.enqueue([alone])
    await store.claim(Claim("lonely", 1, 30.0, ["resize"], alone=True))
    await store.enqueue([expiring, waiting])
    await store.settle([ended(succeeded)])
    await store.settle([ended(failed, State.FAILED), ended(dead, State.DEAD)])
    await store.cancel([running_one.id, waiting.id])
    await store.reclaim(10)
    await store.reclaim(10, "lonely", "was killed")
    assert await connection.fetchval("SELECT count(*) FROM holdfast.jobs") == 0
    rows = await connection.fetch("SELECT id, state FROM holdfast.history")
    assert {row["id"]: row["state"] for row in rows} == {
        succeeded.id: "succeeded",
        failed.id: "failed",
        dead.id: "dead",
        running_one.id: "canceled",
        waiting.id: "canceled",
        expiring.id: "canceled",
        alone.id: "dead",
    }


async def test_each_day_to_come_has_its_partition_for_each_time_that_jobs_are_kept(
    store: PostgresStore, postgres_url: str, connection: asyncpg.Connection
) -> None:
    first = await today(connection)
    assert await days(connection) == [first + number * DAY for number in (7, 8, 9)]
    retention = Retention(7 * 86400.0, parse_rules("*:dead=30d, mail:*=1d"))
    async with opened(postgres_url, retention) as other:
        await other.tidy(10)
        expected = [first + number * DAY for number in (1, 2, 3, 7, 8, 9, 30, 31, 32)]
        assert await days(connection) == expected
        jobs = await running(other, 3)
        await other.settle([ended(jobs[0]), ended(jobs[1]), ended(jobs[2], State.DEAD)])
    assert await places(connection) == {
        f"history_{first + 7 * DAY:%Y%m%d}": 2,
        f"history_{first + 30 * DAY:%Y%m%d}": 1,
    }


async def test_a_day_that_is_past_is_dropped_with_its_counts(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    await store.settle([ended(job) for job in await running(store, 3)])
    await make_past(connection, days_ago=2)
    await store.settle([ended(job, State.DEAD) for job in await running(store, 2)])
    assert past(2) in await days(connection)
    assert sum(count.jobs for count in await store.counts()) == 5
    assert await store.tidy(10) == 0
    assert past(2) not in await days(connection)
    assert await store.counts() == [Count("default", State.DEAD, 2)]


async def test_a_day_that_was_dropped_twice_is_counted_right(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    """Two workers know of it; between them, something of that day came in once more."""
    drop = "SELECT holdfast.drop_history_day($1)"
    await store.settle([ended(job) for job in await running(store, 2)])
    await make_past(connection, 2)
    assert await connection.fetchval(drop, past(2)) is True
    await store.settle([ended(job) for job in await running(store, 3)])
    await connection.execute("SET session_replication_role = replica")
    await connection.execute(
        "UPDATE holdfast.history SET kept_until = now() - $1::interval", 2 * DAY
    )
    await connection.execute("UPDATE holdfast.history_counts SET kept_day = $1", past(2))
    await connection.execute("RESET session_replication_role")
    assert await connection.fetchval(drop, past(2)) is False
    assert await store.counts() == [Count("default", State.SUCCEEDED, 3)]
    await store.tidy(1000)
    assert await store.counts() == []
    assert await connection.fetchval("SELECT sum(jobs) FROM holdfast.history_counts") is None


async def test_what_ended_before_its_day_had_a_partition_moves_there(
    store: PostgresStore, postgres_url: str, connection: asyncpg.Connection
) -> None:
    retention = Retention(20 * 86400.0)
    day = f"history_{await today(connection) + 20 * DAY:%Y%m%d}"
    async with opened(postgres_url, retention) as other:
        await other.settle([ended(job) for job in await running(other, 3)])
        assert await places(connection) == {"history_rest": 3}
        await other.tidy(10)
        await other.settle([ended(job) for job in await running(other, 2)])
        assert await places(connection) == {day: 5}
        assert await other.counts() == [Count("default", State.SUCCEEDED, 5)]


async def test_no_day_is_made_while_reading_the_rest_would_take_long(
    store: PostgresStore, postgres_url: str, connection: asyncpg.Connection
) -> None:
    """Whoever writes to the rest or reads history would wait for it."""
    async with opened(postgres_url, Retention(20 * 86400.0)) as other:
        for _ in range(5):
            await other.settle([ended(job) for job in await running(other, 1000)])
    far = await today(connection) + 40 * DAY
    assert await connection.fetchval(ADD_DAY, far, 10, MEGABYTE // 10) is False
    assert await connection.fetchval(ADD_DAY, far, 10, MEGABYTE) is True
    assert await connection.fetchval(ADD_DAY, far, 10, 0) is True
    assert far in await days(connection)
    assert await places(connection) == {"history_rest": 5000}


async def tidy_for_ever(store: PostgresStore) -> None:
    while True:
        await store.tidy(10)


async def test_a_dump_stops_no_settlement_and_upkeep_drops_the_day_after_it(
    store: PostgresStore, postgres_url: str, connection: asyncpg.Connection
) -> None:
    await store.settle([ended(job) for job in await running(store, 3)])
    await make_past(connection, days_ago=2)
    jobs = await running(store, 200)
    dump = await asyncpg.connect(postgres_url)
    await dump.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await dump.execute("LOCK TABLE holdfast.history, holdfast.history_rest IN ACCESS SHARE MODE")
    async with opened(postgres_url, Retention(60 * 86400.0)) as other:
        tidying = asyncio.create_task(tidy_for_ever(other))
        # A try for a lock waits for a tenth of a second; the dump would take for ever.
        async with asyncio.timeout(WAIT_SECONDS):
            for job in jobs:
                assert await store.settle([ended(job)]) == []
        tidying.cancel()
        await asyncio.wait([tidying])
    assert past(2) in await days(connection)
    await dump.close()
    await store.tidy(10)
    assert past(2) not in await days(connection)


async def test_counts_are_folded_and_stay_the_same(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    for number in range(40):
        state = State.DEAD if number % 4 == 0 else State.SUCCEEDED
        [job] = await running(store, tenant="t" if number % 2 else DEFAULT_TENANT)
        await store.settle([ended(job, state)])
    size = "SELECT count(*) FROM holdfast.history_counts"
    assert await connection.fetchval(size) == 40
    before, of_tenant = await store.counts(), await store.counts("t")
    for _ in range(2):
        await store.tidy(10)
        assert await connection.fetchval(size) == 3
        assert (await store.counts(), await store.counts("t")) == (before, of_tenant)


@asynccontextmanager
async def allowed(connection: asyncpg.Connection, url: str) -> AsyncIterator[str]:
    """The address for a role that may do what the guide for workers says, as things are now."""
    role = f"worker_{url.rpartition('_')[2]}_{time_ns()}"
    await connection.execute(
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA holdfast TO {role};"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA holdfast TO {role};"
        f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO {role}"
    )
    try:
        yield url.replace("postgres@", f"{role}@")
    finally:
        await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_a_role_that_was_allowed_before_the_migration_works_after_it(
    postgres_url: str, connection: asyncpg.Connection
) -> None:
    await make_version_1(connection)
    async with allowed(connection, postgres_url) as url, opened(url) as worker:
        async with opened(postgres_url) as owner:
            await owner.migrate()
        await worker.settle([ended(job) for job in await running(worker, 2)])
        await end_in_place(connection, [new_job().id], [9])
        assert await worker.tidy(10) == 2
        assert await worker.counts() == [Count("default", State.SUCCEEDED, 2)]
        [rest] = await connection.fetch(
            "SELECT relacl FROM pg_class WHERE relname = 'history_rest'"
        )
        [jobs] = await connection.fetch("SELECT relacl FROM pg_class WHERE relname = 'jobs'")
        assert rest == jobs


async def test_a_role_that_was_allowed_before_the_migration_may_hold_queues_and_jobs(
    postgres_url: str, connection: asyncpg.Connection
) -> None:
    await make_version_1(connection)
    async with allowed(connection, postgres_url) as url, opened(url) as worker:
        async with opened(postgres_url) as owner:
            await owner.migrate()
        assert await worker.pause("default", "ann", None)
        assert await worker.resume("default")
        await worker.cap("default", 5)
        await worker.settle([ended(job) for job in await running(worker, 2)])
        await worker.enqueue([new_job(breaker="gateway")])
        await worker.strike([Strike("gateway", 1, 30.0, 0.001, "no answer")])
        assert (await worker.park(10)).moved == 1
        probes: list[Claimed] = []
        while not probes:
            probes += await worker.claim_probes(Claim("worker", 1, 30.0, ["resize"]))
        assert await worker.close_breaker("gateway")
        await worker.settle([ended(job) for job in probes])
        await worker.open_breaker("gateway", "ann", None)
        assert await worker.close_breaker("gateway", forget=True)
        await worker.tidy(10)
        assert [queue.running_max for queue in await worker.queues()] == [5]
        assert await worker.breakers() == []


async def test_a_role_that_may_not_make_tables_keeps_the_history(
    store: PostgresStore, postgres_url: str, connection: asyncpg.Connection
) -> None:
    await store.settle([ended(job) for job in await running(store, 3)])
    await make_past(connection, days_ago=2)
    first = await today(connection)
    async with (
        allowed(connection, postgres_url) as url,
        opened(url, Retention(50 * 86400.0)) as worker,
    ):
        await worker.tidy(10)
        await worker.settle([ended(job) for job in await running(worker, 2)])
        assert await worker.counts() == [Count("default", State.SUCCEEDED, 2)]
    assert first + 50 * DAY in await days(connection)
    assert past(2) not in await days(connection)


async def waits_for_a_lock(connection: asyncpg.Connection) -> bool:
    return bool(
        await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'holdfast' AND wait_event_type = 'Lock')"
        )
    )


async def settle_in_doubt(connection: asyncpg.Connection, job: Claimed) -> Any:
    """Settle in a transaction that is left open."""
    transaction = connection.transaction()
    await transaction.start()
    statement = SQL["settle_succeeded"]
    values = {"ids": [job.id], "fences": [job.fence], "results": ["1"], **retention_values(A_WEEK)}
    assert await connection.fetchval(statement.sql, *statement.arguments(values)) is None
    return transaction


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
async def test_where_a_job_stands_is_told_after_the_transaction_that_settles_it(
    store: PostgresStore, postgres_url: str, connection: asyncpg.Connection, commits: bool
) -> None:
    [job] = await running(store)
    assert await store.standing(job.id) == Standing(State.RUNNING, job.fence)
    transaction = await settle_in_doubt(connection, job)
    watching = await asyncpg.connect(postgres_url)
    asking = asyncio.create_task(store.standing(job.id))
    await wait_until(lambda: waits_for_a_lock(watching), "the question to wait")
    await watching.close()
    assert not asking.done()
    await (transaction.commit() if commits else transaction.rollback())
    fate = (State.SUCCEEDED, job.fence + 1) if commits else (State.RUNNING, job.fence)
    assert await asking == Standing(*fate)


async def test_an_id_of_a_job_that_ends_at_the_same_moment_is_refused(
    store: PostgresStore, postgres_url: str, connection: asyncpg.Connection
) -> None:
    [job] = await running(store)
    transaction = await settle_in_doubt(connection, job)
    watching = await asyncpg.connect(postgres_url)
    enqueueing = asyncio.create_task(store.enqueue([new_job(id=job.id, id_is_chosen=True)]))
    await wait_until(lambda: waits_for_a_lock(watching), "the new job to wait")
    await watching.close()
    await transaction.commit()
    with pytest.raises(DuplicateJob):
        await enqueueing
    assert await connection.fetchval("SELECT count(*) FROM holdfast.jobs") == 0


async def make_version_1(connection: asyncpg.Connection) -> None:
    first_step = steps("postgres")[0]
    await connection.execute(first_step.sql)
    await connection.execute(
        "INSERT INTO holdfast.schema_version (version, name) VALUES (1, $1)", first_step.name
    )


async def end_in_place(
    connection: asyncpg.Connection, ids: Sequence[UUID], days_ago: Sequence[int]
) -> None:
    """Leave jobs as a worker of version 1 ended them."""
    await connection.execute(
        "INSERT INTO holdfast.jobs ("
        "    id, name, queue, priority, arguments, max_attempts, state, finished_at)"
        " SELECT id, 'resize', 'default', 0, '{}', 5, 'succeeded', now() - days * interval '1 day'"
        " FROM unnest($1::uuid[], $2::integer[]) AS ended (id, days)",
        ids,
        days_ago,
    )


async def test_what_ended_before_the_migration_moves_to_its_day(
    postgres_url: str, connection: asyncpg.Connection
) -> None:
    await make_version_1(connection)
    ended_days_ago = [*range(6), *range(9, 15)]
    ids: list[UUID] = [new_job().id for _ in ended_days_ago]
    await end_in_place(connection, ids, ended_days_ago)
    async with opened(postgres_url) as store:
        await store.migrate()
        assert await store.counts() == [Count("default", State.SUCCEEDED, 12)]
        while await store.tidy(5) == 5:
            pass
        assert await store.counts() == [Count("default", State.SUCCEEDED, 6)]
        assert [job_id for job_id in ids if await store.get(job_id)] == ids[:6]
    assert "history_rest" not in await places(connection)
    assert await connection.fetchval("SELECT count(*) FROM holdfast.jobs") == 0


async def test_what_ended_in_place_long_ago_finds_its_day_or_waits_for_it(
    store: PostgresStore, postgres_url: str, connection: asyncpg.Connection
) -> None:
    await end_in_place(connection, [new_job().id for _ in range(3)], [1, 80, 81])
    reading = await asyncpg.connect(postgres_url)
    await reading.execute("BEGIN; LOCK TABLE holdfast.history_rest IN ACCESS SHARE MODE")
    async with opened(postgres_url, Retention(90 * 86400.0)) as other:
        assert await other.tidy(10) == 0
        assert await places(connection) == {}
        await reading.close()
        assert await other.tidy(10) == 3
    first = await today(connection)
    assert await places(connection) == {
        f"history_{first + number * DAY:%Y%m%d}": 1 for number in (9, 10, 89)
    }


async def test_what_ended_in_place_and_may_not_move_keeps_nothing_else_from_it(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    ids = [new_job().id for _ in range(6)]
    await end_in_place(connection, ids, range(6))
    await connection.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE EXCEPTION 'not this one'; END$$;"
        "CREATE TRIGGER refused BEFORE INSERT ON holdfast.history FOR EACH ROW"
        f" WHEN (new.id IN ('{ids[0]}', '{ids[2]}')) EXECUTE FUNCTION refuse()"
    )
    assert [await store.tidy(3) for _ in range(4)] == [3, 3, 3, 3]
    with pytest.raises(StoreRefused, match="not this one"):
        await store.tidy(3)
    left = await connection.fetch("SELECT id FROM holdfast.jobs ORDER BY id")
    assert [row["id"] for row in left] == [ids[0], ids[2]]
    # Upkeep has not stopped at them, either.
    await connection.execute(
        "INSERT INTO holdfast.idempotency_keys (tenant, key, body_hash, job_id, expires_at)"
        " SELECT '', number::text, '', $1, now() FROM generate_series(1, 7) AS number",
        ids[0],
    )
    assert [await store.tidy(3) for _ in range(2)] == [3, 3]
    with pytest.raises(StoreRefused, match="not this one"):
        await store.tidy(3)
    assert await connection.fetchval("SELECT count(*) FROM holdfast.idempotency_keys") == 0
