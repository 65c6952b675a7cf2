"""The store's verbs on a caller's connection to the same file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any, cast
from uuid import UUID

from holdfast.domain.errors import BadArguments
from holdfast.domain.job import Job, NewJob, Receipt, Settlement, cancel_reason
from holdfast.domain.scope import scoped_tenant
from holdfast.stores.protocol import AfterCommit, Canceled
from holdfast.stores.sqlite import enqueue, jobs, queries, settle
from holdfast.stores.sqlite.connections import Database
from holdfast.stores.sqlite.rows import SQL
from holdfast.stores.sqlite.threads import Transaction
from holdfast.transactions.drivers import Driver, SqliteDriver, speaks_sqlite
from holdfast.transactions.drivers.failures import is_of_driver, unwrapped
from holdfast.transactions.drivers.marks import check_mark
from holdfast.wakeups.local import LocalSignals
from holdfast.wakeups.protocol import Wakeup


class SqliteEnrolled:
    def __init__(
        self, driver: Driver, database: Database, after_commit: AfterCommit | None
    ) -> None:
        self._driver = driver
        self._database = database
        self._after_commit = after_commit

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        with self._savepoint() as transaction:
            return enqueue.enqueue(transaction, jobs)

    async def get(self, job_id: UUID) -> Job | None:
        with self._transaction() as transaction:
            return queries.get(transaction.connection, job_id, scoped_tenant())

    async def settle(self, settlement: Settlement) -> bool:
        with self._transaction() as transaction:
            await check_mark(self._driver)
            return not settle.settle(transaction, [settlement])

    async def cancel(
        self, job_ids: Sequence[UUID], *, by: str | None = None, because: str | None = None
    ) -> Sequence[Canceled]:
        with self._savepoint() as transaction:
            return jobs.cancel(transaction, job_ids, False, cancel_reason(by, because))

    async def retry(self, job_id: UUID) -> bool:
        with self._savepoint() as transaction:
            return jobs.retry(transaction, job_id)

    async def requeue(
        self, job_id: UUID, new_id: UUID, *, arguments: bytes | None = None, once: bool = False
    ) -> bool:
        with self._savepoint() as transaction:
            return jobs.requeue(transaction, job_id, new_id, arguments, once)

    async def requeued(self, job_ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
        with self._transaction() as transaction:
            return queries.requeued(transaction.connection, job_ids)

    async def wake(self, queue: str) -> None:
        with self._transaction() as transaction:
            transaction.wake_queues([queue])

    @contextmanager
    def _savepoint(self) -> Iterator[Transaction]:
        """All or nothing, even if the caller catches the error and commits."""
        with self._transaction() as transaction:
            transaction.connection.execute("SAVEPOINT holdfast")
            try:
                yield transaction
            except BaseException:
                # A full disk has already undone everything, including the savepoint.
                with suppress(sqlite3.Error):
                    transaction.connection.execute("ROLLBACK TO holdfast")
                    transaction.connection.execute("RELEASE holdfast")
                raise
            transaction.connection.execute("RELEASE holdfast")

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
            transaction = Transaction(connection, self._database.now(), self._database.retention)
            yield transaction
            # If nobody sees the commit, workers find the jobs at their next poll.
            if transaction.wakeups and self._after_commit is not None:
                self._after_commit(partial(self._wake, transaction.wakeups))
        except sqlite3.Error as error:
            raise self._database.translated(error) from error

    def _wake(self, wakeups: Sequence[Wakeup]) -> None:
        with closing(LocalSignals(self._database.path)) as signals:
            signals.send(wakeups)

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
