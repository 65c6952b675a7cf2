"""What Holdfast asks of a connection that is not its own."""

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
    """A connection as its own thread, task or greenlet uses it.

    The methods of drivers that block are coroutines that never wait: see `run_now`.
    """

    @property
    def dialect(self) -> Dialect: ...

    async def join(self) -> None:
        """Refuse a connection that commits each statement by itself; begin where the driver would
        begin with the next statement."""

    async def begin(self) -> None:
        """Begin a transaction that `commit` will end; refuse where it would not."""

    async def flush(self) -> None:
        """Send what an object-relational mapper still holds back."""

    async def commit(self) -> None: ...

    async def rollback(self) -> None: ...


class PostgresDriver(Driver, Protocol):
    async def fetch(self, sql: str, values: Sequence[str | None]) -> Sequence[Row]:
        """Run a statement with `$1`, `$2`."""


class SqliteDriver(Driver, Protocol):
    def execute(self, sql: str, values: Any = ()) -> Any:
        """As on `sqlite3.Connection`."""


def dialect_of(database: str) -> Dialect:
    if database not in _DIALECTS:
        raise BadArguments(f"jobs can't be kept in {database}, only in PostgreSQL and SQLite")
    return _DIALECTS[database]


def speaks_postgres(driver: Driver) -> TypeGuard[PostgresDriver]:
    return driver.dialect == "PostgreSQL"


def speaks_sqlite(driver: Driver) -> TypeGuard[SqliteDriver]:
    return driver.dialect == "SQLite"


class Foreign(Protocol):
    """A way to its driver."""

    @property
    def is_async(self) -> bool: ...

    async def run(self, work: Callable[[Driver], Coroutine[Any, Any, T]]) -> T: ...


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing, with or without an event loop."""
    try:
        work.send(None)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    work.close()
    raise RuntimeError("the work waited for something")


async def to_its_end(task: asyncio.Task[T]) -> T:
    """Wait for the task even while being canceled; the cancellation is raised afterwards."""
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
