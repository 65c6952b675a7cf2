"""Connections that belong to the caller: which they are, and how to work in their transaction.

None of these libraries is imported here before somebody brings one of its connections.
"""

from holdfast.transactions.drivers.protocol import (
    Driver,
    Foreign,
    PostgresDriver,
    SqliteDriver,
    run_now,
    speaks_postgres,
    speaks_sqlite,
    to_its_end,
)
from holdfast.transactions.drivers.recognition import recognize, recognize_async, recognize_sync

__all__ = [
    "Driver",
    "Foreign",
    "PostgresDriver",
    "SqliteDriver",
    "recognize",
    "recognize_async",
    "recognize_sync",
    "run_now",
    "speaks_postgres",
    "speaks_sqlite",
    "to_its_end",
]
