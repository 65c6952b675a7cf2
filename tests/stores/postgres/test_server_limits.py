"""What the server is told to end by itself, on every kind of connection that the engine makes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvloop

from holdfast import StoreUnavailable
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.server_limits import Limits
from tests.support.pooling import needs_a_session
from tests.support.processes import wait_until

NAMES = [
    "idle_in_transaction_session_timeout",
    "statement_timeout",
    "tcp_keepalives_idle",
    "tcp_keepalives_interval",
    "tcp_keepalives_count",
    "tcp_user_timeout",
]
SECONDS = [30.0, 3.0]
ENGINE = {30.0: ["2s", "1min", "5", "1", "3", "10000"], 3.0: ["1s", "1min", "1", "1", "3", "3000"]}
LENT = {seconds: ["0", "0", *told[2:]] for seconds, told in ENGINE.items()}
OPTIONS = ["TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT"]
OURS = {30.0: [5, 1, 3, 10_000], 3.0: [1, 1, 3, 3000]}


async def told(connection: Any) -> list[str]:
    return [await connection.fetchval(f"SHOW {name}") for name in NAMES]


async def ours(connection: Any) -> list[int]:
    """How our end of a connection is set."""
    end = connection._transport.get_extra_info("socket")
    assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    return [end.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in OPTIONS]


@pytest.fixture(params=SECONDS)
def lease_seconds(request: pytest.FixtureRequest) -> float:
    return float(request.param)


@pytest.fixture
async def store(postgres_url: str, lease_seconds: float) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, Seam(), lease_seconds=lease_seconds)
    yield store
    await store.close()


@needs_a_session
async def test_the_engines_connections_are_limited_by_the_lease(
    store: PostgresStore, lease_seconds: float
) -> None:
    assert await store._connections.run(told) == ENGINE[lease_seconds]
    assert await store._connections.run(ours) == OURS[lease_seconds]


@needs_a_session
async def test_a_transaction_of_the_applications_may_take_its_time_on_a_connection_that_answers(
    store: PostgresStore, lease_seconds: float
) -> None:
    for _ in range(2):  # the same connection, which was given back meanwhile
        async with store.connection() as connection:
            assert await told(connection) == LENT[lease_seconds]
            assert await ours(connection) == OURS[lease_seconds]
            await connection.execute("SET tcp_user_timeout = 0")


@pytest.mark.slow
@pytest.mark.parametrize("store_url", ["bouncer"], indirect=True)
async def test_behind_a_pooler_the_limits_come_with_every_transaction(
    store_url: str, lease_seconds: float
) -> None:
    store = PostgresStore(store_url, Seam(), lease_seconds=lease_seconds)
    try:
        looks = await asyncio.gather(*(store._connections.run(told) for _ in range(4)))
        assert [look[:2] for look in looks] == [ENGINE[lease_seconds][:2]] * 4
    finally:
        await store.close()


async def test_a_transaction_of_the_engines_that_stands_still_is_ended(postgres_url: str) -> None:
    store = PostgresStore(postgres_url, Seam(), lease_seconds=1)

    async def stand_still(connection: Any) -> None:
        async with connection.transaction():
            await connection.execute("SELECT 1")
            await wait_until(connection.is_closed, "ended")
            await connection.execute("SELECT 1")

    try:
        with pytest.raises(StoreUnavailable):
            await store._connections.run(stand_still)
        assert await store._connections.run(fetch_one) == 1
    finally:
        await store.close()


async def fetch_one(connection: Any) -> Any:
    return await connection.fetchval("SELECT 1")


@needs_a_session
def test_our_end_is_limited_on_any_event_loop(postgres_url: str) -> None:
    async def look() -> list[int]:
        store = PostgresStore(postgres_url, Seam(), lease_seconds=30)
        try:
            return await store._connections.run(ours)
        finally:
            await store.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(look()) == OURS[30.0]


def test_the_limits_end_before_the_lease_does() -> None:
    for lease_seconds in (2.0, 3.0, 10.0, 30.0, 3600.0):
        limits = Limits(lease_seconds)
        assert limits.idle_seconds <= limits.commit_seconds <= lease_seconds / 2
