"""Whether there is a pooler between us and PostgreSQL.

A pooler in transaction mode runs each transaction in any session of the server. What a session
keeps (prepared statements, settings, LISTEN) then reaches other clients.
"""

from __future__ import annotations

from typing import Any


async def is_pooled(connection: Any) -> bool:
    """Compare the server process announced at connect with the one that answers.

    A pooler announces a process before it has one, so it makes up a number.
    """
    promised: int = connection.get_server_pid()
    return await server_process(connection) != promised


async def server_process(connection: Any) -> int:
    """Ask which server process answers; with COPY, which leaves no prepared statement behind."""
    answer = bytearray()

    async def take(data: bytes) -> None:
        answer.extend(data)

    await connection.copy_from_query("SELECT pg_backend_pid()", output=take)
    return int(answer)
