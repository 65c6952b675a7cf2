"""Whether a pooler stands between us and PostgreSQL, and what it keeps.

A pooler in transaction mode gives every transaction to another connection of the server. What a
session keeps (prepared statements, settings, LISTEN) is then found again by somebody else.
"""

from __future__ import annotations

from typing import Any


async def is_pooled(connection: Any) -> bool:
    """Compare the server process that the connection was promised with the one that answers.

    A pooler promises before it knows, so it makes a number up.
    """
    promised: int = connection.get_server_pid()
    return await server_process(connection) != promised


async def server_process(connection: Any) -> int:
    """Which process of the server answers; by COPY, which leaves no prepared statement there."""
    told = bytearray()

    async def take(data: bytes) -> None:
        told.extend(data)

    await connection.copy_from_query("SELECT pg_backend_pid()", output=take)
    return int(told)
