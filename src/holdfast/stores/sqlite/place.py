"""Whether a connection still writes to the file at its path.

SQLite keeps writing to a file that was deleted or replaced, and these commits are gone when the
last process closes it. So check the path before acknowledging anything. Commits to a deleted log
can still be saved if that is noticed soon. Check the log and its index only now and then: each look
takes a thirtieth of the time of a small commit.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.domain.errors import StoreUnavailable

LOOK_SECONDS = 0.1  # at the log and its index
Identity = tuple[int, int]
_LOG, _INDEX = "-wal", "-shm"
_spoiled: set[Identity] = set()  # databases whose log or index was deleted


class Displaced(Exception):
    """A file is no longer where it was opened; `saved` says whether committed data is safe."""

    def __init__(self, path: str, *, is_database: bool, saved: bool = False) -> None:
        super().__init__(path)
        self.path = path
        self.is_database = is_database
        self.saved = saved


def identify(path: str) -> Identity | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreUnavailable(f"{path} can't be accessed: {error.strerror}") from error
    return found.st_dev, found.st_ino


@dataclass(slots=True)
class Place:
    """A database, its log and its index, as they were when opened; None for a file that SQLite had
    not opened yet."""

    path: str
    database: Identity | None
    log: Identity | None
    index: Identity | None
    monotonic: Callable[[], float]
    look_at: float = 0.0

    @classmethod
    def find(cls, path: str, database: Identity | None, monotonic: Callable[[], float]) -> Place:
        return cls(path, database, identify(path + _LOG), identify(path + _INDEX), monotonic)

    def check(self, connection: sqlite3.Connection) -> None:
        """Raise Displaced if one of them is no longer at its path."""
        if identify(self.path) != self.database:
            raise Displaced(self.path, is_database=True)
        now = self.monotonic()
        if now >= self.look_at:
            for end, known in ((_LOG, self.log), (_INDEX, self.index)):
                if known and identify(self.path + end) != known:
                    saved = self._save(connection)
                    raise Displaced(self.path + end, is_database=False, saved=saved)
            self.look_at = now + LOOK_SECONDS

    def has_left_its_log(self) -> bool:
        """Would SQLite open a new file at this path with the log of this one?"""
        return self.log is not None and identify(self.path + _LOG) == self.log

    def _save(self, connection: sqlite3.Connection) -> bool:
        """Checkpoint a deleted log into the database, unless others already write there with a new
        log: that would destroy it."""
        if self.database is not None:
            _spoiled.add(self.database)
        log, index = identify(self.path + _LOG), identify(self.path + _INDEX)
        if log not in (self.log, None) or index not in (self.index, None):
            return False
        try:
            busy, in_log, moved = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error:
            return False
        return not busy and in_log == moved


def is_spoiled(database: Identity | None) -> bool:
    """SQLite shares a log and its index among a process's connections: a new one would mix the old
    and the new."""
    return database in _spoiled
