"""A handler's own writes and its job's success, in one transaction of an SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from holdfast.domain.job import Settlement
from holdfast.seam import Seam
from holdfast.stores.sqlite import leasing
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.lanes import Transaction

T = TypeVar("T")
# The file that this task holds locked: another write to it from here would wait for itself.
locked_path: ContextVar[str | None] = ContextVar("holdfast_locked_path", default=None)


@dataclass(slots=True)
class _Call:
    action: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)


class SqliteConnection:
    """What a handler writes through: the calls that it would make on a PostgreSQL connection.

    Parameters are `$1`, `$2`, ... or `?`. The statements run on a thread of their own.
    """

    def __init__(self, seam: Seam, database: Database) -> None:
        self._database = database
        self._connection: sqlite3.Connection
        self._lane = seam.lane("holdfast-completing", _work)

    async def execute(self, query: str, *args: Any) -> int:
        """Run a statement; answer the number of rows that it changed."""
        return await self.do(lambda: self._execute(query, args).rowcount)

    async def fetch(self, query: str, *args: Any) -> list[sqlite3.Row]:
        return await self.do(lambda: self._execute(query, args).fetchall())

    async def fetchrow(self, query: str, *args: Any) -> sqlite3.Row | None:
        return await self.do(lambda: self._execute(query, args).fetchone())

    async def fetchval(self, query: str, *args: Any) -> Any:
        row = await self.fetchrow(query, *args)
        return None if row is None else row[0]

    async def do(self, action: Callable[[], T]) -> T:
        call = _Call(action)
        self._lane.put(call)
        answer: T = await asyncio.shield(asyncio.wrap_future(call.future))
        return answer

    def begin(self) -> None:
        # The lock is taken at once: a transaction that reads first and is refused the lock later
        # would have to start over.
        self._connection = self._database.connect_writer()
        self._connection.row_factory = sqlite3.Row
        self._connection.execute("BEGIN IMMEDIATE")

    def settle(self, settlement: Settlement) -> bool:
        self._connection.row_factory = None
        transaction = Transaction(self._connection, self._database.now())
        return not leasing.settle(transaction, [settlement])

    def commit(self) -> None:
        self._connection.execute("COMMIT")

    def end(self) -> None:
        """Close the connection, which rolls back what was not committed."""
        if hasattr(self, "_connection"):
            self._connection.close()

    def close(self) -> None:
        self._lane.close()

    def _execute(self, query: str, args: tuple[Any, ...]) -> sqlite3.Cursor:
        if "$1" in query:
            return self._connection.execute(query, {str(n): arg for n, arg in enumerate(args, 1)})
        return self._connection.execute(query, args)


class SqliteCompletion:
    def __init__(self, connection: SqliteConnection) -> None:
        self.connection = connection

    async def settle(self, settlement: Settlement) -> bool:
        return await self.connection.do(lambda: self.connection.settle(settlement))


@asynccontextmanager
async def completing(seam: Seam, database: Database) -> AsyncIterator[SqliteCompletion]:
    connection = SqliteConnection(seam, database)
    try:
        await _translated(database, connection.do(connection.begin))
        token = locked_path.set(database.path)
        try:
            yield SqliteCompletion(connection)
        finally:
            locked_path.reset(token)
        await _translated(database, connection.do(connection.commit))
    finally:
        # In a task of its own: a handler that is cancelled once more must not leave the thread.
        await asyncio.shield(asyncio.ensure_future(_end(connection)))


async def _end(connection: SqliteConnection) -> None:
    await connection.do(connection.end)
    connection.close()


async def _translated(database: Database, work: Any) -> None:
    try:
        await work
    except sqlite3.Error as error:
        raise database.translated(error) from error


def _work(calls: list[_Call]) -> None:
    for call in calls:
        try:
            call.future.set_result(call.action())
        except BaseException as error:
            call.future.set_exception(error)
