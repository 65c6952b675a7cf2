"""A past for a database: finished jobs by the million, written by SQL straight into the history.

One of `dead_every` jobs ended as dead, with an attempt on record. They ended one after the other
over the last six days, so that all of them are still kept.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing

import asyncpg

BATCH_JOBS = 100_000
DAYS = 6
DEAD_EVERY = 50

Progress = Callable[[int], None]

POSTGRES_DAYS = """
SELECT holdfast.add_history_day(current_date + day, 0, 1000000000)
FROM generate_series(0, 10) AS day
"""
POSTGRES_BATCH = """
WITH made AS (
    SELECT
        (
            lpad(to_hex((extract(epoch FROM ended) * 1000)::bigint), 12, '0')
            || '7000' || lpad(to_hex(x'8000000000000000'::bigint + number), 16, '0')
        )::uuid AS id,
        number, ended, number % $5 = 0 AS is_dead
    FROM (
        SELECT number, now() - make_interval(days => $4) * (1 - number / $3::float8) AS ended
        FROM generate_series($1::bigint, $2::bigint - 1) AS number
    ) AS given
),
tried AS (
    INSERT INTO holdfast.attempts (
        job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text
    )
    SELECT id, 1, 1, 'failed', 'past', ended, ended, 'ERROR', 'it did not work' FROM made
    WHERE is_dead
),
ended AS (
    INSERT INTO holdfast.history (
        id, fence, run_at, created_at, started_at, finished_at, kept_until, attempt, max_attempts,
        snoozes, releases, crashes, priority, state, queue, name, arguments, tags, result,
        error_code, error_text
    )
    SELECT
        id, 2, ended, ended, ended, ended, ended + interval '7 days', 1, 5, 0, 0, 0, 100,
        CASE WHEN is_dead THEN 'dead' ELSE 'succeeded' END, 'default', 'nothing',
        '{"args":[1],"kwargs":{}}', '{}', CASE WHEN is_dead THEN NULL ELSE 'null'::json END,
        CASE WHEN is_dead THEN 'ERROR' END, CASE WHEN is_dead THEN 'it did not work' END
    FROM made
    RETURNING (kept_until AT TIME ZONE 'UTC')::date AS kept_day, state
)
INSERT INTO holdfast.history_counts (kept_day, tenant, queue, state, jobs)
SELECT kept_day, '', 'default', state, count(*) FROM ended GROUP BY kept_day, state
"""

SQLITE_BATCH = """
WITH RECURSIVE
series (number) AS (
    SELECT :first UNION ALL SELECT number + 1 FROM series WHERE number + 1 < :last
),
made AS (
    SELECT number, number % :dead_every = 0 AS is_dead,
        CAST(:now - :days * 86400e6 * (1 - number / CAST(:jobs AS REAL)) AS INTEGER) AS ended
    FROM series
)
INSERT INTO history (
    id, kept_until, state, queue, name, tags, priority, attempt, max_attempts, snoozes, releases,
    crashes, fence, run_at, created_at, started_at, finished_at, arguments, result, error_code,
    error_text
)
SELECT
    printf(
        '%s-%s-7000-8000-%012x',
        substr(printf('%012x', ended / 1000), 1, 8), substr(printf('%012x', ended / 1000), 9),
        number
    ),
    ended + 7 * 86400000000, CASE WHEN is_dead THEN 'dead' ELSE 'succeeded' END, 'default',
    'nothing', '[]', 100, 1, 5, 0, 0, 0, 2, ended, ended, ended, ended,
    '{"args":[1],"kwargs":{}}', CASE WHEN is_dead THEN NULL ELSE 'null' END,
    CASE WHEN is_dead THEN 'ERROR' END, CASE WHEN is_dead THEN 'it did not work' END
FROM made
"""
SQLITE_ATTEMPTS = """
INSERT INTO attempts (
    job_id, fence, attempt, outcome, worker, started_at, ended_at, error_code, error_text
)
SELECT id, 1, 1, 'failed', 'past', started_at, finished_at, error_code, error_text
FROM history WHERE state <> 'succeeded'
"""
SQLITE_COUNTS = """
INSERT INTO history_counts (tenant, queue, state, jobs)
SELECT '', queue, state, count(*) FROM history GROUP BY queue, state
"""


async def write_past(
    url: str, jobs: int, progress: Progress, *, dead_every: int = DEAD_EVERY
) -> None:
    """Write this many finished jobs into a migrated, empty database."""
    if url.startswith("sqlite"):
        _write_sqlite(url.removeprefix("sqlite:///"), jobs, progress, dead_every)
    else:
        await _write_postgres(url, jobs, progress, dead_every)


async def _write_postgres(url: str, jobs: int, progress: Progress, dead_every: int) -> None:
    connection = await asyncpg.connect(url, server_settings={"synchronous_commit": "off"})
    try:
        await connection.execute(POSTGRES_DAYS)
        for first in range(0, jobs, BATCH_JOBS):
            last = min(jobs, first + BATCH_JOBS)
            await connection.execute(POSTGRES_BATCH, first, last, jobs, DAYS, dead_every)
            progress(last)
        for table in ("history", "history_counts", "attempts", "jobs"):
            await connection.execute(f"VACUUM (ANALYZE) holdfast.{table}")
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()


def _write_sqlite(path: str, jobs: int, progress: Progress, dead_every: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        now = time.time_ns() // 1000
        for first in range(0, jobs, BATCH_JOBS):
            last = min(jobs, first + BATCH_JOBS)
            values = {
                "first": first, "last": last, "jobs": jobs, "days": DAYS, "now": now,
                "dead_every": dead_every,
            }  # fmt: skip
            connection.execute(SQLITE_BATCH, values)
            progress(last)
        connection.execute(SQLITE_ATTEMPTS)
        connection.execute(SQLITE_COUNTS)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
