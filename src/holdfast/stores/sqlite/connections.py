"""The file: connections to it, and what its errors mean."""

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
# In pages: the log grows to 16 MB. Every job touches few pages, but many times; with the default
# of 4 MB a busy file is synchronized so often that a commit takes twice as long.
_CHECKPOINT = "PRAGMA wal_autocheckpoint = 4000"
_BUSY_TIMEOUT = "PRAGMA busy_timeout = 15000"
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
        """Raise Displaced if what was done on the connection is not at the path of the file."""
        self.place.check(self.connection)


class Database:
    """Open connections to one file, and bring its schema to this code's version."""

    def __init__(self, path: str, seam: Seam, synchronous: str, retention: Retention) -> None:
        if path == "" or ":memory:" in path or "mode=memory" in path:
            raise ConfigurationError(
                "an SQLite database in memory can't be shared by the connections of a store;"
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
        self._place: Place | None = None  # where the file was last

    def connect_writer(self) -> Opened:
        return self._open(self._prepare)

    def connect_reader(self) -> Opened:
        return self._open(_prepare_reader)

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
        """The time as applications' tables have it: see `holdfast.transactions.tables`."""
        return to_words(self._seam.now() + timedelta(seconds=seconds))

    def translated(self, error: Exception) -> Exception:
        """Say in the domain's words what an error of the driver means."""
        match error:
            case HoldfastError():
                return error
            case Displaced():
                return self._displaced(error)
            case sqlite3.OperationalError() if str(error).startswith(_NO_SCHEMA):
                return SchemaMismatch(
                    f"{self.path} has no fitting schema ({error}); run: holdfast migrate"
                )
            case sqlite3.OperationalError() if _errorname(error) == "SQLITE_BUSY_SNAPSHOT":
                return StoreUnavailable(
                    f"the transaction on {self.path} read before others wrote, so it can no longer"
                    " write; roll it back, and start with BEGIN IMMEDIATE"
                )
            case sqlite3.OperationalError() if is_full(error):
                return StoreUnavailable(
                    f"the disk of {self.path} is full: nothing was written; it resumes when there"
                    " is room"
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
                f"{self.path} was deleted, moved or replaced while it was in use: the call was"
                " not carried out on the file that is there now"
            )
        kept = "saved" if error.saved else "possibly lost"
        return ConfigurationError(
            f"{error.path} was deleted while {self.path} was in use, which can corrupt it;"
            f" committed data is {kept}; restart all processes that use it"
        )

    def _connect(self) -> tuple[sqlite3.Connection, Identity | None]:
        """Open the file, which is made if it is new; but not in the place of one that was there."""
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
                " restart all processes that use it to start with an empty one"
            )
        if known is not None and known.database != found and known.has_left_its_log():
            raise StoreUnavailable(
                f"{self.path} was replaced while it was in use, and the log of the old file is"
                " still beside it, which would corrupt the new one: stop all processes that use it,"
                f" delete {self.path}-wal and {self.path}-shm, and start them again"
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

    def _prepare(self, connection: sqlite3.Connection) -> None:
        try:
            connection.execute(_BUSY_TIMEOUT)
            _switch_to_wal(connection)
            connection.execute(_SYNCHRONOUS[self.synchronous])
            connection.execute(_CHECKPOINT)
            self.steps_taken = schema.migrate(connection, self.path, self.now())
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


def _prepare_reader(connection: sqlite3.Connection) -> None:
    connection.execute(_BUSY_TIMEOUT)
    connection.execute("PRAGMA query_only = ON")
    with suppress(sqlite3.Error):  # what is wrong is told by whatever is read first
        connection.execute("PRAGMA schema_version").fetchone()  # SQLite opens its log when it reads


def is_full(error: Exception) -> bool:
    """Does the disk have no room for what was to be written?"""
    return isinstance(error, sqlite3.Error) and _errorname(error).startswith("SQLITE_FULL")


def _errorname(error: Exception) -> str:
    name: str = getattr(error, "sqlite_errorname", "")
    return name


def _require_sqlite() -> None:
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        oldest = ".".join(map(str, _OLDEST_SQLITE))
        raise ConfigurationError(
            f"SQLite {oldest} or newer is needed, this Python has {sqlite3.sqlite_version}"
        )


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Turn write-ahead logging on; it stays on in the file.

    Two processes that open a new file at once can block each other in a way for which SQLite does
    not wait. A write lock is waited for, and whoever had the file is done when it is free.
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
    raise StoreUnavailable("other processes keep the database locked while it is being set up")
