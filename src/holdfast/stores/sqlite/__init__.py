"""Jobs in an SQLite file: the embedded store, for any number of processes on one machine."""

from holdfast.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
