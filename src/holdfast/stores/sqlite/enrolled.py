"""The store's verbs on a caller's connection to the same file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, cast
from uuid import UUID

from holdfast.domain.errors import BadArguments
from holdfast.domain.job import Job, NewJob, Receipt, Settlement
from holdfast.stores.sqlite import enqueue, queries, settle
from holdfast.stores.sqlite.connections import Database
from holdfast.stores.sqlite.rows import SQL
from holdfast.stores.sqlite.threads import Transaction
from holdfast.transactions.drivers import Driver, SqliteDriver, speaks_sqlite
from holdfast.transactions.drivers.failures import is_of_driver, unwrapped
from holdfast.transactions.drivers.marks import check_mark


class SqliteEnrolled:
    def __init__(self, driver: Driver, database: Database) -> None:
        self._driver = driver
        self._database = database

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        with self._transaction() as transaction:
            # All or none, even if the caller catches the error and commits.
            transaction.connection.execute("SAVEPOINT holdfast")
            try:
                receipts = enqueue.enqueue(transaction, jobs)
            except BaseException:
                # A full disk has already undone everything, including the savepoint.
                with suppress(sqlite3.Error):
                    transaction.connection.execute("ROLLBACK TO holdfast")
                    transaction.connection.execute("RELEASE holdfast")
                raise
            transaction.connection.execute("RELEASE holdfast")
            return receipts

    async def get(self, job_id: UUID) -> Job | None:
        with self._transaction() as transaction:
            return queries.get(transaction.connection, job_id)

    async def settle(self, settlement: Settlement) -> bool:
        with self._transaction() as transaction:
            await check_mark(self._driver)
            return not settle.settle(transaction, [settlement])

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        if not speaks_sqlite(self._driver):
            raise BadArguments(
                f"the connection is to {self._driver.dialect}, but the jobs are in the SQLite file"
                f" {self._database.path}"
            )
        connection = cast(sqlite3.Connection, _Connection(self._driver))
        try:
            self._check_file(connection)
            # The caller's commit wakes nobody: workers find the jobs at their next poll.
            yield Transaction(connection, self._database.now(), self._database.retention)
        except sqlite3.Error as error:
            raise self._database.translated(error) from error

    def _check_file(self, connection: sqlite3.Connection) -> None:
        (file,) = connection.execute(SQL["file"].sql).fetchone()
        file = os.fsdecode(file)
        if not file or os.path.realpath(file) != os.path.realpath(self._database.path):
            raise BadArguments(
                f"the connection is to {file or 'an in-memory database'}, but the jobs are in"
                f" {os.path.realpath(self._database.path)}"
            )


class _Connection:
    """The part of sqlite3's connection that statements need, raising sqlite3's errors."""

    def __init__(self, driver: SqliteDriver) -> None:
        self._driver = driver

    def execute(self, sql: str, values: Any = ()) -> Any:
        try:
            return self._driver.execute(sql, values)
        except Exception as error:
            inner = unwrapped(error)
            if inner is error or not is_of_driver(inner):
                raise
            raise inner from error
