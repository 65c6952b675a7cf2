"""The caller's connections: recognize them, and work in their transactions.

None of their libraries is imported before somebody passes one of its connections.
"""

from holdfast.transactions.drivers.protocol import (
    Driver,
    Foreign,
    PostgresDriver,
    SqliteDriver,
    finish,
    run_now,
    speaks_postgres,
    speaks_sqlite,
)
from holdfast.transactions.drivers.recognition import (
    in_sync_twin,
    itself,
    recognize_async,
    recognize_callers,
    recognize_sync,
)

__all__ = [
    "Driver", "Foreign", "PostgresDriver", "SqliteDriver", "finish", "in_sync_twin", "itself",
    "recognize_async", "recognize_callers", "recognize_sync", "run_now", "speaks_postgres",
    "speaks_sqlite",
]  # fmt: skip
