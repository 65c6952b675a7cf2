"""Connections of the standard library's sqlite3."""

from __future__ import annotations

from typing import Any, Final

from holdfast.transactions.drivers.marks import mark_file
from holdfast.transactions.drivers.protocol import Dialect
from holdfast.transactions.drivers.refusals import in_transaction, not_in_transaction

# The lock is taken at once: a transaction that reads first and is refused the lock later would have
# to start over, and SQLite does not wait for it.
BEGIN: Final = "BEGIN IMMEDIATE"


class Sqlite3Driver:
    dialect: Final[Dialect] = "SQLite"

    def __init__(self, connection: Any, begin: str = BEGIN) -> None:
        self._connection = connection
        self._begin = begin

    def execute(self, sql: str, values: Any = ()) -> Any:
        cursor = self._connection.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, values)

    async def join(self) -> None:
        if must_begin(self._connection, "begin one with `BEGIN`"):
            self.execute(BEGIN)

    async def begin(self) -> None:
        if not begins_by_itself(self._connection):
            if self._connection.in_transaction:
                raise in_transaction("a transaction")
            self.execute(self._begin)
        mark_file(self)

    async def flush(self) -> None:
        return None

    async def commit(self) -> None:
        if begins_by_itself(self._connection):
            self._connection.commit()
        else:
            self.execute("COMMIT")

    async def rollback(self) -> None:
        if begins_by_itself(self._connection):
            self._connection.rollback()
        elif self._connection.in_transaction:
            self.execute("ROLLBACK")


def begins_by_itself(connection: Any) -> bool:
    """Is it one with `autocommit=False`, which is always in a transaction?"""
    return getattr(connection, "autocommit", None) is False


def must_begin(connection: Any, how: str) -> bool:
    """Would the driver begin a transaction with the next change? It does not see every kind."""
    if connection.in_transaction:
        return False
    if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
        raise not_in_transaction(how)
    return True
