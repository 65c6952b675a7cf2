"""What the adapters on psycopg share: one count, on its own connection."""

from __future__ import annotations

import psycopg


async def count(url: str, sql: str) -> int:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        row = await (await connection.execute(sql.encode())).fetchone()
    assert row is not None
    return int(row[0])
