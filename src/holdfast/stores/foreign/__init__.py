"""Connections that belong to the caller: which they are, and how to work in their transaction.

None of these libraries is imported here before somebody brings one of its connections.
"""

from holdfast.stores.foreign.protocol import (
    Driver,
    Foreign,
    PostgresDriver,
    SqliteDriver,
    run_now,
    speaks_postgres,
    speaks_sqlite,
    to_its_end,
)
from holdfast.stores.foreign.recognition import recognise, recognise_async, recognise_sync

__all__ = [
    "Driver",
    "Foreign",
    "PostgresDriver",
    "SqliteDriver",
    "recognise",
    "recognise_async",
    "recognise_sync",
    "run_now",
    "speaks_postgres",
    "speaks_sqlite",
    "to_its_end",
]
