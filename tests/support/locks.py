"""Whether one of our connections waits for a lock on PostgreSQL."""

from __future__ import annotations

import asyncpg


async def waits_for_a_lock(connection: asyncpg.Connection) -> bool:
    return bool(
        await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'holdfast' AND wait_event_type = 'Lock')"
        )
    )
