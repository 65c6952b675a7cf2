"""Connections and sessions of SQLAlchemy 2, on PostgreSQL and SQLite.

The async ones run the same code: SQLAlchemy passes their sync side to a function.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from holdfast.domain.errors import BadArguments
from holdfast.transactions.drivers.marks import mark
from holdfast.transactions.drivers.placeholders import colon_style, named
from holdfast.transactions.drivers.protocol import Dialect, Row, dialect_of
from holdfast.transactions.drivers.refusals import in_transaction, not_in_transaction
from holdfast.transactions.drivers.sqlite import BEGIN, must_begin

_READ_COMMITTED = 'use `execution_options(isolation_level="READ COMMITTED")`'
_NO_AUTOCOMMIT = 'use an isolation level other than "AUTOCOMMIT"'


class SqlalchemyDriver:
    """`owner` is a Connection or a Session: what begins, commits and rolls back."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    @property
    def dialect(self) -> Dialect:
        return dialect_of(self._bind().dialect.name)

    @property
    def session(self) -> object:
        driver_connection: object = self._connection().connection.driver_connection
        return driver_connection

    async def fetch(self, sql: str, values: Sequence[str | None]) -> Sequence[Row]:
        text = import_module("sqlalchemy").text
        result = self._connection().execute(text(colon_style(sql)), named(values))
        return [row._mapping for row in result] if result.returns_rows else []

    def execute(self, sql: str, values: Any = ()) -> Any:
        given = values if isinstance(values, dict) else tuple(values)
        result = self._connection().exec_driver_sql(sql, given)
        return result.cursor if result.returns_rows else result

    async def join(self) -> None:
        connection = self._connection()
        if self.dialect == "SQLite":
            # SQLAlchemy begins with the first statement, but pysqlite only with the first change.
            connection.exec_driver_sql("SELECT 1")
            if must_begin(connection.connection.driver_connection, _NO_AUTOCOMMIT):
                connection.exec_driver_sql(BEGIN)
        elif connection.connection.dbapi_connection.autocommit:
            raise not_in_transaction(_NO_AUTOCOMMIT)

    async def begin(self) -> None:
        owner = self._owner
        if owner.in_nested_transaction():
            raise in_transaction("a savepoint")
        if _is_in_block(owner):
            raise in_transaction("a `begin()` block")
        if not _is_connection(owner) and _is_connection(self._bind()):
            raise BadArguments(
                "the session is bound to a connection, whose transaction it would not commit; pass"
                " the connection itself, or a session that is bound to an engine"
            )
        await self.join()
        await mark(self, _READ_COMMITTED)

    async def flush(self) -> None:
        if not _is_connection(self._owner):
            self._owner.flush()

    async def commit(self) -> None:
        self._owner.commit()

    async def rollback(self) -> None:
        self._owner.rollback()

    def _bind(self) -> Any:
        return self._owner if _is_connection(self._owner) else self._owner.get_bind()

    def _connection(self) -> Any:
        return self._owner if _is_connection(self._owner) else self._owner.connection()


def _is_in_block(owner: Any) -> bool:
    """Whether the caller began the transaction, and not the library on its own."""
    if _is_connection(owner):
        # SQLAlchemy has no public name for it. If it renames this, fail loudly: with a default, we
        # would accept blocks that we can't commit.
        return owner._trans_context_manager is not None
    transaction = owner.get_transaction()
    return transaction is not None and transaction.origin.name != "AUTOBEGIN"


def _is_connection(owner: Any) -> bool:
    return hasattr(owner, "exec_driver_sql")
