"""Drivers for PostgreSQL only: asyncpg, psycopg, psycopg2."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from holdfast.domain.errors import BadArguments
from holdfast.transactions.drivers.marks import mark
from holdfast.transactions.drivers.placeholders import named, percent_style
from holdfast.transactions.drivers.protocol import Dialect, Row, finish
from holdfast.transactions.drivers.refusals import in_transaction, not_in_transaction

_OPEN_ONE: Final = "open one with `connection.transaction()`"
_PSYCOPG_LEVEL: Final = "set `connection.isolation_level = IsolationLevel.READ_COMMITTED`"
_PSYCOPG2_LEVEL: Final = 'call `connection.set_session(isolation_level="READ COMMITTED")`'


class _PostgresDriver:
    dialect: Final[Dialect] = "PostgreSQL"

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._transaction: Any = None

    @property
    def session(self) -> object:
        return self._connection

    async def flush(self) -> None:
        return None


class AsyncpgDriver(_PostgresDriver):
    @property
    def session(self) -> object:
        # A pool lends the connection in a new proxy each time.
        return getattr(self._connection, "_con", self._connection)

    async def fetch(self, sql: str, values: Sequence[str | None]) -> Sequence[Row]:
        rows: Sequence[Row] = await self._connection.fetch(sql, *values)
        return rows

    async def join(self) -> None:
        if not self._connection.is_in_transaction():
            raise not_in_transaction(_OPEN_ONE)

    async def begin(self) -> None:
        if self._connection.is_in_transaction():
            raise in_transaction("a transaction")
        # DEFERRABLE is its mark: see in_block.sql.
        self._transaction = self._connection.transaction(
            isolation="read_committed", deferrable=True
        )
        # A start that is canceled halfway leaves a transaction open that asyncpg can't end: the
        # next one on this connection would be a savepoint in it, and commit nothing.
        await finish(asyncio.create_task(self._transaction.start()))

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        # Even if somebody ended it: the connection believes that it is still open.
        if self._transaction is not None:
            await self._transaction.rollback()


class _PsycopgDriver(_PostgresDriver):
    @property
    def _is_idle(self) -> bool:
        return bool(self._connection.info.transaction_status.name == "IDLE")

    async def join(self) -> None:
        self._refuse_pipeline()
        if self._connection.autocommit and self._is_idle:
            raise not_in_transaction(_OPEN_ONE)

    def _refuse_pipeline(self) -> None:
        if self._connection.pgconn.pipeline_status:
            raise BadArguments(
                "the connection is in pipeline mode, which delays answers; enqueue, or complete the"
                " job, outside `connection.pipeline()`"
            )

    def _taken(self) -> Any:
        """The transaction, to be exited only once: the connection counts."""
        transaction, self._transaction = self._transaction, None
        return transaction

    def _make_transaction(self) -> Any:
        self._refuse_pipeline()
        if not self._is_idle:
            raise in_transaction("a transaction")
        return self._connection.transaction()

    def _cursor(self, kind: str) -> Any:
        """A plain cursor, whatever factories the connection has."""
        make = getattr(import_module("psycopg"), kind)
        return make(self._connection, row_factory=import_module("psycopg.rows").dict_row)


class PsycopgDriver(_PsycopgDriver):
    async def fetch(self, sql: str, values: Sequence[str | None]) -> Sequence[Row]:
        with self._cursor("Cursor") as cursor:
            cursor.execute(percent_style(sql), named(values))
            return cursor.fetchall() if cursor.description else []

    async def begin(self) -> None:
        self._transaction = self._make_transaction()
        self._transaction.__enter__()
        await mark(self, _PSYCOPG_LEVEL)

    async def commit(self) -> None:
        self._taken().__exit__(None, None, None)

    async def rollback(self) -> None:
        if (transaction := self._taken()) is not None:
            undone = RuntimeError("rolled back")
            transaction.__exit__(type(undone), undone, None)


class AsyncPsycopgDriver(_PsycopgDriver):
    async def fetch(self, sql: str, values: Sequence[str | None]) -> Sequence[Row]:
        async with self._cursor("AsyncCursor") as cursor:
            await cursor.execute(percent_style(sql), named(values))
            return await cursor.fetchall() if cursor.description else []

    async def begin(self) -> None:
        self._transaction = self._make_transaction()
        await self._transaction.__aenter__()
        await mark(self, _PSYCOPG_LEVEL)

    async def commit(self) -> None:
        await self._taken().__aexit__(None, None, None)

    async def rollback(self) -> None:
        if (transaction := self._taken()) is not None:
            undone = RuntimeError("rolled back")
            await transaction.__aexit__(type(undone), undone, None)


class Psycopg2Driver(_PostgresDriver):
    @property
    def _is_idle(self) -> bool:
        return not self._connection.info.transaction_status

    async def fetch(self, sql: str, values: Sequence[str | None]) -> Sequence[Row]:
        plain = import_module("psycopg2.extensions").cursor
        with self._connection.cursor(cursor_factory=plain) as cursor:
            cursor.execute(percent_style(sql), named(values))
            return rows_of(cursor)

    async def join(self) -> None:
        if self._connection.autocommit and self._is_idle:
            raise not_in_transaction("set `connection.autocommit = False`")

    async def begin(self) -> None:
        if not self._is_idle:
            raise in_transaction("a transaction")
        await self.join()
        await mark(self, _PSYCOPG2_LEVEL)

    async def commit(self) -> None:
        self._connection.commit()

    async def rollback(self) -> None:
        self._connection.rollback()


def rows_of(cursor: Any) -> list[Row]:
    """The rows of a plain cursor, as dicts by column name."""
    if cursor.description is None:
        return []
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
