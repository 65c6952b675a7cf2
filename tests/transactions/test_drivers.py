"""Enqueueing inside a transaction of the caller's, with every driver that is known."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import pytest
import sqlalchemy
from django.db import transaction as django_transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from holdfast import (
    BadArguments,
    DuplicateJob,
    Holdfast,
    IdempotencyConflict,
    Job,
    SchemaMismatch,
    State,
)
from tests.support import django_settings
from tests.support.pooling import needs_a_session
from tests.support.postgres import Databases
from tests.support.processes import WAIT_SECONDS, wait_until
from tests.support.running import QUICK

POSTGRES = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)


class Undone(Exception):
    """Ends a transaction with a rollback."""


def driver_url(url: str, driver: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}+{driver}://{rest}"


@asynccontextmanager
async def asyncpg_connection(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pool(url: str) -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def psycopg_async(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def sqlalchemy_async(url: str, driver: str) -> AsyncIterator[Any]:
    engine = create_async_engine(driver_url(url, driver), poolclass=NullPool)
    async with engine.begin() as connection:
        yield connection


@asynccontextmanager
async def sqlalchemy_async_session(url: str, driver: str) -> AsyncIterator[Any]:
    engine = create_async_engine(driver_url(url, driver), poolclass=NullPool)
    async with AsyncSession(engine) as session:
        yield session
        await session.commit()


@contextmanager
def psycopg_sync(url: str) -> Iterator[Any]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        yield connection


@contextmanager
def psycopg2_sync(url: str) -> Iterator[Any]:
    factory = psycopg2.extras.RealDictCursor
    with closing(psycopg2.connect(url, cursor_factory=factory)) as connection, connection:
        yield connection


@contextmanager
def sqlite_sync(url: str) -> Iterator[Any]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        connection.row_factory = sqlite3.Row
        yield connection


@contextmanager
def sqlalchemy_sync(url: str, driver: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(driver_url(url, driver), poolclass=NullPool)
    with engine.connect() as connection:
        yield connection
        connection.commit()


@contextmanager
def sqlalchemy_session(url: str, driver: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(driver_url(url, driver), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield session


@contextmanager
def sqlalchemy_scoped(url: str, driver: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(driver_url(url, driver), poolclass=NullPool)
    session = scoped_session(sessionmaker(engine))
    try:
        yield session
        session.commit()
    finally:
        session.remove()


@contextmanager
def django(url: str) -> Iterator[Any]:
    with django_settings.database(url) as connection, django_transaction.atomic("jobs"):
        yield connection


ASYNC_POSTGRES: dict[str, Callable[[str], Any]] = {
    "asyncpg": asyncpg_connection,
    "asyncpg pool": asyncpg_pool,
    "psycopg async": psycopg_async,
    "sqlalchemy asyncpg": lambda url: sqlalchemy_async(url, "asyncpg"),
    "sqlalchemy psycopg async": lambda url: sqlalchemy_async(url, "psycopg"),
    "sqlalchemy asyncpg session": lambda url: sqlalchemy_async_session(url, "asyncpg"),
}
ASYNC_SQLITE: dict[str, Callable[[str], Any]] = {
    "sqlalchemy aiosqlite": lambda url: sqlalchemy_async(url, "aiosqlite"),
    "sqlalchemy aiosqlite session": lambda url: sqlalchemy_async_session(url, "aiosqlite"),
}
SYNC_POSTGRES: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    "psycopg": psycopg_sync,
    "psycopg2": psycopg2_sync,
    "sqlalchemy psycopg": lambda url: sqlalchemy_sync(url, "psycopg"),
    "sqlalchemy psycopg2 session": lambda url: sqlalchemy_session(url, "psycopg2"),
    "sqlalchemy scoped session": lambda url: sqlalchemy_scoped(url, "psycopg"),
    "django": django,
}
SYNC_SQLITE: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    "sqlite3": sqlite_sync,
    "sqlalchemy pysqlite": lambda url: sqlalchemy_sync(url, "pysqlite"),
    "sqlalchemy pysqlite session": lambda url: sqlalchemy_session(url, "pysqlite"),
    "django": django,
}
EVERYTHING = [
    *[("pg15", name, opened, False) for name, opened in ASYNC_POSTGRES.items()],
    *[("sqlite", name, opened, False) for name, opened in ASYNC_SQLITE.items()],
    *[("pg15", name, opened, True) for name, opened in SYNC_POSTGRES.items()],
    *[("sqlite", name, opened, True) for name, opened in SYNC_SQLITE.items()],
]


class Client:
    """Enqueues in a transaction of one kind of connection; in a thread where that blocks."""

    def __init__(self, hf: Holdfast, url: str, opened: Callable[[str], Any], is_sync: bool) -> None:
        self.hf = hf
        self._url = url
        self._opened = opened
        self._is_sync = is_sync

        @hf.job
        async def resize(image: str, width: int = 800) -> None: ...

        self.resize = resize

    async def transact(self, *steps: Callable[[Any], Any]) -> list[Any]:
        """Run the steps in one transaction; each gets the connection and may give an awaitable."""
        if self._is_sync:
            return await asyncio.to_thread(self._transact_sync, steps)
        async with self._opened(self._url) as connection:
            return [await step(connection) for step in steps]

    def _transact_sync(self, steps: Any) -> list[Any]:
        with self._opened(self._url) as connection:
            return [step(connection) for step in steps]

    def enqueue(self, image: str, **options: Any) -> Callable[[Any], Any]:
        function = self.resize.options(**options)

        def step(connection: Any) -> Any:
            enqueue = function.options(connection=connection)
            return enqueue.enqueue_sync(image) if self._is_sync else enqueue.enqueue(image)

        return step

    def enqueue_many(self, *images: str) -> Callable[[Any], Any]:
        calls = [self.resize.call(image) for image in images]
        many = self.hf.enqueue_many_sync if self._is_sync else self.hf.enqueue_many
        return lambda connection: many(calls, connection=connection)

    def refused(self, step: Callable[[Any], Any], error: type[Exception]) -> Callable[[Any], Any]:
        """A step that must fail, after which the transaction goes on."""
        if self._is_sync:

            def expect(connection: Any) -> None:
                with pytest.raises(error):
                    step(connection)

            return expect

        async def expect_async(connection: Any) -> None:
            with pytest.raises(error):
                await step(connection)

        return expect_async

    def fail(self, connection: Any) -> Any:
        raise Undone

    async def ids(self) -> set[UUID]:
        return {job.id for job in (await self.hf.jobs.list()).jobs}


Jobs = tuple[Holdfast, str, Any]


@pytest.fixture
def sqlite_jobs(tmp_path: Path) -> Iterator[Jobs]:
    yield from jobs_of(f"sqlite:///{tmp_path / 'jobs.db'}")


@pytest.fixture
def postgres_jobs(
    postgres_databases: Callable[[str], Databases], migrated_template: Callable[[str], str]
) -> Iterator[Jobs]:
    databases = postgres_databases("pg15")
    name = databases.create(migrated_template("pg15"))
    yield from jobs_of(databases.url(name))
    databases.drop(name)


def jobs_of(url: str) -> Iterator[Jobs]:
    """A migrated database, and a job on it, for tests without an event loop."""
    hf = Holdfast(url, **QUICK)
    asyncio.run(hf.migrate())
    yield hf, url, hf.job(lambda image: None)
    hf.close_sync()


every_kind = pytest.mark.parametrize(
    ("store_url", "kind"),
    [(store, (opened, is_sync)) for store, _, opened, is_sync in EVERYTHING],
    indirect=["store_url"],
    ids=[f"{name} on {store}" for store, name, _, _ in EVERYTHING],
)


@pytest.fixture
async def client(store_url: str, kind: tuple[Any, bool]) -> AsyncIterator[Client]:
    async with Holdfast(store_url, **QUICK) as hf:
        yield Client(hf, store_url, *kind)


@every_kind
async def test_a_job_is_committed_with_the_transaction_that_enqueued_it(client: Client) -> None:
    many: list[Job]
    job, many = await client.transact(
        client.enqueue("a.png", priority=3, tags=["x", 'y"z'], tenant="t", delay_seconds=60),
        client.enqueue_many("b.png", "c.png"),
    )
    assert await client.ids() == {job.id, *(each.id for each in many)}
    found = await client.hf.get(job.id)
    assert (found.state, found.arguments) == (State.QUEUED, {"image": "a.png"})
    assert (found.priority, found.tags, found.tenant) == (3, ("x", 'y"z'), "t")
    assert (found.run_at - found.created_at).total_seconds() == pytest.approx(60, abs=1)
    report = await client.hf.run_due()
    assert report.succeeded == 2


@every_kind
async def test_a_job_vanishes_with_a_transaction_that_is_rolled_back(client: Client) -> None:
    with pytest.raises(Undone):
        await client.transact(client.enqueue("a.png", idempotency_key="k"), client.fail)
    assert await client.ids() == set()
    again = await client.resize.options(idempotency_key="k").enqueue("b.png")
    assert await client.ids() == {again.id}


@every_kind
async def test_a_key_gives_the_same_job_twice_before_and_after_the_commit(client: Client) -> None:
    step = client.enqueue("a.png", idempotency_key="k", tags=["x"])
    first, second = await client.transact(step, step)
    assert first.id == second.id
    assert (second.arguments, second.tags, second.idempotency_key) == (
        {"image": "a.png"},
        ("x",),
        "k",
    )
    (third,) = await client.transact(step)
    assert third == await client.hf.get(first.id)


@every_kind
async def test_a_refused_enqueue_leaves_nothing_and_the_transaction_goes_on(client: Client) -> None:
    held = await client.resize.options(idempotency_key="k").enqueue("a.png")
    ended = await client.resize.options(id=uuid4()).enqueue("z.png")
    await client.hf.jobs.cancel(ended.id)
    *_, job = await client.transact(
        client.refused(client.enqueue("b.png", idempotency_key="k"), IdempotencyConflict),
        client.refused(client.enqueue("b.png", id=held.id, idempotency_key="l"), DuplicateJob),
        client.refused(client.enqueue("b.png", id=ended.id), DuplicateJob),
        client.enqueue("c.png", idempotency_key="l"),
    )
    assert await client.ids() == {held.id, ended.id, job.id}


@POSTGRES
async def test_autocommit_without_a_transaction_is_refused_on_postgresql(store_url: str) -> None:
    async with Holdfast(store_url, **QUICK) as hf:
        resize = hf.job(lambda image: None)
        connection = await asyncpg.connect(store_url)
        with pytest.raises(BadArguments, match=r"autocommit.*connection\.transaction\(\)"):
            await resize.options(connection=connection).enqueue("a.png")
        await connection.close()
        async with await psycopg.AsyncConnection.connect(store_url, autocommit=True) as lazy:
            with pytest.raises(BadArguments, match="autocommit"):
                await resize.options(connection=lazy).enqueue("a.png")
            async with lazy.transaction():
                await resize.options(connection=lazy).enqueue("b.png")
        engine = create_async_engine(driver_url(store_url, "asyncpg"), poolclass=NullPool)
        async with engine.connect() as plain:
            await plain.execution_options(isolation_level="AUTOCOMMIT")
            with pytest.raises(BadArguments, match="AUTOCOMMIT"):
                await resize.options(connection=plain).enqueue("a.png")
        assert len((await hf.jobs.list()).jobs) == 1


def test_sync_connections_in_autocommit_are_refused_on_postgresql(postgres_jobs: Jobs) -> None:
    _, url, resize = postgres_jobs
    with (
        psycopg.connect(url, autocommit=True) as connection,
        pytest.raises(BadArguments, match="autocommit"),
    ):
        resize.options(connection=connection).enqueue_sync("a.png")
    with closing(psycopg2.connect(url)) as old:
        old.autocommit = True
        with pytest.raises(BadArguments, match="autocommit"):
            resize.options(connection=old).enqueue_sync("a.png")
    for driver in ("psycopg", "psycopg2"):
        engine = sqlalchemy.create_engine(driver_url(url, driver), isolation_level="AUTOCOMMIT")
        with engine.connect() as plain, pytest.raises(BadArguments, match="AUTOCOMMIT"):
            resize.options(connection=plain).enqueue_sync("a.png")
        engine.dispose()
    with django_settings.database(url) as outside, pytest.raises(BadArguments, match="atomic"):
        resize.options(connection=outside).enqueue_sync("a.png")


async def test_a_pipeline_in_which_answers_come_late_is_refused(postgres_jobs: Jobs) -> None:
    _, url, resize = postgres_jobs
    with psycopg.connect(url) as connection:
        with connection.pipeline(), pytest.raises(BadArguments, match="pipeline mode"):
            resize.options(connection=connection).enqueue_sync("a.png")
        resize.options(connection=connection).enqueue_sync("b.png")
    async with await psycopg.AsyncConnection.connect(url) as late:
        async with late.pipeline():
            with pytest.raises(BadArguments, match="pipeline mode"):
                await resize.options(connection=late).enqueue("a.png")
        await resize.options(connection=late).enqueue("b.png")


def test_the_lock_of_a_file_is_taken_before_anything_is_read(sqlite_jobs: Jobs) -> None:
    """SQLite does not wait for a lock that is asked for after a read."""
    _, url, resize = sqlite_jobs
    statements: list[str] = []
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        connection.set_trace_callback(statements.append)
        resize.options(connection=connection, idempotency_key="k").enqueue_sync("a.png")
    first, *others = [each for each in statements if not each.startswith("PRAGMA")]
    assert first == "BEGIN IMMEDIATE"
    assert others


def test_sync_connections_in_autocommit_are_refused_on_sqlite(sqlite_jobs: Jobs) -> None:
    hf, url, resize = sqlite_jobs
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        with pytest.raises(BadArguments, match="BEGIN"):
            resize.options(connection=connection).enqueue_sync("a.png")
        connection.execute("BEGIN")
        resize.options(connection=connection).enqueue_sync("b.png")
        connection.execute("ROLLBACK")
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as plain, pytest.raises(BadArguments, match="AUTOCOMMIT"):
        resize.options(connection=plain).enqueue_sync("a.png")
    engine.dispose()
    with django_settings.database(url) as outside, pytest.raises(BadArguments, match="atomic"):
        resize.options(connection=outside).enqueue_sync("a.png")
    assert hf.enqueue_many_sync([], connection=connection) == []


def test_a_session_that_begins_by_hand_before_each_transaction_is_accepted(
    sqlite_jobs: Jobs,
) -> None:
    """The way to savepoints that SQLAlchemy recommends for SQLite: the driver begins nothing."""
    _, url, resize = sqlite_jobs
    engine = sqlalchemy.create_engine(url, poolclass=NullPool)

    @sqlalchemy.event.listens_for(engine, "connect")
    def leave_to_us(connection: Any, record: object) -> None:
        connection.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    with Session(engine) as session:
        resize.options(connection=session).enqueue_sync("a.png")
        session.rollback()
        job = resize.options(connection=session).enqueue_sync("b.png")
        session.commit()
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        assert file.execute("SELECT id FROM jobs").fetchall() == [(str(job.id),)]


@POSTGRES
async def test_a_connection_of_the_wrong_color_is_told_where_to_go(
    store_url: str, tmp_path: Path
) -> None:
    async with Holdfast(store_url, **QUICK) as hf:
        resize = hf.job(lambda image: None)
        with (
            closing(sqlite3.connect(tmp_path / "x.db")) as blocking,
            pytest.raises(BadArguments, match=r"Connection of sqlite3 .* use enqueue_sync"),
        ):
            await resize.options(connection=blocking).enqueue("a.png")
        async with asyncpg_connection(store_url) as connection:
            with pytest.raises(BadArguments, match=r"is async: use await enqueue\(\.\.\.\)"):
                resize.options(connection=connection).enqueue_sync("a.png")


def test_what_is_no_connection_is_told_what_is_one(sqlite_jobs: Jobs) -> None:
    _, _, resize = sqlite_jobs
    with pytest.raises(
        BadArguments, match=r"builtins\.str is not a supported connection.* asyncpg, psycopg"
    ):
        resize.options(connection="sqlite:///x.db").enqueue_sync("a.png")
    with pytest.raises(BadArguments, match=r"hf\.enqueue_many\(calls, connection=\.\.\.\)"):
        resize.options(connection=object()).call("a.png")


def test_another_file_than_the_jobs_is_refused(sqlite_jobs: Jobs, tmp_path: Path) -> None:
    _, url, resize = sqlite_jobs
    path = Path(url.removeprefix("sqlite:///"))
    for other in (str(tmp_path / "other.db"), ":memory:"):
        with (
            closing(sqlite3.connect(other)) as connection,
            pytest.raises(BadArguments, match=path.name),
        ):
            resize.options(connection=connection).enqueue_sync("a.png")
    alias = tmp_path / "alias.db"
    alias.symlink_to(path)
    with closing(sqlite3.connect(alias)) as same, same:
        assert resize.options(connection=same).enqueue_sync("a.png").state is State.QUEUED


async def test_another_kind_of_database_is_refused(sqlite_jobs: Jobs, postgres_jobs: Jobs) -> None:
    _, sqlite_url, on_sqlite = sqlite_jobs
    _, postgres_url, on_postgres = postgres_jobs
    with (
        psycopg_sync(postgres_url) as connection,
        pytest.raises(BadArguments, match="is to PostgreSQL, but the jobs are in the SQLite"),
    ):
        on_sqlite.options(connection=connection).enqueue_sync("a.png")
    with (
        sqlite_sync(sqlite_url) as file,
        pytest.raises(BadArguments, match="is to SQLite, but the jobs are in PostgreSQL"),
    ):
        on_postgres.options(connection=file).enqueue_sync("a.png")


def test_a_database_without_the_schema_is_told_and_not_migrated(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    hf = Holdfast(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        with pytest.raises(SchemaMismatch, match="holdfast migrate"):
            hf.job(lambda image: None).options(connection=connection).enqueue_sync("a.png")
        assert connection.execute("SELECT * FROM sqlite_master").fetchall() == []


@pytest.mark.parametrize("opened", SYNC_POSTGRES.values(), ids=list(SYNC_POSTGRES))
def test_a_postgresql_database_without_the_schema_is_told(
    postgres_url: str, opened: Callable[[str], AbstractContextManager[Any]]
) -> None:
    resize = Holdfast(postgres_url).job(lambda image: None)

    def enqueue() -> None:
        with opened(postgres_url) as connection:
            resize.options(connection=connection).enqueue_sync("a.png")

    with pytest.raises(SchemaMismatch, match="holdfast migrate"):
        enqueue()


@POSTGRES
@needs_a_session
async def test_workers_are_woken_by_the_commit_and_not_before(store_url: str) -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    listener = await asyncpg.connect(store_url)
    await listener.add_listener("holdfast", lambda *told: heard.put_nowait(told[3]))
    async with Holdfast(store_url, **QUICK) as hf:
        resize = hf.job(lambda image: None)
        async with asyncpg_connection(store_url) as connection:
            await resize.options(connection=connection).enqueue("a.png")
            await listener.execute("SELECT 1")
            assert heard.empty()
        assert await asyncio.wait_for(heard.get(), WAIT_SECONDS) == "q:default"
    await listener.close()


@POSTGRES
async def test_two_transactions_with_one_key_wait_for_each_other(store_url: str) -> None:
    """The second gets the first one's job after its commit, or the key after its rollback."""
    async with Holdfast(store_url, **QUICK) as hf:
        resize = hf.job(lambda image: None).options(idempotency_key="k")
        for ends_well in (False, True):
            first = await asyncpg.connect(store_url)
            transaction = first.transaction()
            await transaction.start()
            job = await resize.options(connection=first).enqueue("a.png")
            async with asyncpg_connection(store_url) as second:
                waiting = asyncio.create_task(resize.options(connection=second).enqueue("a.png"))
                await blocked(store_url)
                await (transaction.commit() if ends_well else transaction.rollback())
                found = await waiting
                assert (found.id == job.id) is ends_well
                if not ends_well:
                    await second.execute("ROLLBACK; BEGIN")
            await first.close()


async def blocked(url: str) -> None:
    """Wait until a statement waits for a lock."""
    connection = await asyncpg.connect(url)
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    await wait_until(lambda: connection.fetchval(waiting), "blocked")
    await connection.close()


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has no `autocommit` here")
def test_the_autocommit_of_newer_pythons_is_understood(sqlite_jobs: Jobs) -> None:
    _, url, resize = sqlite_jobs
    path = url.removeprefix("sqlite:///")
    modes: Any = sqlite3.connect
    with closing(modes(path, autocommit=True)) as plain, pytest.raises(BadArguments, match="BEGIN"):
        resize.options(connection=plain).enqueue_sync("a.png")
    with closing(modes(path, autocommit=False)) as careful:
        resize.options(connection=careful).enqueue_sync("a.png")
        careful.rollback()
        job = resize.options(connection=careful).enqueue_sync("b.png")
        careful.commit()
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT id FROM jobs").fetchall() == [(str(job.id),)]
