"""The transaction in which a handler ends its job, in all its forms."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
import sqlalchemy
from django.db import transaction as django_transaction
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from holdfast import (
    BadArguments,
    Context,
    Holdfast,
    LeaseLost,
    State,
    StoreRefused,
    StoreUnavailable,
    WrongState,
)
from holdfast.transactions.drivers import run_now
from holdfast.transactions.drivers.sqlalchemy import SqlalchemyDriver
from tests.support import django_settings
from tests.support.completing import (
    ALIKE,
    ONLY_POSTGRES,
    WAYS,
    Pay,
    Payment,
    Stage,
    driver_url,
    pay_asyncpg,
    pay_own,
    pay_own_sync,
    run,
    staged,
    table,
)
from tests.support.processes import WAIT_SECONDS, wait_until
from tests.support.proxy import Proxy
from tests.support.running import QUICK, execute

NOBODYS_PORT = 1


@pytest.fixture
async def stage(store_url: str) -> AsyncIterator[Stage]:
    async with staged(store_url) as stage:
        yield stage


every_way = pytest.mark.parametrize(
    ("store_url", "pay"),
    WAYS,
    indirect=["store_url"],
    ids=[f"{pay.__name__[4:]} {store}" for store, pay in WAYS],
)
POSTGRES = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)


@every_way
async def test_what_a_block_writes_is_committed_with_the_jobs_end(stage: Stage, pay: Pay) -> None:
    stage.ctx.set_result({"paid": True})
    await run(pay, stage.ctx, stage.url)
    ended = await stage.now()
    assert (ended.state, ended.result) == (State.SUCCEEDED, {"paid": True})
    assert ended.fence == stage.job.fence + 1
    assert await stage.payments() == [str(stage.job.id)]
    assert stage.ctx._completed is not None


@every_way
async def test_a_block_of_a_lost_lease_writes_nothing(stage: Stage, pay: Pay) -> None:
    await stage.hf.jobs.cancel(stage.job.id)
    with pytest.raises(LeaseLost):
        await run(pay, stage.ctx, stage.url)
    assert (await stage.now()).state is State.CANCELED
    assert await stage.payments() == []
    assert not stage.ctx._settles_itself


@every_way
async def test_an_error_of_the_block_writes_nothing(stage: Stage, pay: Pay) -> None:
    await execute(stage.url, f"INSERT INTO {table(stage.url)} VALUES ('{stage.job.id}')")
    with pytest.raises(Exception, match=r"(?i)unique"):
        await run(pay, stage.ctx, stage.url)
    assert (await stage.now()).state is State.RUNNING
    assert (await stage.now()).fence == stage.job.fence
    assert stage.ctx._completed is None


@pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
async def test_the_settlement_comes_after_all_that_a_session_held_back(stage: Stage) -> None:
    statements: list[str] = []
    driver = "pysqlite" if stage.url.startswith("sqlite") else "psycopg"
    engine = sqlalchemy.create_engine(driver_url(stage.url, driver), poolclass=NullPool)
    sqlalchemy.event.listen(
        engine, "before_cursor_execute", lambda *event: statements.append(event[2])
    )

    def complete() -> None:
        with Session(engine) as session, stage.ctx.completing_sync(connection=session):
            session.add(Payment(job="x"))

    await asyncio.to_thread(complete)
    written = next(place for place, sql in enumerate(statements) if "INTO payments" in sql)
    ends = "INTO history" if driver == "pysqlite" else "holdfast.settle_succeeded"
    ended = next(place for place, sql in enumerate(statements) if ends in sql)
    assert written < ended
    assert (await stage.now()).state is State.SUCCEEDED


@pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
async def test_a_block_that_fails_leaves_the_callers_connection_without_a_transaction(
    stage: Stage,
) -> None:
    is_sqlite = stage.url.startswith("sqlite")
    driver = "pysqlite" if is_sqlite else "psycopg2"
    engine = sqlalchemy.create_engine(driver_url(stage.url, driver), poolclass=NullPool)

    def fail(connection: Any) -> None:
        with (
            pytest.raises(RuntimeError, match="not enough money"),
            stage.ctx.completing_sync(connection=connection),
        ):
            raise RuntimeError("not enough money")

    def fail_all() -> None:
        with Session(engine) as session:
            fail(session)
            assert not session.in_transaction()
        with django_settings.database(stage.url) as connection:
            fail(connection)
            assert not connection.in_atomic_block
        if is_sqlite:
            with closing(sqlite3.connect(stage.url.removeprefix("sqlite:///"))) as file:
                fail(file)
                assert not file.in_transaction
        else:
            with psycopg.connect(stage.url) as plain:
                fail(plain)
                assert plain.info.transaction_status.name == "IDLE"

    await asyncio.to_thread(fail_all)
    assert (await stage.now()).state is State.RUNNING


@POSTGRES
async def test_an_async_block_that_fails_leaves_no_transaction_either(stage: Stage) -> None:
    async def fail(connection: Any) -> None:
        async with stage.ctx.completing(connection=connection):
            raise RuntimeError("not enough money")

    plain = await asyncpg.connect(stage.url)
    with pytest.raises(RuntimeError, match="not enough money"):
        await fail(plain)
    assert not plain.is_in_transaction()
    await plain.close()
    async with await psycopg.AsyncConnection.connect(stage.url) as other:
        with pytest.raises(RuntimeError, match="not enough money"):
            await fail(other)
        assert other.info.transaction_status.name == "IDLE"


@POSTGRES
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("pay", [*ALIKE, *ONLY_POSTGRES], ids=lambda pay: pay.__name__[4:])
async def test_a_commit_whose_answer_is_lost_is_known_by_the_fence(
    store_url: str, pay: Pay, before: bool
) -> None:
    parts = urlsplit(store_url)
    assert parts.port is not None
    with Proxy(parts.port) as proxy:
        through = proxy.url(parts.path[1:])
        async with staged(store_url, through) as stage:
            cut = proxy.cut_at_commit(b"payments", before=before)
            if before:
                with pytest.raises(StoreUnavailable, match="nothing was written"):
                    await run(pay, stage.ctx, through)
            else:
                await run(pay, stage.ctx, through)
            assert cut.done.is_set()
            state = State.RUNNING if before else State.SUCCEEDED
            assert (await stage.now()).state is state
            assert await stage.payments() == ([] if before else [str(stage.job.id)])
            assert (stage.ctx._completed is None) is before


@POSTGRES
async def test_a_commit_in_doubt_waits_for_a_database_that_is_away(store_url: str) -> None:
    parts = urlsplit(store_url)
    assert parts.port is not None
    with Proxy(parts.port) as way, Proxy(parts.port) as other_way:
        database = parts.path[1:]
        async with staged(store_url, other_way.url(database)) as stage:
            cut = way.cut_at_commit(b"payments", before=False)
            other_way.switch(NOBODYS_PORT)
            paying = asyncio.create_task(pay_asyncpg(stage.ctx, way.url(database)))
            await wait_until(cut.done.is_set, "cut")
            await wait_until(lambda: other_way.refused > 1, "asked in vain")
            assert not paying.done()
            assert stage.ctx._settles_itself
            other_way.switch(parts.port)
            await asyncio.wait_for(paying, WAIT_SECONDS)
            assert (await stage.now()).state is State.SUCCEEDED
            assert await stage.payments() == [str(stage.job.id)]


@POSTGRES
async def test_a_lost_answer_of_a_job_that_somebody_else_ended_is_a_lost_lease(
    store_url: str,
) -> None:
    parts = urlsplit(store_url)
    assert parts.port is not None
    with Proxy(parts.port) as proxy:
        async with staged(store_url, proxy.url(parts.path[1:])) as stage:
            proxy.cut_at_commit(b"payments", before=True)

            async def pay() -> None:
                async with stage.ctx.completing() as connection:
                    await connection.execute("INSERT INTO payments VALUES ('x')")
                    # Waits for the settlement of the block, which is rolled back.
                    canceling.append(asyncio.create_task(cancel_when_settled()))

            async def cancel_when_settled() -> None:
                await wait_until(lambda: stage.ctx._settles_itself, "settling")
                await stage.hf.jobs.cancel(stage.job.id)

            canceling: list[asyncio.Task[None]] = []
            # Whoever of the two comes first to the row, nothing is written.
            with pytest.raises((LeaseLost, StoreUnavailable)):
                await pay()
            await canceling[0]
            assert (await stage.now()).state is State.CANCELED
            assert await stage.payments() == []


@POSTGRES
async def test_a_constraint_that_is_checked_at_the_commit_is_the_handlers_own_error(
    stage: Stage,
) -> None:
    await execute(stage.url, "ALTER TABLE public.payments ADD COLUMN customer int")
    await execute(stage.url, "CREATE TABLE public.customers (id int PRIMARY KEY)")
    await execute(
        stage.url,
        "ALTER TABLE public.payments ADD FOREIGN KEY (customer) REFERENCES public.customers"
        " DEFERRABLE INITIALLY DEFERRED",
    )

    async def pay_unknown_customer() -> None:
        async with stage.ctx.completing() as connection:
            await connection.execute("INSERT INTO payments VALUES ('x', 7)")

    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await pay_unknown_customer()
    assert (await stage.now()).state is State.RUNNING
    assert await stage.payments() == []


@pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
async def test_an_attempt_completes_its_job_once(stage: Stage) -> None:
    async with stage.ctx.completing():
        another = stage.ctx.completing()
        with pytest.raises(WrongState, match="already has an open block"):
            await another.__aenter__()
    with pytest.raises(WrongState, match="has already been completed"):
        await pay_own(stage.ctx, stage.url)
    assert await stage.payments() == []


@pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
async def test_a_block_that_failed_may_be_tried_again(stage: Stage) -> None:
    async def fail() -> None:
        async with stage.ctx.completing() as connection:
            await connection.execute("INSERT INTO payments VALUES ('x')")
            raise RuntimeError("not yet")

    with pytest.raises(RuntimeError, match="not yet"):
        await fail()
    await pay_own(stage.ctx, stage.url)
    assert await stage.payments() == [str(stage.job.id)]


@pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
async def test_a_block_of_the_wrong_color_is_told_where_to_go(stage: Stage) -> None:
    with pytest.raises(RuntimeError, match=r"use ctx\.completing\(\)"):
        pay_own_sync(stage.ctx, stage.url)
    with closing(sqlite3.connect(":memory:")) as blocking:
        block = stage.ctx.completing(connection=blocking)
        with pytest.raises(BadArguments, match="completing_sync"):
            await block.__aenter__()
    engine = create_async_engine("sqlite+aiosqlite://", poolclass=NullPool)
    async with AsyncSession(engine) as session:

        def complete() -> None:
            with stage.ctx.completing_sync(connection=session):
                pass

        with pytest.raises(BadArguments, match=r"ctx\.completing\(connection"):
            await asyncio.to_thread(complete)


@contextmanager
def in_session_block(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(driver_url(url, "psycopg"), poolclass=NullPool)
    with Session(engine) as session, session.begin():
        yield session


@contextmanager
def in_savepoint(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(driver_url(url, "psycopg"), poolclass=NullPool)
    with Session(engine) as session, session.begin_nested():
        yield session


@contextmanager
def in_connection_block(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(driver_url(url, "psycopg"), poolclass=NullPool)
    with engine.begin() as connection:
        yield connection


@contextmanager
def bound_session(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(driver_url(url, "psycopg"), poolclass=NullPool)
    with engine.connect() as connection, connection.begin(), Session(connection) as session:
        yield session


@contextmanager
def autocommit(url: str) -> Iterator[Any]:
    engine = sqlalchemy.create_engine(driver_url(url, "psycopg"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@contextmanager
def in_atomic_block(url: str) -> Iterator[Any]:
    with django_settings.database(url) as connection, django_transaction.atomic("jobs"):
        yield connection


@contextmanager
def without_autocommit(url: str) -> Iterator[Any]:
    with django_settings.database(url) as connection:
        connection.set_autocommit(False)
        yield connection
        connection.rollback()


@contextmanager
def in_transaction(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection, connection.transaction():
        yield connection


@POSTGRES
@pytest.mark.parametrize(
    ("opened", "why"),
    [
        (in_session_block, r"already in a `begin\(\)` block"),
        (in_savepoint, "already in a savepoint"),
        (in_connection_block, r"already in a `begin\(\)` block"),
        (bound_session, "bound to a connection"),
        (autocommit, "autocommit"),
        (in_atomic_block, r"already in an `atomic\(\)` block"),
        (without_autocommit, "autocommit is off"),
        (in_transaction, "already in a transaction"),
    ],
)
async def test_a_connection_whose_commit_would_not_be_ours_is_refused(
    stage: Stage, opened: Any, why: str
) -> None:
    def complete() -> None:
        with opened(stage.url) as connection:
            block = stage.ctx.completing_sync(connection=connection)
            with pytest.raises(BadArguments, match=why):
                block.__enter__()

    await asyncio.to_thread(complete)
    assert (await stage.now()).state is State.RUNNING


@asynccontextmanager
async def in_async_session_block(engine: AsyncEngine) -> AsyncIterator[Any]:
    async with AsyncSession(engine) as session, session.begin():
        yield session


@asynccontextmanager
async def in_async_connection_block(engine: AsyncEngine) -> AsyncIterator[Any]:
    async with engine.begin() as connection:
        yield connection


@POSTGRES
@pytest.mark.parametrize("opened", [in_async_session_block, in_async_connection_block])
async def test_an_async_connection_in_a_block_is_refused_as_well(stage: Stage, opened: Any) -> None:
    engine = create_async_engine(driver_url(stage.url, "asyncpg"), poolclass=NullPool)
    async with opened(engine) as connection:
        block = stage.ctx.completing(connection=connection)
        with pytest.raises(BadArguments, match=r"already in a `begin\(\)` block"):
            await block.__aenter__()


def test_a_connection_of_sqlalchemy_that_hides_its_blocks_is_not_taken() -> None:
    class Renamed:
        def exec_driver_sql(self, sql: str) -> None: ...

        def in_nested_transaction(self) -> bool:
            return False

    with pytest.raises(AttributeError):
        run_now(SqlalchemyDriver(Renamed()).begin())


@pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
async def test_a_job_enqueued_through_the_blocks_connection_is_part_of_it(stage: Stage) -> None:
    thank = stage.hf.job(name="thank")(lambda: None)

    async def fail() -> None:
        async with stage.ctx.completing() as connection:
            await thank.options(connection=connection).enqueue()
            raise RuntimeError("no money")

    with pytest.raises(RuntimeError, match="no money"):
        await fail()
    assert [job.name for job in (await stage.hf.jobs.list()).jobs] == ["pay"]

    def complete() -> None:
        with stage.ctx.completing_sync() as connection:
            thank.options(connection=connection, idempotency_key="k").enqueue_sync()

    await asyncio.to_thread(complete)
    states = {job.name: job.state for job in (await stage.hf.jobs.list()).jobs}
    assert states == {"thank": State.QUEUED, "pay": State.SUCCEEDED}


async def test_a_thread_that_would_wait_for_its_own_block_is_refused_at_once(
    local_url: str,
) -> None:
    async with staged(local_url) as stage:
        thank = stage.hf.job(name="thank")(lambda: None)

        def complete() -> None:
            with stage.ctx.completing_sync():
                thank.enqueue_sync()

        with pytest.raises(StoreRefused, match="would wait for itself"):
            await asyncio.to_thread(complete)
        await asyncio.to_thread(stage.hf.close_sync)


@POSTGRES
async def test_an_open_block_keeps_no_other_lease_from_being_renewed(store_url: str) -> None:
    """Two jobs of one worker; one holds its transaction open while the other is renewed."""
    opened, waited = asyncio.Event(), asyncio.Event()
    async with Holdfast(store_url, **{**QUICK, "renew_seconds": 0.3}) as hf:
        await execute(store_url, "CREATE TABLE public.payments (job text)")

        @hf.job
        async def pay(ctx: Context) -> None:
            async with ctx.completing() as connection:
                await connection.execute("INSERT INTO payments VALUES ($1)", str(ctx.job_id))
                # As the settlement does at the end: the job's own row is locked from here on.
                await connection.execute(
                    "SELECT FROM holdfast.jobs WHERE id = $1 FOR UPDATE", ctx.job_id
                )
                opened.set()
                await waited.wait()

        @hf.job
        async def wait(ctx: Context) -> None:
            await opened.wait()
            expires_at = (await hf.get(ctx.job_id)).lease_expires_at
            assert expires_at is not None
            await wait_until(lambda: renewed_thrice(hf, ctx, expires_at), "renewed")
            waited.set()

        jobs = await hf.enqueue_many([pay.call(), wait.call()])
        report = await hf.run_worker(until_empty=True)
        assert [(await hf.get(job.id)).attempts for job in jobs] == [1, 1]
        assert (report.succeeded, report.lost) == (2, 0)


async def renewed_thrice(hf: Holdfast, ctx: Context, since: datetime) -> bool:
    expires_at = (await hf.get(ctx.job_id)).lease_expires_at
    assert expires_at is not None
    return (expires_at - since).total_seconds() > 3 * 0.3
