"""A handler's own writes and its job's success, in one transaction of PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from holdfast.domain.job import Settlement
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.statements import Statement


class PostgresCompletion:
    """`connection` is a plain asyncpg connection inside a transaction."""

    def __init__(self, connection: Any, settle_succeeded: Statement) -> None:
        self.connection = connection
        self._settle_succeeded = settle_succeeded

    async def settle(self, settlement: Settlement) -> bool:
        result = settlement.result
        values: dict[str, object] = {
            "ids": [settlement.job_id],
            "fences": [settlement.fence],
            "results": [None if result is None else result.decode()],
        }
        statement = self._settle_succeeded
        # NULL if all were written.
        written = await self.connection.fetchval(statement.sql, *statement.arguments(values))
        return written is None


@asynccontextmanager
async def completing(
    connections: Connections, settle_succeeded: Statement
) -> AsyncIterator[PostgresCompletion]:
    async with connections.transaction() as connection:
        yield PostgresCompletion(connection, settle_succeeded)
