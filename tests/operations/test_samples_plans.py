"""A sample reads a bounded number of jobs along the indexes, however many there are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from importlib.resources import files

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.stores.statements import load
from tests.conftest import SERVERS

JOBS_MAX = 100
FILL = """
INSERT INTO holdfast.jobs (id, name, queue, priority, arguments, max_attempts, run_at)
SELECT gen_random_uuid(), 'send', 'q' || i % 5, i % 2, '{}', 5,
    CASE i % 3 WHEN 0 THEN now() - interval '1 h' WHEN 1 THEN now() + interval '1 h'
        ELSE 'infinity' END
FROM generate_series(1, 30000) AS i
"""
FILL_HISTORY = """
INSERT INTO holdfast.history (
    id, fence, run_at, created_at, finished_at, kept_until, attempt, max_attempts, snoozes,
    releases, crashes, priority, state, queue, name, arguments, tags
)
SELECT gen_random_uuid(), 1, now(), now(), now(), now(), 1, 5, 0, 0, 0, 0, 'succeeded', 'q', 'send',
    '{}', '{}'
FROM generate_series(1, 20000)
"""
READ = """
SELECT relname, coalesce(seq_scan, 0) AS scans, coalesce(idx_tup_fetch, 0) AS fetched
FROM pg_stat_xact_user_tables
WHERE schemaname = 'holdfast' AND (relname LIKE 'history%' OR relname = 'jobs')
"""


@pytest.mark.parametrize("postgres_url", SERVERS, indirect=True)
@pytest.mark.parametrize("analyzed", [True, False])
async def test_a_sample_scans_neither_jobs_nor_history(postgres_url: str, analyzed: bool) -> None:
    await Holdfast(postgres_url).migrate()
    connection = await asyncpg.connect(postgres_url)
    try:
        if not analyzed:
            await connection.execute("ANALYZE holdfast.jobs")
        await connection.execute(FILL)
        await connection.execute(FILL_HISTORY)
        if analyzed:
            await connection.execute("ANALYZE")
        async with connection.transaction():
            look = "SELECT holdfast.sample_queues(1000, now(), 100, 500, $1)"
            assert await connection.fetchval(look, JOBS_MAX) is True
            read = {row["relname"]: row for row in await connection.fetch(READ)}
            assert {row["scans"] for row in read.values()} == {0}
            # 5 queues of 2 priorities, each with its share of due, scheduled and parked jobs.
            assert read["jobs"]["fetched"] <= 3 * JOBS_MAX + 50
            assert sum(row["fetched"] for name, row in read.items() if name != "jobs") == 0
            sample = await connection.fetchrow(
                "SELECT ready, scheduled, parked FROM holdfast.samples WHERE queue = ''"
            )
            assert tuple(sample) == (JOBS_MAX, JOBS_MAX, JOBS_MAX)
    finally:
        await connection.close()


async def test_sqlite_samples_along_the_indexes(local_hf: Holdfast, local_url: str) -> None:
    await local_hf.samples.get()
    await local_hf.close()
    folder = files("holdfast.operations").joinpath("sql", "sqlite", "samples.sql")
    statement = load(folder.read_text(encoding="utf-8"), numbered=False)["sample_queues"]
    values = dict.fromkeys(statement.parameters, 1)
    with closing(sqlite3.connect(local_url.removeprefix("sqlite:///"))) as file:
        plan = file.execute(f"EXPLAIN QUERY PLAN {statement.sql}", values).fetchall()
    reads = [row[3] for row in plan if "jobs" in row[3]]
    assert reads
    for read in reads:
        assert "INDEX jobs_" in read or "rowid=?" in read, read
    # The first job of the first lane, and all that are running.
    scans = ["SCAN first USING INDEX jobs_due", "SCAN jobs USING INDEX jobs_leased"]
    assert [read for read in reads if read.startswith("SCAN")] == scans
