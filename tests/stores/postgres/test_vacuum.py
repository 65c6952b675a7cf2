"""Many dead rows are vacuumed soon, by whoever may, and rarely if that is of no use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from holdfast import Context, Holdfast
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.vacuum import BETWEEN_SECONDS, DEAD_MIN, REST_SECONDS, Counted, Pace
from tests.support.processes import wait_until
from tests.support.roles import installed_roles
from tests.support.running import QUICK, working
from tests.support.seams import HandSeam

NOW = 1_800_000_000.0
DIE = f"""
INSERT INTO holdfast.jobs (id, name, queue, priority, arguments, max_attempts)
SELECT gen_random_uuid(), 'resize', 'images', 0, '{{}}', 5 FROM generate_series(1, {DEAD_MIN});
DELETE FROM holdfast.jobs
"""
COUNTED = """
SELECT pg_stat_get_dead_tuples(oid) AS dead, pg_stat_get_vacuum_count(oid) AS vacuums
FROM pg_class WHERE oid = 'holdfast.jobs'::regclass
"""


class Table:
    """A table whose rows die and are vacuumed, as the server counts it."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.counted = Counted(
            dead=0, live=0, changes=0, vacuumed_at=NOW - REST_SECONDS, server_time=NOW
        )

    def die(self, rows: int) -> None:
        counted = self.counted
        self.counted = counted._replace(dead=counted.dead + rows, changes=counted.changes + rows)

    def vacuum(self, *, left: int = 0) -> None:
        self.counted = self.counted._replace(dead=left, vacuumed_at=self.counted.server_time)

    def is_due_after(self, seconds: float) -> bool:
        self.counted = self.counted._replace(server_time=self.counted.server_time + seconds)
        return self.pace.is_due(self.counted)


@pytest.fixture
def table() -> Table:
    return Table()


def test_few_dead_rows_are_left_to_autovacuum(table: Table) -> None:
    table.die(DEAD_MIN - 1)
    assert not table.is_due_after(10)
    table.die(1)
    assert table.is_due_after(10)


def test_a_large_table_is_not_vacuumed_for_a_small_part_of_it(table: Table) -> None:
    table.counted = table.counted._replace(live=100 * DEAD_MIN)
    table.die(2 * DEAD_MIN)
    assert not table.is_due_after(10)


def test_a_table_that_was_just_vacuumed_is_not_vacuumed_again(table: Table) -> None:
    table.die(DEAD_MIN)
    assert table.is_due_after(10)
    table.vacuum()
    table.die(2 * DEAD_MIN)
    assert not table.is_due_after(BETWEEN_SECONDS / 2)
    assert table.is_due_after(BETWEEN_SECONDS / 2)


def test_a_vacuum_by_anybody_that_cleared_little_is_not_repeated_soon(table: Table) -> None:
    table.die(10 * DEAD_MIN)
    assert table.is_due_after(10)
    table.vacuum(left=9 * DEAD_MIN)
    table.die(DEAD_MIN)
    assert not table.is_due_after(10)
    assert not table.is_due_after(REST_SECONDS - 1)
    assert table.is_due_after(1)


def test_rows_that_die_during_a_vacuum_do_not_make_it_look_useless(table: Table) -> None:
    table.die(10 * DEAD_MIN)
    assert table.is_due_after(10)
    table.vacuum()
    table.die(30 * DEAD_MIN)
    assert table.is_due_after(10)


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, HandSeam())
    await store.migrate()
    yield store
    await store.close()


async def counted_dead(connection: asyncpg.Connection) -> None:
    """Wait until the server has counted them: it takes a moment."""

    async def counted() -> bool:
        return bool((await connection.fetchrow(COUNTED))["dead"] >= DEAD_MIN)

    await wait_until(counted, "the server's count of dead rows")


@pytest.mark.both_postgres
async def test_a_store_vacuums_many_dead_rows(store: PostgresStore, postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("ALTER TABLE holdfast.jobs SET (autovacuum_enabled = off)")
    await store.vacuum()
    assert (await connection.fetchrow(COUNTED))["vacuums"] == 0
    await connection.execute(DIE)
    await counted_dead(connection)
    await store.vacuum()
    assert tuple(await connection.fetchrow(COUNTED)) == (0, 1)
    await connection.close()


async def test_a_vacuum_that_an_old_transaction_makes_useless_is_not_repeated(
    store: PostgresStore, postgres_url: str
) -> None:
    connection, old = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    await connection.execute("ALTER TABLE holdfast.jobs SET (autovacuum_enabled = off)")
    await old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await old.fetch("SELECT FROM holdfast.attempts")
    await connection.execute(DIE)
    await counted_dead(connection)
    await store.vacuum()
    await store.vacuum()
    counted = await connection.fetchrow(COUNTED)
    assert counted["vacuums"] == 1
    assert counted["dead"] >= DEAD_MIN
    await old.close()
    await connection.close()


@pytest.mark.both_postgres
@pytest.mark.parametrize("role", ["worker", "delivery"])
async def test_the_roles_that_end_jobs_vacuum_where_the_server_can_allow_it(
    postgres_url: str, role: str
) -> None:
    async with installed_roles(postgres_url) as roles:
        store = PostgresStore(roles.url(role), HandSeam())
        connection = await asyncpg.connect(postgres_url)
        await connection.execute("ALTER TABLE holdfast.jobs SET (autovacuum_enabled = off)")
        await connection.execute(DIE)
        await counted_dead(connection)
        await store.vacuum()
        vacuums = (await connection.fetchrow(COUNTED))["vacuums"]
        assert vacuums == (connection.get_server_version().major >= 17)
        await store.close()
        await connection.close()


@pytest.mark.both_postgres
@pytest.mark.parametrize("case", ["without the right", "behind a pooler"])
async def test_a_store_that_may_not_vacuum_leaves_it_to_autovacuum(
    postgres_url: str, case: str
) -> None:
    async with installed_roles(postgres_url) as roles:
        pooled = f"{roles.admin_url}?statement_cache_size=0"
        store = PostgresStore(
            roles.url("operator") if case == "without the right" else pooled, HandSeam()
        )
        connection = await asyncpg.connect(postgres_url)
        await connection.execute("ALTER TABLE holdfast.jobs SET (autovacuum_enabled = off)")
        await connection.execute(DIE)
        await counted_dead(connection)
        await store.vacuum()
        assert (await connection.fetchrow(COUNTED))["vacuums"] == 0
        await store.close()
        await connection.close()


async def test_a_worker_vacuums(postgres_url: str) -> None:
    app = Holdfast(postgres_url, **QUICK)

    @app.job
    async def resize(ctx: Context) -> None: ...

    await app.migrate()
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("ALTER TABLE holdfast.jobs SET (autovacuum_enabled = off)")
    await connection.execute(DIE)

    async def vacuumed() -> bool:
        return bool((await connection.fetchrow(COUNTED))["vacuums"])

    async with working(app):
        await wait_until(vacuumed, "a vacuum")
    await app.close()
    await connection.close()
