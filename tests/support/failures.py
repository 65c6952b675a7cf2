"""Dead jobs in the history, as many as a test needs, with the ends that it chooses."""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import msgspec

from tests.support.processes import WAIT_SECONDS

POSTGRES = """
INSERT INTO holdfast.history (
    id, fence, run_at, created_at, started_at, finished_at, kept_until, attempt, max_attempts,
    snoozes, releases, crashes, priority, state, queue, name, arguments, tenant, tags, error_code,
    error_text, worker
)
SELECT
    id, 1, ended_at, ended_at, ended_at, ended_at, kept_until, 1, 1, 0, 0, 0, 0, state, queue,
    name, '{}', tenant, '{}', 'RuntimeError', error_text, worker
FROM json_to_recordset($1::json) AS given (
    id uuid, ended_at timestamptz, kept_until timestamptz, state text, queue text, name text,
    tenant text, error_text text, worker text
)
"""

SQLITE = """
INSERT INTO history (
    id, fence, run_at, created_at, started_at, finished_at, kept_until, attempt, max_attempts,
    snoozes, releases, crashes, priority, state, queue, name, arguments, tenant, tags, error_code,
    error_text, worker
)
SELECT
    value ->> 'id', 1, value ->> 'ended', value ->> 'ended', value ->> 'ended', value ->> 'ended',
    value ->> 'kept', 1, 1, 0, 0, 0, 0, value ->> 'state', value ->> 'queue', value ->> 'name',
    '{}', value ->> 'tenant', '[]', 'RuntimeError', value ->> 'error_text', value ->> 'worker'
FROM json_each(?)
"""


def dead_row(
    text: str,
    *,
    ended_at: datetime | None = None,
    kept: timedelta = timedelta(days=7),
    tenant: str | None = None,
    queue: str = "default",
    name: str = "work",
    state: str = "dead",
    worker: str | None = None,
) -> dict[str, Any]:
    """A row of the history. By default, the job has just ended."""
    ended_at = ended_at or datetime.now(UTC)
    kept_until = ended_at + kept
    return {
        "id": UUID(int=int(ended_at.timestamp() * 1000) << 80 | secrets.randbits(80)),
        "ended_at": ended_at,
        "kept_until": kept_until,
        "ended": int(ended_at.timestamp() * 1_000_000),
        "kept": int(kept_until.timestamp() * 1_000_000),
        "tenant": tenant,
        "queue": queue,
        "name": name,
        "state": state,
        "error_text": text,
        "worker": worker,
    }


async def add_rows(url: str, rows: Sequence[dict[str, Any]]) -> list[UUID]:
    """Add rows to the history in one transaction."""
    data = msgspec.json.encode(rows).decode()
    if url.startswith("sqlite"):
        await asyncio.to_thread(_add_to_file, url, data)
    else:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute(POSTGRES, data)
        finally:
            await connection.close()
    return [row["id"] for row in rows]


def _add_to_file(url: str, data: str) -> None:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), timeout=WAIT_SECONDS)
    try:
        with connection:
            connection.execute(SQLITE, [data])
    finally:
        connection.close()


async def add_dead(url: str, *texts: str, **values: Any) -> list[UUID]:
    """Add a dead job for each text, which is its error."""
    return await add_rows(url, [dead_row(text, **values) for text in texts])
