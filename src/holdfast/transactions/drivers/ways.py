"""How to work on each library's connections, by the names of their classes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from holdfast.transactions.drivers.django import DjangoDriver
from holdfast.transactions.drivers.postgres import (
    AsyncpgDriver,
    AsyncPsycopgDriver,
    Psycopg2Driver,
    PsycopgDriver,
)
from holdfast.transactions.drivers.protocol import Driver, Foreign, run_now
from holdfast.transactions.drivers.sqlalchemy import SqlalchemyDriver
from holdfast.transactions.drivers.sqlite import Sqlite3Driver

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Direct:
    driver: Driver
    is_async: bool

    async def run(self, work: Callable[[Driver], Coroutine[Any, Any, T]]) -> T:
        return await work(self.driver)


@dataclass(frozen=True, slots=True)
class _SqlalchemyAsync:
    connection: Any
    is_async: bool = True

    async def run(self, work: Callable[[Driver], Coroutine[Any, Any, T]]) -> T:
        answer: T = await self.connection.run_sync(
            lambda sync_side: run_now(work(SqlalchemyDriver(sync_side)))
        )
        return answer


WAYS: Final[dict[tuple[str, str], Callable[[Any], Foreign]]] = {
    ("asyncpg", "Connection"): lambda it: _Direct(AsyncpgDriver(it), True),
    ("asyncpg", "PoolConnectionProxy"): lambda it: _Direct(AsyncpgDriver(it), True),
    ("psycopg", "AsyncConnection"): lambda it: _Direct(AsyncPsycopgDriver(it), True),
    ("psycopg", "Connection"): lambda it: _Direct(PsycopgDriver(it), False),
    ("psycopg2", "connection"): lambda it: _Direct(Psycopg2Driver(it), False),
    ("sqlalchemy", "AsyncConnection"): _SqlalchemyAsync,
    ("sqlalchemy", "AsyncSession"): _SqlalchemyAsync,
    ("sqlalchemy", "Connection"): lambda it: _Direct(SqlalchemyDriver(it), False),
    ("sqlalchemy", "Session"): lambda it: _Direct(SqlalchemyDriver(it), False),
    ("django", "BaseDatabaseWrapper"): lambda it: _Direct(DjangoDriver(it), False),
    ("sqlite3", "Connection"): lambda it: _Direct(Sqlite3Driver(it), False),
}
