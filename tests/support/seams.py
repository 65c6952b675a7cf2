"""Real machines, with a monotonic clock that the test moves, or whose statements it reads or
measures."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from typing import Any

from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.rows import SQL

NAMES = {statement.sql: name for name, statement in SQL.items()}
# Dead ones, too, unless the server has marked them: as many as a scan of an index had to pass.
ENTRIES = """
SELECT coalesce(sum(pg_stat_get_xact_tuples_returned(indexrelid)), 0)::bigint
FROM pg_index JOIN pg_class ON pg_class.oid = indrelid
WHERE relnamespace = to_regnamespace('holdfast')
"""


class HandSeam(Seam):
    """A test moves its clock, and every reading moves it by `step_seconds`."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1000.0
        self.step_seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += self.step_seconds
        return self.seconds


class NotingSeam(Seam):
    """Notes the statements of both databases."""

    def __init__(self) -> None:
        super().__init__()
        self.statements: list[str] = []

    async def connect_postgres(self, url: str, **options: Any) -> Any:
        connection = await super().connect_postgres(url, **options)
        connection.add_query_logger(lambda query: self.statements.append(query.query))
        return connection

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        connection = super().connect_sqlite(path)
        connection.set_trace_callback(self.statements.append)
        return connection


class MeteredSeam(Seam):
    """Counts how many entries of indexes each of the engine's statements read on PostgreSQL. A test
    can let time pass on its clock, which goes on by itself, as the database's does."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_seconds = 0.0
        self.entries: dict[str, list[int]] = defaultdict(list)

    def monotonic(self) -> float:
        return super().monotonic() + self.passed_seconds

    async def connect_postgres(self, url: str, **options: Any) -> Any:
        kind: Any = options["connection_class"]
        entries = self.entries

        class Metered(kind):  # type: ignore[misc]
            async def fetch(self, query: str, *args: Any, **options: Any) -> Any:
                # Between two transactions, the server may put its counts aside.
                async with self.transaction():
                    before = await super().fetchval(ENTRIES)
                    rows = await super().fetch(query, *args, **options)
                    read = await super().fetchval(ENTRIES) - before
                entries[NAMES.get(query, query)].append(read)
                return rows

        return await super().connect_postgres(url, **options | {"connection_class": Metered})
