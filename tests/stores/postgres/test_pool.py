"""The pool of connections: what takes too long is cut off, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import pytest

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import NewJob
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.pool import UNUSED_SECONDS_MAX, Pool
from holdfast.stores.protocol import Claim
from tests.support.fast_forward import fast_forward, fast_forwarding
from tests.support.pooling import needs_a_session
from tests.support.processes import WAIT_SECONDS, turn, wait_until
from tests.support.proxy import Proxy

pytestmark = [needs_a_session, pytest.mark.both_postgres]
USE_SECONDS_MAX = 60.0
NEVER = "SELECT pg_advisory_lock(1)"  # the test has this lock


def pool(url: str) -> Pool:
    return Pool(partial(asyncpg.connect, url), 2, USE_SECONDS_MAX)


@asynccontextmanager
async def stuck(url: str, connection: Any) -> AsyncIterator[asyncio.Task[Any]]:
    """A statement on this connection that never ends, once the server has begun to run it."""
    process = connection.get_server_pid()
    blocking = await asyncpg.connect(url)
    await blocking.execute(NEVER)
    statement = asyncio.create_task(connection.execute(NEVER))
    waits = partial(
        blocking.fetchval, "SELECT 1 FROM pg_locks WHERE pid = $1 AND NOT granted", process
    )
    await wait_until(waits, "waiting for the lock")
    yield statement
    await blocking.close()


@fast_forwarding
async def test_a_use_that_takes_too_long_ends_and_its_connection_with_it(postgres_url: str) -> None:
    connections = pool(postgres_url)
    connection = await connections.acquire()
    async with stuck(postgres_url, connection) as statement:
        await fast_forward(USE_SECONDS_MAX)
        with pytest.raises(asyncpg.PostgresConnectionError):
            await asyncio.wait_for(statement, WAIT_SECONDS)
    connections.release(connection)
    again = await connections.acquire()
    assert await again.fetchval("SELECT 1") == 1
    connections.release(again)
    await connections.close()


@fast_forwarding
async def test_connections_that_nothing_needs_are_closed(postgres_url: str) -> None:
    connections = Pool(partial(asyncpg.connect, postgres_url), 5, USE_SECONDS_MAX)

    async def use(at_once: int, *, aside: bool = False) -> list[Any]:
        used = [await connections.acquire(aside=aside) for _ in range(at_once)]
        for connection in used:
            connections.release(connection, aside=aside)
        return used

    five = await use(5)
    for _ in range(4):
        await fast_forward(0.4 * UNUSED_SECONDS_MAX)
        (usual,) = await use(1)
        (other,) = await use(1, aside=True)
    await wait_until(partial(are_closed, five, 3), "the others are closed")
    left = [each for each in five if not each.is_closed()]
    assert left == [other, usual] or left == [usual, other]
    assert not any(each.is_closed() for each in await use(5))  # made again on demand
    await connections.close()


@fast_forwarding
async def test_connections_are_closed_even_if_nothing_uses_the_pool_again(
    postgres_url: str,
) -> None:
    connections = Pool(partial(asyncpg.connect, postgres_url), 5, USE_SECONDS_MAX)
    five = [await connections.acquire() for _ in range(5)]
    for connection in five:
        connections.release(connection)
    await fast_forward(0.9 * UNUSED_SECONDS_MAX)
    assert await are_closed(five, 0)
    await fast_forward(0.1 * UNUSED_SECONDS_MAX)
    await wait_until(partial(are_closed, five, 3), "all but two are closed")
    await connections.close()
    assert await are_closed(five, 5)


async def are_closed(connections: list[Any], count: int) -> bool:
    return len([each for each in connections if each.is_closed()]) == count


@fast_forwarding
async def test_others_use_the_pool_while_it_closes_connections(postgres_url: str) -> None:
    connections = Pool(partial(asyncpg.connect, postgres_url), 6, USE_SECONDS_MAX)
    six = [await connections.acquire() for _ in range(6)]
    for connection in six:
        connections.release(connection)
    await fast_forward(2 * UNUSED_SECONDS_MAX)
    used = await asyncio.gather(*[connections.acquire(aside=aside) for aside in 3 * (True, False)])
    assert len(set(used)) == 6
    assert [await each.fetchval("SELECT 1") for each in used] == 6 * [1]
    for connection in used:
        connections.release(connection)
    await connections.close()


@fast_forwarding
async def test_every_use_has_its_own_time(postgres_url: str) -> None:
    connections = pool(postgres_url)
    for _ in range(3):
        connection = await connections.acquire()
        await fast_forward(0.4 * USE_SECONDS_MAX)
        assert await connection.fetchval("SELECT 1") == 1
        connections.release(connection)
    await connections.close()


@fast_forwarding
async def test_a_use_of_many_steps_has_its_time_for_each(postgres_url: str) -> None:
    connections = pool(postgres_url)
    connection = await connections.acquire()
    for _ in range(3):
        await fast_forward(0.4 * USE_SECONDS_MAX)
        assert await connection.fetchval("SELECT 1") == 1
        connections.prolong(connection)
    async with stuck(postgres_url, connection) as statement:
        await fast_forward(USE_SECONDS_MAX)
        with pytest.raises(asyncpg.PostgresConnectionError):
            await asyncio.wait_for(statement, WAIT_SECONDS)
    connections.release(connection)
    await connections.close()


@fast_forwarding
async def test_an_idle_connection_is_kept(postgres_url: str) -> None:
    connections = pool(postgres_url)
    connection = await connections.acquire()
    connections.release(connection)
    await fast_forward(USE_SECONDS_MAX)
    assert await connections.acquire() is connection
    assert await connection.fetchval("SELECT 1") == 1
    connections.release(connection)
    await connections.close()


async def test_what_is_done_aside_leaves_others_the_connection_that_they_know(
    postgres_url: str,
) -> None:
    connections = pool(postgres_url)
    usual, other = await connections.acquire(), await connections.acquire()
    connections.release(other)
    connections.release(usual)
    for _ in range(3):
        aside = await connections.acquire(aside=True)
        assert aside is other
        assert await connections.acquire() is usual
        connections.release(usual)
        connections.release(aside, aside=True)
    assert await connections.acquire() is usual
    connections.release(usual)
    await connections.close()


@fast_forwarding
async def test_a_use_without_a_time_limit_is_not_cut_off(postgres_url: str) -> None:
    connections = pool(postgres_url)
    endless = await connections.acquire(endless=True)
    other = await connections.acquire()
    await fast_forward(USE_SECONDS_MAX)
    assert other.is_closed()
    assert await endless.fetchval("SELECT 1") == 1
    connections.release(other)
    connections.release(endless)
    await connections.close()


async def test_a_begin_that_was_cut_off_swallows_nothing_that_is_done_later(
    postgres_url: str,
) -> None:
    connections = pool(postgres_url)
    cut_off = await connections.acquire()
    beginning = asyncio.create_task(cut_off.execute("BEGIN"))
    await turn()
    beginning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    connections.release(cut_off, cut_off=True)
    later = await connections.acquire()
    await later.execute("CREATE TABLE kept ()")
    connections.release(later)
    await connections.close()
    looking = await asyncpg.connect(postgres_url)
    assert await looking.fetchval("SELECT to_regclass('kept')") == "kept"
    await looking.close()


async def test_a_statement_that_was_cut_off_ends_on_the_server(postgres_url: str) -> None:
    connections = pool(postgres_url)
    cut_off = await connections.acquire()
    process = cut_off.get_server_pid()
    async with stuck(postgres_url, cut_off) as statement:
        statement.cancel()
        with pytest.raises(asyncio.CancelledError):
            await statement
        connections.release(cut_off, cut_off=True)
        other = await connections.acquire()
        await wait_until(partial(is_gone, other, process), "the server's process ended")
        connections.release(other)
    await connections.close()


async def is_gone(connection: Any, process: int) -> bool:
    known = await connection.fetchval("SELECT 1 FROM pg_stat_activity WHERE pid = $1", process)
    return known is None


async def test_a_renewal_on_a_connection_that_has_gone_silent_is_cut_off_in_time(
    postgres_url: str,
) -> None:
    parts = urlsplit(postgres_url)
    assert parts.port is not None
    with Proxy(parts.port) as proxy:
        store = PostgresStore(proxy.url(parts.path.removeprefix("/")), Seam())
        await store.migrate()
        await store.enqueue([NewJob(id=UUID(int=1), name="resize", arguments=b"{}")])
        (job,) = await store.claim(Claim("worker", 1, 30.0, ["resize"]))
        proxy.stall()
        with pytest.raises(StoreUnavailable, match="did not renew leases within 2 s"):
            await store.renew([job.lease], lease_seconds=3)
        proxy.resume()
        assert await store.renew([job.lease], lease_seconds=30) == []
        await store.close()


async def test_a_connection_that_ends_between_two_steps_of_a_statement_is_an_outage(
    postgres_url: str,
) -> None:
    store = PostgresStore(postgres_url, Seam())

    async def end(connection: Any) -> None:
        connection.terminate()
        connection._protocol.bind_execute()  # as in the driver's own next step

    async def err(connection: Any) -> None:
        connection.no_such_verb()

    with pytest.raises(StoreUnavailable):
        await store._connections.run(end)
    with pytest.raises(AttributeError):
        await store._connections.run(err)
    await store.close()
