"""Every statement about error groups follows an index, whatever the statistics say.

On PostgreSQL, each is explained as it runs: prepared, with a generic plan. 20,000 jobs have ended,
spread over ten days, and every other one is dead. `stale` statistics were gathered while the tables
were empty.
"""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.transactions.tables import _read
from tests.support.failures import add_rows, dead_row

JOBS = 20_000
DAYS = 10
SMALL = {"error_group_places", "workers"}  # a few rows
NOW = datetime.now(UTC)
ROW = {"tenant": "acme", "fingerprint": "0123456789ab"}
KNOWN: dict[str, Any] = {
    "name": "newest",
    "ended_at": NOW - timedelta(seconds=5),
    "job_id": UUID(int=0),
    "turn": 0,
    "seconds": 60.0,
    "look_max": 500,
    "rows_max": 51,
    "jobs": "[]",
    "keys": json.dumps([ROW]),
    "groups": "[]",
    "fingerprints": json.dumps([ROW["fingerprint"]]),
    **ROW,
    "tenants_max": 20,
    "state": "new",
    "state_since": NOW,
    "state_by": None,
    "note": None,
    "resolved_in": None,
    "queue": None,
    "code": None,
    "text": "boom",
    "place": 10**15,
    "after": "g",
    "before": UUID(int=2**128 - 1),
    "after_seconds": 3600.0,
    "resolved_seconds": 3600.0,
}


def statements(dialect: str) -> list[Any]:
    about = re.compile(r"error_group|failures")
    return [
        each for each in _read("holdfast.operations", dialect).values() if about.search(each.sql)
    ]


async def fill(hf: Holdfast, url: str) -> None:
    await hf.dead.groups()
    for step in range(JOBS // 5000):
        rows = [
            dead_row(
                f"no user {'x' * (number % 7)}",
                ended_at=NOW - timedelta(minutes=step * 5000 + number),
                kept=timedelta(days=21),
                tenant=f"tenant {number % 5}",
                state="dead" if number % 2 else "succeeded",
            )
            for number in range(5000)
        ]
        await add_rows(url, rows)
    await hf.dead.count_groups()


@pytest.mark.parametrize("stale", [False, True], ids=["fresh", "stale"])
@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_no_statement_reads_a_whole_table_of_postgres(
    hf: Holdfast, store_url: str, stale: bool
) -> None:
    connection = await asyncpg.connect(store_url)
    try:
        for day in range(-DAYS, 21):
            await connection.execute(
                "SELECT holdfast.add_history_day(current_date + $1::integer, 100, 100000000)", day
            )
        await hf.dead.groups()
        if stale:
            await connection.execute("ANALYZE")
        await fill(hf, store_url)
        if not stale:
            await connection.execute("ANALYZE")
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        for statement in statements("postgres"):
            assert await whole_tables(connection, statement) == [], statement.name
    finally:
        await connection.close()


async def whole_tables(connection: asyncpg.Connection, statement: Any) -> list[str]:
    """The tables with many rows that it reads from end to end."""
    values = statement.arguments(KNOWN)
    await connection.execute(f"PREPARE explained AS {statement.sql}")
    shown = ", ".join("NULL" if value is None else f"'{value}'" for value in values)
    call = f"explained({shown})" if values else "explained"
    try:
        rows = await connection.fetch(f"EXPLAIN (ANALYZE, TIMING off) EXECUTE {call}")
    finally:
        await connection.execute("DEALLOCATE explained")
    found = []
    for (line,) in rows:
        scan = re.search(r"Seq Scan on (\w+).*actual rows=(\d+) loops=(\d+)", line)
        if scan and scan[1] not in SMALL and int(scan[2]) * int(scan[3]) > 100:
            found.append(line)
    return found


async def test_no_statement_reads_a_whole_table_of_sqlite(
    local_hf: Holdfast, local_url: str
) -> None:
    await fill(local_hf, local_url)
    assert await asyncio.to_thread(_scanned, local_url) == []


def _scanned(url: str) -> list[tuple[str, str]]:
    found = []
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        connection.create_function("now", 0, lambda: "2026-11-18T00:00:00.000000Z")
        connection.create_function("in_seconds", 1, lambda _: "2026-11-18T00:00:00.000000Z")
        for statement in statements("sqlite"):
            named = {str(number): None for number, _ in enumerate(statement.parameters, 1)}
            for *_, line in connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", named):
                scan = re.match(r"SCAN (history|error_group\w*)\b(?! USING)", line)
                if scan and scan[1] not in SMALL:
                    found.append((statement.name, line))
    return found
