"""What Holdfast needs from a connection of the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeGuard, TypeVar

from holdfast.domain.errors import BadArguments

T = TypeVar("T")
Dialect = Literal["PostgreSQL", "SQLite"]
Row = Mapping[str, Any]

_DIALECTS: dict[str, Dialect] = {"postgresql": "PostgreSQL", "sqlite": "SQLite"}


class Driver(Protocol):
    """A connection, in its own thread, task or greenlet.

    In drivers that block, these coroutines never wait: see `run_now`.
    """

    @property
    def dialect(self) -> Dialect: ...

    async def join(self) -> None:
        """Reject a connection in autocommit; begin if the driver would do so with the next
        statement."""

    async def begin(self) -> None:
        """Begin a transaction, or reject a connection whose transaction `commit` would not end."""

    async def flush(self) -> None:
        """Send the pending changes of an object-relational mapper."""

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...


class PostgresDriver(Driver, Protocol):
    @property
    def session(self) -> object:
        """What lives as long as the session with the server."""

    async def fetch(self, sql: str, values: Sequence[str | None]) -> Sequence[Row]:
        """Run a statement with the placeholders `$1`, `$2`."""


class SqliteDriver(Driver, Protocol):
    def execute(self, sql: str, values: Any = ()) -> Any:
        """As on `sqlite3.Connection`."""


def dialect_of(database: str) -> Dialect:
    if database not in _DIALECTS:
        raise BadArguments(f"jobs can't be stored in {database}; use PostgreSQL or SQLite")
    return _DIALECTS[database]


def speaks_postgres(driver: Driver) -> TypeGuard[PostgresDriver]:
    return driver.dialect == "PostgreSQL"


def speaks_sqlite(driver: Driver) -> TypeGuard[SqliteDriver]:
    return driver.dialect == "SQLite"


class Foreign(Protocol):
    """Runs work on a connection's driver, where that connection can be used."""

    @property
    def is_async(self) -> bool: ...

    async def run(self, work: Callable[[Driver], Coroutine[Any, Any, T]]) -> T: ...


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, with or without an event loop."""
    try:
        work.send(None)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    work.close()
    raise RuntimeError("the coroutine waited")


async def finish(task: asyncio.Task[T]) -> T:
    """Wait for the task even if canceled, and raise the cancellation afterwards."""
    canceled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            canceled = error
    answer = task.result()
    if canceled is not None:
        raise canceled
    return answer
