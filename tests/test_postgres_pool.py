"""The pool of connections: what takes too long is cut off, and nothing else."""

from __future__ import annotations

from functools import partial

import asyncpg
import pytest

from holdfast.stores.postgres.pool import Pool
from tests.support.pooling import needs_a_session

pytestmark = needs_a_session
NEVER = "SELECT pg_sleep(3600)"


def pool(url: str, use_seconds_max: float) -> Pool:
    return Pool(partial(asyncpg.connect, url), 2, use_seconds_max)


async def test_a_use_that_takes_too_long_ends_and_its_connection_with_it(postgres_url: str) -> None:
    connections = pool(postgres_url, use_seconds_max=2.0)
    connection = await connections.acquire()
    with pytest.raises(asyncpg.PostgresConnectionError):
        await connection.execute(NEVER)
    connections.release(connection)
    again = await connections.acquire()
    assert await again.fetchval("SELECT 1") == 1
    connections.release(again)
    await connections.close()


async def test_every_use_has_its_own_time(postgres_url: str) -> None:
    connections = pool(postgres_url, use_seconds_max=2.5)
    for _ in range(3):
        connection = await connections.acquire()
        await connection.execute("SELECT pg_sleep(0.9)")
        connections.release(connection)
    await connections.close()


async def test_a_connection_that_rests_is_kept(postgres_url: str) -> None:
    connections = pool(postgres_url, use_seconds_max=0.1)
    endless = await connections.acquire(endless=True)
    resting = await connections.acquire()
    connections.release(resting)
    await endless.execute("SELECT pg_sleep(0.3)")
    assert await connections.acquire() is resting
    connections.release(resting)
    connections.release(endless)
    await connections.close()


async def test_what_is_said_to_be_endless_is_not_cut_off(postgres_url: str) -> None:
    connections = pool(postgres_url, use_seconds_max=0.05)
    endless = await connections.acquire(endless=True)
    other = await connections.acquire()
    with pytest.raises(asyncpg.PostgresConnectionError):
        await other.execute(NEVER)
    assert await endless.fetchval("SELECT 1") == 1
    connections.release(other)
    connections.release(endless)
    await connections.close()
