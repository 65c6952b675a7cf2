"""A connection to the file for a transaction of the application."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from holdfast.domain.errors import StoreRefused, WrongState
from holdfast.runtime.seam import Seam
from holdfast.stores.sqlite.connections import Database, Opened
from holdfast.stores.sqlite.forks import Usage
from holdfast.stores.sqlite.place import Displaced
from holdfast.stores.sqlite.rows import adapted
from holdfast.transactions.drivers import Driver, run_now
from holdfast.transactions.drivers.sqlite import BEGIN, Sqlite3Driver

T = TypeVar("T")


@dataclass(slots=True)
class _Block:
    path: str
    is_open: bool = True


# The blocks around this task that keep a file locked: another write to it would wait for itself. A
# task that outlives a block has a copy of this tuple, so the block itself notes its end.
_blocks: ContextVar[tuple[_Block, ...]] = ContextVar("holdfast_blocks", default=())


@contextmanager
def writing(path: str) -> Iterator[None]:
    block = _Block(path)
    _blocks.set((*(other for other in _blocks.get() if other.is_open), block))
    try:
        yield
    finally:
        block.is_open = False


def check_not_writing(path: str) -> None:
    if any(block.is_open and block.path == path for block in _blocks.get()):
        raise StoreRefused(
            f"{path} is locked by the ctx.completing() or hf.transaction() block around this call,"
            " which would wait for itself; use the block's connection, as with"
            " options(connection=...), or make the call before or after the block"
        )


@dataclass(slots=True)
class _Call:
    action: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)

    def run(self) -> None:
        try:
            self.future.set_result(self.action())
        except BaseException as error:
            self.future.set_exception(error)


class SqliteConnection:
    """A connection for applications, with the methods of a PostgreSQL connection.

    Parameters are `$1`, `$2`, ... or `?`. Statements run on a separate thread. `now()` and
    `in_seconds(...)` return the time by the store's clock.
    """

    dialect: Final = "sqlite"

    def __init__(self, seam: Seam, database: Database, read_only: bool) -> None:
        self._database = database
        self._read_only = read_only
        self._is_closed = False
        self._opened: Opened | None = None
        self._usage = Usage(database.path, lambda: self._opened is None)
        self._thread = seam.thread("holdfast-completing", self._work)

    async def execute(self, query: str, *args: Any) -> int:
        """Run a statement; return the number of rows that it changed."""
        return await self.do(lambda: self._count(query, args))

    async def fetch(self, query: str, *args: Any) -> list[sqlite3.Row]:
        return await self.do(lambda: self._execute(query, args).fetchall())

    async def fetchrow(self, query: str, *args: Any) -> sqlite3.Row | None:
        return await self.do(lambda: self._execute(query, args).fetchone())

    async def fetchval(self, query: str, *args: Any) -> Any:
        row = await self.fetchrow(query, *args)
        return None if row is None else row[0]

    async def do(self, action: Callable[[], T]) -> T:
        if self._is_closed:
            raise WrongState("the transaction of this connection has ended")
        call = _Call(action)
        self._thread.put(call)
        answer: T = await asyncio.shield(asyncio.wrap_future(call.future))
        return answer

    def __holdfast_foreign__(self) -> _OnThread:
        return _OnThread(self)

    @property
    def driver(self) -> Driver:
        return Sqlite3Driver(self._connected, "BEGIN" if self._read_only else BEGIN)

    def connect(self) -> None:
        database = self._database
        connect = database.connect_reader if self._read_only else database.connect_application
        self._opened = connect()
        connection = self._opened.connection
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA foreign_keys = ON")
        connection.create_function("now", 0, database.now_in_words)
        connection.create_function("in_seconds", 1, database.now_in_words)

    def end(self) -> None:
        """Close the connection, which rolls back an open transaction."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.connection.close()

    def check(self) -> None:
        """Raise Displaced if the commit is not in the file at its path."""
        assert self._opened is not None
        self._opened.check()

    def close(self) -> None:
        self._is_closed = True
        self._thread.close()

    def _count(self, query: str, args: tuple[Any, ...]) -> int:
        cursor = self._execute(query, args)
        # SQLite counts the rows of a RETURNING only as they are read.
        cursor.fetchall()
        return max(cursor.rowcount, 0)

    def _execute(self, query: str, args: tuple[Any, ...]) -> sqlite3.Cursor:
        values = [adapted(arg) for arg in args]
        if "$1" in query:
            named = {str(number): value for number, value in enumerate(values, 1)}
            return self._connected.execute(query, named)
        return self._connected.execute(query, values)

    @property
    def _connected(self) -> sqlite3.Connection:
        assert self._opened is not None
        return self._opened.connection

    def _work(self, calls: list[_Call]) -> None:
        for call in calls:
            with self._usage.lock:
                call.run()


@dataclass(frozen=True, slots=True)
class _OnThread:
    connection: SqliteConnection
    is_async: bool = True

    async def run(self, work: Callable[[Driver], Coroutine[Any, Any, T]]) -> T:
        context = copy_context()  # the work has the context variables of who wants it
        return await self.connection.do(
            lambda: context.run(lambda: run_now(work(self.connection.driver)))
        )


@asynccontextmanager
async def open_connection(
    seam: Seam, database: Database, read_only: bool
) -> AsyncIterator[SqliteConnection]:
    if not read_only:
        check_not_writing(database.path)
    connection = SqliteConnection(seam, database, read_only)
    try:
        try:
            await connection.do(connection.connect)
        except (sqlite3.Error, Displaced) as error:
            raise database.translated(error) from error
        yield connection
        try:
            await connection.do(connection.check)
        except Displaced as error:
            raise database.translated(error) from error
    finally:
        # In a separate task: a second cancel of the handler must not leave the thread behind.
        await asyncio.shield(asyncio.ensure_future(_end(connection)))


async def _end(connection: SqliteConnection) -> None:
    await connection.do(connection.end)
    connection.close()
