"""Django connections, on PostgreSQL and SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from holdfast.domain.errors import BadArguments
from holdfast.transactions.drivers.marks import mark
from holdfast.transactions.drivers.placeholders import named, percent_style
from holdfast.transactions.drivers.postgres import rows_of
from holdfast.transactions.drivers.protocol import Dialect, Row, dialect_of
from holdfast.transactions.drivers.refusals import in_transaction, not_in_transaction
from holdfast.transactions.drivers.sqlite import BEGIN, must_begin

_READ_COMMITTED = "leave `isolation_level` out of the database's `OPTIONS`, or set READ_COMMITTED"
_ATOMIC = "open one with `transaction.atomic()`"


class DjangoDriver:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._atomic: Any = None

    @property
    def dialect(self) -> Dialect:
        return dialect_of(self._connection.vendor)

    @property
    def session(self) -> object:
        connection: object = self._connection.connection
        return connection

    async def fetch(self, sql: str, values: Sequence[str | None]) -> Sequence[Row]:
        with self._connection.cursor() as cursor:
            cursor.execute(percent_style(sql), named(values))
            return rows_of(cursor)

    def execute(self, sql: str, values: Any = ()) -> Any:
        self._connection.validate_no_broken_transaction()
        return self._connection.connection.execute(sql, values)

    async def join(self) -> None:
        connection = self._connection
        connection.ensure_connection()
        if connection.get_autocommit() and not connection.in_atomic_block:
            raise not_in_transaction(_ATOMIC)
        if self.dialect == "SQLite" and must_begin(connection.connection, _ATOMIC):
            self.execute(BEGIN)

    async def begin(self) -> None:
        connection = self._connection
        if connection.in_atomic_block:
            raise in_transaction("an `atomic()` block")
        if not connection.get_autocommit():
            raise BadArguments(
                "the connection's autocommit is off, so Django would not commit at the end of the"
                " block; turn it on: the block is a transaction of its own"
            )
        atomic = import_module("django.db.transaction").atomic
        self._atomic = atomic(using=connection.alias, durable=True)
        self._atomic.__enter__()
        await mark(self, _READ_COMMITTED)

    async def flush(self) -> None:
        return None

    async def commit(self) -> None:
        self._atomic.__exit__(None, None, None)

    async def rollback(self) -> None:
        if self._connection.in_atomic_block:
            undone = RuntimeError("rolled back")
            self._atomic.__exit__(type(undone), undone, None)
