"""Connections of the standard library's `sqlite3`."""

from __future__ import annotations

from typing import Any, Final

from holdfast.transactions.drivers.marks import mark
from holdfast.transactions.drivers.protocol import Dialect
from holdfast.transactions.drivers.refusals import in_transaction, not_in_transaction

# Take the lock at once: a transaction that reads first and is denied it later must start over,
# and SQLite does not wait for it.
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
        if not is_always_in_transaction(self._connection):
            if self._connection.in_transaction:
                raise in_transaction("a transaction")
            self.execute(self._begin)
        await mark(self)

    async def flush(self) -> None:
        return None

    async def commit(self) -> None:
        if is_always_in_transaction(self._connection):
            self._connection.commit()
        else:
            self.execute("COMMIT")

    async def rollback(self) -> None:
        if is_always_in_transaction(self._connection):
            self._connection.rollback()
        elif self._connection.in_transaction:
            self.execute("ROLLBACK")


def is_always_in_transaction(connection: Any) -> bool:
    """Whether it has `autocommit=False` and so is always in a transaction."""
    return getattr(connection, "autocommit", None) is False


def must_begin(connection: Any, how: str) -> bool:
    """Whether the driver would begin with the next change; it does not notice every kind."""
    if connection.in_transaction:
        return False
    if connection.isolation_level is None or getattr(connection, "autocommit", None) is True:
        raise not_in_transaction(how)
    return True
