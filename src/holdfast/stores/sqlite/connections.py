"""Connections to the file, and what SQLite's errors mean."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from holdfast.domain.errors import (
    ConfigurationError,
    HoldfastError,
    SchemaMismatch,
    StoreRefused,
    StoreUnavailable,
)
from holdfast.domain.retention import Retention
from holdfast.runtime.seam import Seam
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.forks import check_not_refused
from holdfast.stores.sqlite.place import Displaced, Identity, Place, identify, is_spoiled
from holdfast.stores.sqlite.rows import from_time, to_words

_OLDEST_SQLITE = (3, 37, 0)
_BUSY_TIMEOUT = "PRAGMA busy_timeout = 15000"
# SQLite notes how to undo each statement that changes many rows. A large claim would write these
# notes to a file: a page for every two jobs.
_NOTES_IN_MEMORY = "PRAGMA temp_store = MEMORY"
_SYNCHRONOUS = {
    "NORMAL": "PRAGMA synchronous = NORMAL",
    "FULL": "PRAGMA synchronous = FULL",
}
_WAL_TRIES_MAX = 100
_NO_SCHEMA = ("no such table", "no such column", "no such index")


class Opened(NamedTuple):
    connection: sqlite3.Connection
    place: Place

    def check(self) -> None:
        """Raise Displaced if the connection's file is no longer at its path."""
        self.place.check(self.connection)


class Database:
    """Open connections to one file, and bring its schema to this code's version."""

    def __init__(
        self,
        path: str,
        seam: Seam,
        synchronous: str,
        retention: Retention,
        *,
        read_only: bool = False,
    ) -> None:
        if path == "" or ":memory:" in path or "mode=memory" in path:
            raise ConfigurationError(
                "the connections of a store can't share an in-memory SQLite database;"
                " use a file, such as sqlite:///jobs.db"
            )
        if synchronous.upper() not in _SYNCHRONOUS:
            known = ", ".join(_SYNCHRONOUS)
            raise ConfigurationError(f"synchronous must be one of {known}, not {synchronous!r}")
        self.path = path
        self.retention = retention
        self.steps_taken: list[str] = []
        self._seam = seam
        self.synchronous = synchronous.upper()
        self.read_only = read_only
        self._place: Place | None = None  # of the last connection

    def connect_writer(self) -> Opened:
        return self._open(self._prepare_to_read if self.read_only else self._prepare_writer)

    def connect_application(self) -> Opened:
        """Connect for a transaction of an application."""
        return self._open(self._prepare_to_read if self.read_only else self._prepare_application)

    def connect_reader(self) -> Opened:
        return self._open(self._prepare_to_read if self.read_only else self._prepare_reader)

    def connect_examiner(self) -> Opened:
        """Connect to look at the file as it is: this changes nothing, not even its journal."""
        return self._open(_prepare_examiner)

    def _open(self, prepare: Callable[[sqlite3.Connection], None]) -> Opened:
        connection, identity = self._connect()
        try:
            prepare(connection)
            self._place = Place.find(self.path, identity, self._seam.monotonic)
            self._place.check(connection)
        except BaseException:
            connection.close()
            raise
        return Opened(connection, self._place)

    def now(self) -> int:
        return from_time(self._seam.now())

    def now_in_words(self, seconds: float = 0.0) -> str:
        """The time as application tables store it: see `holdfast.transactions.tables`."""
        return to_words(self._seam.now() + timedelta(seconds=seconds))

    def translated(self, error: Exception) -> Exception:
        """Translate an error of the driver into one of ours."""
        match error:
            case HoldfastError():
                return error
            case Displaced():
                return self._displaced(error)
            case sqlite3.OperationalError() if str(error).startswith(_NO_SCHEMA):
                return SchemaMismatch(
                    f"the schema of {self.path} doesn't fit this code ({error}); run: holdfast"
                    " migrate"
                )
            case sqlite3.OperationalError() if _errorname(error) == "SQLITE_BUSY_SNAPSHOT":
                return StoreUnavailable(
                    f"the transaction on {self.path} can no longer write, because it read before"
                    " others wrote; roll it back, and begin the next one with BEGIN IMMEDIATE"
                )
            case sqlite3.OperationalError() if self.read_only and _is_refused(error):
                return StoreRefused(f"{self.path} was opened for reading only")
            case sqlite3.OperationalError() if is_full(error):
                return StoreUnavailable(
                    f"the disk of {self.path} is full; nothing was written. Work resumes when there"
                    " is space"
                )
            case sqlite3.OperationalError() if _errorname(error).startswith("SQLITE_IOERR"):
                return StoreUnavailable(
                    f"{self.path} can't be read or written: {error}; its disk is full or failing"
                )
            case sqlite3.IntegrityError() | sqlite3.DataError() | sqlite3.InterfaceError():
                return StoreRefused(f"{self.path} refused a value: {error}")
            case UnicodeError() | OverflowError() | ValueError():
                return StoreRefused(f"a value can't be stored in {self.path}: {error}")
            case sqlite3.Error():
                return StoreUnavailable(f"{self.path} can't be used now: {error}")
        return error

    def _displaced(self, error: Displaced) -> HoldfastError:
        if error.is_database:
            return StoreUnavailable(
                f"{self.path} was deleted, moved or replaced while it was in use; the call has"
                " not changed the file that is there now"
            )
        kept = "saved" if error.saved else "possibly lost"
        return ConfigurationError(
            f"{error.path} was deleted while {self.path} was in use, which can corrupt it;"
            f" committed data is {kept}; restart all processes that use it"
        )

    def _connect(self) -> tuple[sqlite3.Connection, Identity | None]:
        """Open the file, and create a new one; but don't replace one that was deleted."""
        _require_sqlite()
        check_not_refused(self.path)
        before = identify(self.path)
        self._check_known(before)
        connection = self._open_file()
        identity = identify(self.path)
        if before not in (identity, None):
            connection.close()
            raise Displaced(self.path, is_database=True)
        return connection, identity

    def _check_known(self, found: Identity | None) -> None:
        known = self._place
        if known is not None and found is None:
            raise StoreUnavailable(
                f"{self.path} was deleted or moved while it was in use; put the file back, or"
                " restart all processes that use it to create an empty one"
            )
        if known is not None and known.database != found and known.has_left_its_log():
            raise StoreUnavailable(
                f"{self.path} was replaced while it was in use, and the old file's log, which would"
                " corrupt the new one, is still there; stop all processes that use it, delete"
                f" {self.path}-wal and {self.path}-shm, and restart the processes"
            )
        if is_spoiled(found):
            raise self._displaced(Displaced(f"{self.path}-wal", is_database=False, saved=True))

    def _open_file(self) -> sqlite3.Connection:
        folder = os.path.dirname(os.path.abspath(self.path))
        if not os.path.isdir(folder):
            raise ConfigurationError(
                f"the directory {folder} of the database {self.path} does not exist"
            )
        try:
            return self._seam.connect_sqlite(self.path)
        except sqlite3.OperationalError as error:
            raise ConfigurationError(f"{self.path} can't be opened: {error}") from error

    def _prepare_writer(self, connection: sqlite3.Connection) -> None:
        self._prepare_application(connection)
        # After migrations, which may sort more than fits into memory.
        connection.execute(_NOTES_IN_MEMORY)

    def _prepare_application(self, connection: sqlite3.Connection) -> None:
        self.steps_taken = self._prepare(connection)

    def _prepare_reader(self, connection: sqlite3.Connection) -> None:
        # Also migrates: the file may have been replaced by an empty one that no writer has seen.
        self._prepare(connection)
        connection.execute("PRAGMA query_only = ON")

    def _prepare_to_read(self, connection: sqlite3.Connection) -> None:
        """Let the connection change nothing: neither data nor the schema nor the journal."""
        try:
            connection.execute(_BUSY_TIMEOUT)
            connection.execute("PRAGMA query_only = ON")
            schema.check(connection, self.path)
        except sqlite3.DatabaseError as error:
            if _errorname(error).startswith("SQLITE_NOTADB"):
                raise ConfigurationError(f"{self.path} is not an SQLite database") from error
            raise

    def _prepare(self, connection: sqlite3.Connection) -> list[str]:
        try:
            connection.execute(_BUSY_TIMEOUT)
            _switch_to_wal(connection)
            connection.execute(_SYNCHRONOUS[self.synchronous])
            return schema.migrate(connection, self.path, self.now())
        except sqlite3.DatabaseError as error:
            name = _errorname(error)
            if name.startswith("SQLITE_NOTADB"):
                raise ConfigurationError(f"{self.path} is not an SQLite database") from error
            if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
                raise ConfigurationError(
                    f"{self.path} can't be written: {error}; the file and its directory must be"
                    " writable"
                ) from error
            raise


def _prepare_examiner(connection: sqlite3.Connection) -> None:
    connection.execute(_BUSY_TIMEOUT)
    connection.execute("PRAGMA query_only = ON")
    with suppress(sqlite3.Error):  # the first query reports what is wrong
        connection.execute("PRAGMA schema_version").fetchone()  # a read makes SQLite open its log


def is_full(error: Exception) -> bool:
    """Did a write fail because the disk is full?"""
    return isinstance(error, sqlite3.Error) and _errorname(error).startswith("SQLITE_FULL")


def _is_refused(error: Exception) -> bool:
    return _errorname(error).startswith("SQLITE_READONLY")


def _errorname(error: Exception) -> str:
    name: str = getattr(error, "sqlite_errorname", "")
    return name


def _require_sqlite() -> None:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        oldest = ".".join(map(str, _OLDEST_SQLITE))
        raise ConfigurationError(
            f"Holdfast needs SQLite {oldest} or newer; this Python has {sqlite3.sqlite_version}"
        )


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Turn on write-ahead logging, which the file remembers.

    Two processes that open a new file at once can block each other in a way that SQLite doesn't
    wait for. It does wait for a write lock, and when that is free, the other process is done.
    """
    for _ in range(_WAL_TRIES_MAX):
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not _errorname(error).startswith("SQLITE_BUSY"):
                raise
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
    raise StoreUnavailable("other processes keep the database locked; try again")
