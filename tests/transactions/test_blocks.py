"""The transaction of a block is the block's own, from its first line to its last, or it is told."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from typing import Any, NamedTuple

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from holdfast import BadArguments, Holdfast, State
from holdfast.transactions.drivers import run_now
from tests.support import django_settings
from tests.support.completing import LEASE_SECONDS, Stage, driver_url, staged, table
from tests.support.running import QUICK, execute, see_one_moment_by_default

EXECUTED = "INSERT INTO {} VALUES ('{}')"


@asynccontextmanager
async def own(url: str) -> AsyncIterator[None]:
    yield None


@asynccontextmanager
async def of_asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def of_psycopg_async(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def of_sqlalchemy_async(url: str) -> AsyncIterator[Any]:
    driver = "aiosqlite" if url.startswith("sqlite") else "asyncpg"
    engine = create_async_engine(driver_url(url, driver), poolclass=NullPool)
    async with AsyncSession(engine) as session:
        yield session


@contextmanager
def own_sync(url: str) -> Iterator[None]:
    yield None


@contextmanager
def of_psycopg(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection


@contextmanager
def of_psycopg_in_autocommit(url: str) -> Iterator[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@contextmanager
def of_psycopg2(url: str) -> Iterator[Any]:
    with closing(psycopg2.connect(url)) as connection:
        yield connection


@contextmanager
def of_sqlalchemy(url: str) -> Iterator[Any]:
    driver = "pysqlite" if url.startswith("sqlite") else "psycopg"
    engine = sqlalchemy.create_engine(driver_url(url, driver), poolclass=NullPool)
    with engine.connect() as connection:
        yield connection


@contextmanager
def of_sqlalchemy_session(url: str) -> Iterator[Any]:
    driver = "pysqlite" if url.startswith("sqlite") else "psycopg2"
    engine = sqlalchemy.create_engine(driver_url(url, driver), poolclass=NullPool)
    with Session(engine) as session:
        yield session


@contextmanager
def of_sqlite3(url: str) -> Iterator[Any]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        yield connection


def in_words(connection: Any, sql: str) -> Any:
    return connection.execute(sql)


def in_text(connection: Any, sql: str) -> Any:
    return connection.execute(sqlalchemy.text(sql))


def by_cursor(connection: Any, sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


class Kind(NamedTuple):
    """A kind of connection: how it is opened, what runs a statement, and what is in it to end a
    transaction."""

    opened: Callable[[str], Any]
    execute: Callable[[Any, str], Any]
    is_sync: bool
    # Does the block begin the transaction with an isolation level of its own?
    chooses_level: bool = False


ALIKE = {
    "own": Kind(own, in_words, False, chooses_level=True),
    "own_in_a_thread": Kind(own_sync, in_words, True, chooses_level=True),
    "sqlalchemy_async_session": Kind(of_sqlalchemy_async, in_text, False),
    "sqlalchemy": Kind(of_sqlalchemy, in_text, True),
    "sqlalchemy_session": Kind(of_sqlalchemy_session, in_text, True),
    "django": Kind(django_settings.database, by_cursor, True),
}
POSTGRES = ALIKE | {
    "asyncpg": Kind(of_asyncpg, in_words, False, chooses_level=True),
    "psycopg_async": Kind(of_psycopg_async, in_words, False),
    "psycopg": Kind(of_psycopg, in_words, True),
    "psycopg_in_autocommit": Kind(of_psycopg_in_autocommit, in_words, True),
    "psycopg2": Kind(of_psycopg2, by_cursor, True),
}
SQLITE = ALIKE | {"sqlite3": Kind(of_sqlite3, in_words, True)}
ALL = [
    *[pytest.param("pg15", kind, id=f"{name}_on_pg15") for name, kind in POSTGRES.items()],
    *[pytest.param("sqlite", kind, id=f"{name}_on_sqlite") for name, kind in SQLITE.items()],
]
every_kind = pytest.mark.parametrize(("store_url", "kind"), ALL, indirect=["store_url"])
on_postgres = pytest.mark.parametrize(
    ("store_url", "kind"), ALL[: len(POSTGRES)], indirect=["store_url"]
)


@pytest.fixture
async def stage(store_url: str) -> AsyncIterator[Stage]:
    async with staged(store_url) as stage:
        yield stage


class Blocks:
    """Blocks of one job on one kind of connection, each with statements inside."""

    def __init__(self, stage: Stage, kind: Kind) -> None:
        self._stage = stage
        self._kind = kind
        self._loop = asyncio.get_running_loop()

    async def run(self, *blocks: tuple[Any, ...], refused: str | None = None) -> None:
        """Run the blocks one after the other on one connection; all but the last are refused, or
        the only one. What can be called in place of a statement is called."""
        if self._kind.is_sync:
            await asyncio.to_thread(self._run_sync, blocks, refused)
            return
        async with self._kind.opened(self._stage.url) as connection:
            for place, steps in enumerate(blocks, 1):
                work = self._block(connection, steps)
                await self._judge(work, refused if place < len(blocks) or place == 1 else None)

    async def _judge(self, work: Awaitable[None], refused: str | None) -> None:
        if refused is None:
            await work
        else:
            with pytest.raises(BadArguments, match=refused):
                await work

    async def _block(self, connection: Any, steps: Any) -> None:
        async with self._stage.ctx.completing(connection) as given:
            for step in steps:
                await (step() if callable(step) else self._kind.execute(given, step))

    def _run_sync(self, blocks: Any, refused: str | None) -> None:
        with self._kind.opened(self._stage.url) as connection:
            for place, steps in enumerate(blocks, 1):
                work = self._judge(
                    self._block_sync(connection, steps),
                    refused if place < len(blocks) or place == 1 else None,
                )
                run_now(work)

    async def _block_sync(self, connection: Any, steps: Any) -> None:
        with self._stage.ctx.completing_sync(connection) as given:
            for step in steps:
                if callable(step):
                    asyncio.run_coroutine_threadsafe(step(), self._loop).result()
                else:
                    self._kind.execute(given, step)


def pays(stage: Stage, what: str) -> str:
    return EXECUTED.format(table(stage.url), what)


@every_kind
@pytest.mark.parametrize("ending", [("COMMIT",), ("ROLLBACK",), ("COMMIT", "BEGIN")], ids="_".join)
async def test_a_transaction_that_is_ended_inside_of_its_block_is_told(
    stage: Stage, kind: Kind, ending: tuple[str, ...]
) -> None:
    """And the job has not ended; the connection can be used again."""
    broken = (pays(stage, "before"), *ending, pays(stage, "after"))
    await Blocks(stage, kind).run(broken, (pays(stage, "again"),), refused="inside the block ended")
    ended = await stage.now()
    assert (ended.state, ended.fence) == (State.SUCCEEDED, stage.job.fence + 1)
    paid = await stage.payments()
    assert "again" in paid
    assert ("before" in paid) is (ending[0] == "COMMIT")


@every_kind
async def test_savepoints_inside_of_a_block_are_fine(stage: Stage, kind: Kind) -> None:
    undone = ("SAVEPOINT part", pays(stage, "undone"), "ROLLBACK TO SAVEPOINT part")
    await Blocks(stage, kind).run((pays(stage, "before"), *undone, pays(stage, "after")))
    assert (await stage.now()).state is State.SUCCEEDED
    assert sorted(await stage.payments()) == ["after", "before"]


@on_postgres
async def test_a_lease_that_is_renewed_inside_of_a_block_is_no_conflict(
    stage: Stage, kind: Kind
) -> None:
    """In a database of which each transaction sees one moment, unless it says otherwise."""
    await see_one_moment_by_default(stage.url)

    async def renew() -> None:
        assert await stage.store.renew([stage.job.lease], LEASE_SECONDS) == []

    block = (pays(stage, "before"), renew, pays(stage, "after"))
    if kind.chooses_level:
        await Blocks(stage, kind).run(block)
        assert (await stage.now()).state is State.SUCCEEDED
        assert await stage.payments() == ["before", "after"]
    else:
        await Blocks(stage, kind).run(block, refused=r"REPEATABLE READ.*(?i:read.committed)")
        assert (await stage.now()).state is State.RUNNING
        assert await stage.payments() == []


@pytest.mark.parametrize("store_url", ["pg15", "bouncer"], indirect=True)
async def test_the_default_isolation_of_a_database_is_not_that_of_a_block(store_url: str) -> None:
    await see_one_moment_by_default(store_url)
    async with Holdfast(store_url, **QUICK) as hf, hf.transaction() as connection:
        assert await connection.fetchval("SHOW transaction_isolation") == "read committed"


@pytest.mark.parametrize("ending", [("COMMIT",), ("ROLLBACK",), ("COMMIT", "BEGIN")], ids="_".join)
@pytest.mark.parametrize("store_url", ["pg15", "sqlite"], indirect=True)
async def test_a_transaction_of_an_application_that_is_ended_inside_is_told(
    store_url: str, ending: tuple[str, ...]
) -> None:
    async with Holdfast(store_url, **QUICK) as hf:
        await hf.jobs.counts()
        await execute(store_url, f"CREATE TABLE {table(store_url)} (job text PRIMARY KEY)")

        async def end() -> None:
            async with hf.transaction() as connection:
                for statement in ending:
                    await connection.execute(statement)

        with pytest.raises(BadArguments, match="inside the block ended"):
            await end()
        async with hf.transaction() as connection:
            await connection.execute("INSERT INTO payments VALUES ('again')")
        async with hf.transaction(read_only=True) as connection:
            assert await connection.fetchval("SELECT count(*) FROM payments") == 1
