"""Real machines, with a monotonic clock that the test moves, or whose statements it reads."""

from __future__ import annotations

import sqlite3
from typing import Any

from holdfast.runtime.seam import Seam


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
