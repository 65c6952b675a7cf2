"""Handlers that are canceled or time out in the transaction that ends their job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from holdfast import Context, Holdfast, State, StoreUnavailable
from tests.support import django_settings
from tests.support.completing import ASYNC, Pay, Stage, driver_url, pay_asyncpg, pay_own, staged
from tests.support.fast_forward import fast_forward, fast_forwarding
from tests.support.processes import WAIT_SECONDS, turn, wait_until
from tests.support.proxy import Proxy
from tests.support.running import QUICK, execute, seen_events, signal


@pytest.fixture
async def stage(store_url: str) -> AsyncIterator[Stage]:
    async with staged(store_url) as stage:
        yield stage


TIMEOUT_SECONDS = 30.0  # the handler commits long before
POSTGRES = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)


@POSTGRES
@pytest.mark.parametrize("pay", ASYNC, ids=lambda pay: pay.__name__[4:])
async def test_a_handler_that_is_canceled_while_it_commits_learns_how_that_ends(
    store_url: str, pay: Pay
) -> None:
    parts = urlsplit(store_url)
    assert parts.port is not None
    with Proxy(parts.port) as proxy:
        through = proxy.url(parts.path[1:])
        async with staged(store_url, through) as stage:
            held = proxy.hold_at_commit(b"payments", before=False)
            paying = asyncio.create_task(pay(stage.ctx, through))
            await wait_until(held.done.is_set, "committed, and not answered")
            for _ in range(2):
                paying.cancel()
                await turn()
                assert stage.ctx._settles_itself
            proxy.let_go(held)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(paying, WAIT_SECONDS)
            assert stage.ctx._completed is not None
            assert (await stage.now()).state is State.SUCCEEDED
            assert await stage.payments() == [str(stage.job.id)]


@POSTGRES
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
async def test_a_canceled_commit_whose_answer_is_lost_is_known_by_the_fence(
    store_url: str, before: bool
) -> None:
    parts = urlsplit(store_url)
    assert parts.port is not None
    with Proxy(parts.port) as way:
        async with staged(store_url) as stage:
            held = way.hold_at_commit(b"payments", before=before)
            paying = asyncio.create_task(pay_asyncpg(stage.ctx, way.url(parts.path[1:])))
            await wait_until(held.done.is_set, "committing")
            paying.cancel()
            await turn()
            way.cut()
            error = StoreUnavailable if before else asyncio.CancelledError
            with pytest.raises(error):
                await asyncio.wait_for(paying, WAIT_SECONDS)
            assert (stage.ctx._completed is None) is before
            assert (await stage.now()).state is (State.RUNNING if before else State.SUCCEEDED)


@POSTGRES
async def test_a_worker_that_ends_waits_for_no_commit(store_url: str) -> None:
    parts = urlsplit(store_url)
    assert parts.port is not None
    with Proxy(parts.port) as way:
        async with staged(store_url) as stage:
            held = way.hold_at_commit(b"payments", before=False)
            paying = asyncio.create_task(pay_asyncpg(stage.ctx, way.url(parts.path[1:])))
            await wait_until(held.done.is_set, "committed, and not answered")
            stage.ctx._give_up()
            way.let_go(held)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(paying, WAIT_SECONDS)
            assert stage.ctx._completed is None


@POSTGRES
@fast_forwarding
async def test_a_commit_that_outlasts_the_timeout_is_reported_as_a_success(store_url: str) -> None:
    parts = urlsplit(store_url)
    assert parts.port is not None
    with Proxy(parts.port) as proxy:
        await execute(store_url, "CREATE TABLE public.payments (job text PRIMARY KEY)")
        async with Holdfast(proxy.url(parts.path[1:]), **QUICK) as hf, seen_events() as seen:

            @hf.job(timeout_seconds=TIMEOUT_SECONDS)
            async def pay(ctx: Context) -> None:
                await pay_own(ctx, "")

            held = proxy.hold_at_commit(b"payments", before=False)
            job = await pay.enqueue()
            working = asyncio.create_task(hf.run_worker(until_empty=True))
            await wait_until(held.done.is_set, "committed, and not answered")
            await fast_forward(TIMEOUT_SECONDS)
            proxy.let_go(held)
            report = await asyncio.wait_for(working, WAIT_SECONDS)
            assert (report.succeeded, report.lost) == (1, 0)
            assert seen.named("lost") == []
            assert (await hf.get(job.id)).state is State.SUCCEEDED


@asynccontextmanager
async def from_asyncpg(url: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        yield pool.acquire


@asynccontextmanager
async def from_psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield lambda: nullcontext(connection)


@asynccontextmanager
async def from_engine(url: str, driver: str) -> AsyncIterator[AsyncEngine]:
    """A pool of one connection: if it does not come back, the next one waits in vain."""
    engine = create_async_engine(
        driver_url(url, driver),
        poolclass=AsyncAdaptedQueuePool,
        pool_size=1,
        max_overflow=0,
        pool_timeout=WAIT_SECONDS,
    )
    yield engine
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    await engine.dispose()


def connections_of(driver: str) -> Callable[[str], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Any]:
        async with from_engine(url, driver) as engine:
            yield engine.connect

    return opened


def sessions_of(driver: str) -> Callable[[str], AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Any]:
        async with from_engine(url, driver) as engine:
            yield lambda: AsyncSession(engine)

    return opened


POOLS: dict[str, tuple[str, Any]] = {
    "asyncpg": ("pg15", from_asyncpg),
    "psycopg": ("pg15", from_psycopg),
    **{
        f"{kind.__name__} {driver}": (store, kind(driver))
        for kind in (connections_of, sessions_of)
        for store, driver in (("pg15", "asyncpg"), ("pg15", "psycopg"), ("sqlite", "aiosqlite"))
    },
}
NEVER = "SELECT pg_advisory_xact_lock(1)"  # the test has this lock; SQLite has none like it
WAITING = """SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""
CANCELS = {
    f"{name} {'in a statement' if in_statement else 'between statements'}": (*pool, in_statement)
    for name, pool in POOLS.items()
    for in_statement in (False, True)
    if not (in_statement and pool[0] == "sqlite")
}


@asynccontextmanager
async def blocking(url: str) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """Take the lock that NEVER waits for; answer how to count the statements that wait."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute(NEVER)
            yield lambda: connection.fetchval(WAITING)
    finally:
        await connection.close()


async def do(connection: Any, sql: str) -> None:
    ours = type(connection).__module__.startswith("sqlalchemy")
    await connection.execute(sqlalchemy.text(sql) if ours else sql)


@pytest.mark.parametrize(
    ("store_url", "pool", "in_statement"),
    CANCELS.values(),
    indirect=["store_url"],
    ids=list(CANCELS),
)
async def test_a_handler_that_is_canceled_in_its_block_leaves_a_connection_that_works(
    stage: Stage, pool: Any, in_statement: bool
) -> None:
    written = asyncio.Event()

    async def pay_and_wait(connection: Any) -> None:
        async with stage.ctx.completing(connection=connection):
            await do(connection, "INSERT INTO payments VALUES ('canceled')")
            written.set()
            if in_statement:
                await do(connection, NEVER)
            await asyncio.Event().wait()

    async with pool(stage.url) as acquire, AsyncExitStack() as stack:
        if in_statement:
            blocked = await stack.enter_async_context(blocking(stage.url))
        async with acquire() as connection:
            paying = asyncio.create_task(pay_and_wait(connection))
            await signal(written)
            if in_statement:
                await wait_until(blocked, "waiting for the lock")
            paying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(paying, WAIT_SECONDS)
            async with stage.ctx.completing(connection=connection):
                await do(connection, "INSERT INTO payments VALUES ('paid')")
        async with acquire() as connection:
            await do(connection, "DELETE FROM payments WHERE job = 'canceled'")
    assert await stage.payments() == ["paid"]
    assert (await stage.now()).state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("store_url", "pool"), POOLS.values(), indirect=["store_url"], ids=list(POOLS)
)
async def test_a_handler_that_is_canceled_as_it_begins_leaves_a_connection_that_works(
    stage: Stage, pool: Any
) -> None:
    async def begin(connection: Any) -> None:
        async with stage.ctx.completing(connection=connection):
            await asyncio.Event().wait()

    async with pool(stage.url) as acquire, acquire() as connection:
        for turns in range(6):
            beginning = asyncio.create_task(begin(connection))
            for _ in range(turns):
                await turn()
            beginning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(beginning, WAIT_SECONDS)
        async with stage.ctx.completing(connection=connection):
            await do(connection, "INSERT INTO payments VALUES ('paid')")
    assert await stage.payments() == ["paid"]
    assert (await stage.now()).state is State.SUCCEEDED


@pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
async def test_a_thread_that_is_told_to_stop_in_its_block_leaves_a_connection_that_works(
    stage: Stage,
) -> None:
    stage.ctx._enable_stop()
    stage.ctx._request_stop()

    def pay_until_told(connection: Any) -> None:
        with stage.ctx.completing_sync(connection=connection), connection.cursor() as cursor:
            cursor.execute("INSERT INTO payments VALUES ('stopped')")
            if stage.ctx.canceled:
                raise TimeoutError

    def pay() -> None:
        with django_settings.database(stage.url) as connection:
            with pytest.raises(TimeoutError):
                pay_until_told(connection)
            assert connection.get_autocommit()
            with stage.ctx.completing_sync(connection=connection), connection.cursor() as cursor:
                cursor.execute("INSERT INTO payments VALUES ('paid')")

    await asyncio.to_thread(pay)
    assert await stage.payments() == ["paid"]
    assert (await stage.now()).state is State.SUCCEEDED
