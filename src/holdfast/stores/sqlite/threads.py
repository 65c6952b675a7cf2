"""Threads that own a connection: one writes, with group commit, and one reads."""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.retention import Retention
from holdfast.runtime.seam import Seam
from holdfast.stores.sqlite.connections import Database, Opened, is_full
from holdfast.stores.sqlite.forks import Usage
from holdfast.stores.sqlite.place import Displaced
from holdfast.stores.sqlite.rows import SQL
from holdfast.wakeups.protocol import Wakeup

T = TypeVar("T")
C = TypeVar("C")

CLOSE_SECONDS_MAX = 5.0


@dataclass(slots=True)
class Transaction:
    """What a write works with: the connection, the time, how long to keep ended jobs, and whom to
    wake after the commit."""

    connection: sqlite3.Connection
    now: int
    retention: Retention
    wakeups: list[Wakeup] = field(default_factory=list)

    def execute(self, name: str, /, **values: object) -> sqlite3.Cursor:
        """Run a statement by name; `:now` is always bound."""
        return self.connection.execute(SQL[name].sql, {"now": self.now, **values})

    def fetch_json(self, name: str, /, **values: object) -> str:
        """Run a statement that returns all its rows as one JSON array."""
        rows: str = self.execute(name, **values).fetchone()[0]
        return rows

    def wake_queues(self, queues: Iterable[str]) -> None:
        self.wakeups += [Wakeup(queue=queue) for queue in queues]


@dataclass(slots=True)
class _Call(Generic[C]):
    """Something to do on a thread, and where its answer goes. No action means: disconnect."""

    action: Callable[[C], Any] | None
    future: asyncio.Future[Any] | None  # None: nobody waits

    @property
    def is_canceled(self) -> bool:
        return self.future is not None and self.future.cancelled()

    def answer(self, value: Any = None, error: Exception | None = None) -> None:
        _answer_all([(self, _Answer(value, error=error))])


@dataclass(slots=True)
class _Answer:
    value: Any = None
    wakeups: list[Wakeup] = field(default_factory=list)
    error: Exception | None = None


def _answer_all(answers: Iterable[tuple[_Call[Any], _Answer]]) -> None:
    """Hand the answers to the waiting event loops, unless those are closed. Each is woken once: so
    those who waited for the same commit also go on together, and share the next one."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], _Answer]]] = {}
    for call, answer in answers:
        if call.future is not None:
            by_loop.setdefault(call.future.get_loop(), []).append((call.future, answer))
    for loop, resolved in by_loop.items():
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve, resolved)


def _resolve(answers: Iterable[tuple[asyncio.Future[Any], _Answer]]) -> None:
    for future, answer in answers:
        if future.done():
            continue
        if answer.error is not None:
            future.set_exception(answer.error)
        else:
            future.set_result(answer.value)


class _ConnectionThread(ABC, Generic[C]):
    """A thread that connects on its first call, and again after its connection was closed."""

    def __init__(
        self, seam: Seam, name: str, database: Database, connect: Callable[[], Opened]
    ) -> None:
        self._database = database
        self._connect = connect
        self._opened: Opened | None = None
        self._closed = False
        self._usage = Usage(database.path, self._disconnect)
        self._thread = seam.thread(name, self._work)

    async def run(self, action: Callable[[C], T]) -> T:
        if self._closed:
            raise StoreUnavailable(f"the store on {self._database.path} is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._thread.put(_Call(action, future))
        return await future

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._thread.put(_Call(None, idle))
        # Closing a busy thread would block this event loop. If another process keeps the file
        # locked for too long, leave the thread to end on its own.
        await asyncio.wait({idle}, timeout=CLOSE_SECONDS_MAX)
        self._thread.close(wait=idle.done())

    def abandon(self) -> None:
        """Close without waiting: see `Store.abandon`."""
        if not self._closed:
            self._closed = True
            self._thread.put(_Call(None, None))
            self._thread.close(wait=False)

    def _work(self, calls: list[_Call[C]]) -> None:
        with self._usage.lock:
            try:
                self._work_undisturbed(calls)
            except Exception as error:
                # Out of memory, for example. Every caller needs an answer, and the thread must
                # survive, or its callers wait forever.
                self._disconnect()
                for call in calls:
                    call.answer(error=error if call.action is not None else None)

    def _work_undisturbed(self, calls: list[_Call[C]]) -> None:
        wanted = [call for call in calls if not call.is_canceled]
        actions = [call for call in wanted if call.action is not None]
        if actions:
            try:
                if self._opened is None:
                    self._opened = self._connect()
                self._answer(self._opened, actions)
            except Displaced as error:
                self._disconnect()
                self._fail(actions, error)
            except Exception as error:
                self._roll_back()
                if is_full(error):
                    self._empty_log()
                self._fail(actions, error)
        for call in wanted:
            if call.action is None:
                self._disconnect()
                call.answer()

    @abstractmethod
    def _answer(self, opened: Opened, calls: list[_Call[C]]) -> None:
        """Run the calls. Answer each only after checking that the file is still at its path."""

    def _fail(self, calls: Iterable[_Call[C]], error: Exception) -> None:
        _answer_all((call, _Answer(error=self._translated(error))) for call in calls)

    def _translated(self, error: Exception) -> Exception:
        translated = self._database.translated(error)
        if translated is not error:
            translated.__cause__ = error
        return translated

    def _roll_back(self) -> None:
        """Leave no transaction open; drop a connection that can't even roll back."""
        try:
            if self._opened is not None and self._opened.connection.in_transaction:
                self._opened.connection.execute("ROLLBACK")
        except Exception:
            self._disconnect()

    def _empty_log(self) -> None:
        """Checkpoint the log, so that SQLite writes it from the beginning again. SQLite itself
        does this only after a commit, and a full disk has no room for one."""
        if self._opened is not None:
            with suppress(sqlite3.Error):
                self._opened.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _disconnect(self) -> bool:
        if self._opened is not None:
            self._opened.connection.close()
            self._opened = None
        return True


class ReadThread(_ConnectionThread[sqlite3.Connection]):
    """Answer calls one by one. Write-ahead logging lets them read while others write."""

    def _answer(self, opened: Opened, calls: list[_Call[sqlite3.Connection]]) -> None:
        for call in calls:
            assert call.action is not None
            try:
                answer = call.action(opened.connection)
                opened.check()
            except Displaced:
                raise
            except Exception as error:
                self._fail([call], error)
            else:
                call.answer(answer)


class WriteThread(_ConnectionThread[Transaction]):
    """Run all waiting calls in one transaction, and answer them after its commit.

    Each call runs in its own savepoint: a call that fails leaves no trace and harms no other.
    """

    def __init__(
        self,
        seam: Seam,
        name: str,
        database: Database,
        connect: Callable[[], Opened],
        send: Callable[[Iterable[Wakeup]], None],
    ) -> None:
        self._send = send
        super().__init__(seam, name, database, connect)

    def _answer(self, opened: Opened, calls: list[_Call[Transaction]]) -> None:
        connection = opened.connection
        connection.execute("BEGIN IMMEDIATE")
        # Read under the lock, so that a later commit never has an earlier time.
        now = self._database.now()
        run = self._run if len(calls) == 1 else self._run_guarded
        retention = self._database.retention
        answers = [run(call, Transaction(connection, now, retention)) for call in calls]
        connection.execute("COMMIT")
        opened.check()
        _answer_all(zip(calls, answers, strict=True))
        wakeups = dict.fromkeys(wakeup for answer in answers for wakeup in answer.wakeups)
        if wakeups:
            self._send(wakeups)

    def _run(self, call: _Call[Transaction], transaction: Transaction) -> _Answer:
        assert call.action is not None
        return _Answer(call.action(transaction), transaction.wakeups)

    def _run_guarded(self, call: _Call[Transaction], transaction: Transaction) -> _Answer:
        connection = transaction.connection
        connection.execute("SAVEPOINT call")
        try:
            answer = self._run(call, transaction)
        except Exception as error:
            if not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO call")
            answer = _Answer(error=self._translated(error))
        connection.execute("RELEASE call")
        return answer
