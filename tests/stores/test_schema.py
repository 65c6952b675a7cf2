"""Migrations: run once, run at once by many, and make exactly the schema that is committed."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from holdfast import Holdfast, SchemaMismatch
from holdfast.stores.migrations import steps
from tests.support.locks import waits_for_a_lock
from tests.support.processes import wait_until

pytestmark = pytest.mark.both_postgres

SCHEMAS = Path(__file__).parent / "schemas"

POSTGRES = """
SELECT kind || ' ' || name || ': ' || definition FROM (
    SELECT 'column' AS kind, c.relname || '.' || a.attname AS name,
        format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
            || coalesce(' default ' || pg_get_expr(d.adbin, d.adrelid), '') AS definition
    FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p')
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE c.relnamespace = 'holdfast'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
        AND NOT c.relispartition
    UNION ALL
    SELECT 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = 'holdfast'::regnamespace AND contype <> 'n'
    UNION ALL
    SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'holdfast'
    UNION ALL
    SELECT 'trigger', c.relname || '.' || tgname, pg_get_triggerdef(t.oid)
    FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
    WHERE c.relnamespace = 'holdfast'::regnamespace AND NOT tgisinternal
    UNION ALL
    SELECT 'function', proname, pg_get_functiondef(oid)
    FROM pg_proc WHERE pronamespace = 'holdfast'::regnamespace
    UNION ALL
    SELECT 'storage', relname, reloptions::text
    FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND reloptions IS NOT NULL
) AS parts
-- The partitions of the days come and go.
WHERE name !~ 'history_[0-9]{8}'
ORDER BY 1
"""


async def postgres_schema(url: str) -> str:
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetch(POSTGRES)
    finally:
        await connection.close()
    return "".join(f"{squeeze(row[0])}\n" for row in rows)


def sqlite_schema(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name"
        ).fetchall()
    return "".join(f"{squeeze(sql)}\n" for (sql,) in rows)


def squeeze(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def compare(name: str, schema: str) -> None:
    """The committed file changes only together with a migration, and is read in its review."""
    committed = SCHEMAS / name
    if os.environ.get("HOLDFAST_WRITE_SCHEMAS"):
        committed.write_text(schema)
    assert schema == committed.read_text()


async def test_the_migrations_make_the_committed_schema_on_postgres(postgres_url: str) -> None:
    await Holdfast(postgres_url).migrate()
    compare("postgres.txt", await postgres_schema(postgres_url))


async def test_the_migrations_make_the_committed_schema_on_sqlite(tmp_path: Path) -> None:
    await Holdfast(f"sqlite:///{tmp_path}/jobs.db").migrate()
    compare("sqlite.txt", sqlite_schema(tmp_path / "jobs.db"))


async def test_workers_of_the_version_before_find_all_that_they_use(postgres_url: str) -> None:
    connection = await asyncpg.connect(postgres_url)
    before: set[str] = set()
    gone: dict[str, set[str]] = {}
    try:
        for step in steps("postgres"):
            await connection.execute(step.sql)
            after = set((await postgres_schema(postgres_url)).splitlines())
            gone[step.name] = {part.partition(":")[0] for part in before - after}
            before = after
    finally:
        await connection.close()
    # It allows more than before.
    assert gone.pop("history") == {"constraint holdfast.attempts.attempts_outcome"}
    # One constraint stands for them all.
    assert gone.pop("checks") == {
        "constraint holdfast.jobs.jobs_state",
        "constraint holdfast.jobs.jobs_queued_has_attempt",
        "constraint holdfast.jobs.jobs_running_has_lease",
        "constraint holdfast.jobs.jobs_ended_has_finish",
        "constraint holdfast.jobs.jobs_counters",
        "constraint holdfast.jobs.jobs_crashes",
    }
    # Its calls mean what they meant: what is new in it has defaults.
    assert gone.pop("probes") == {"function strike"}
    # They act for the owner, and answer as before.
    assert gone.pop("functions") == {"function lock_caps", "function fold_history_counts"}
    # With three arguments, it counts as before; with two, it was for workers two versions back.
    assert gone.pop("shortest_leases") == {"function lock_caps"}
    assert set().union(*gone.values()) == set()


async def test_migrations_that_start_at_once_run_once(postgres_url: str) -> None:
    done = await asyncio.gather(*(Holdfast(postgres_url).migrate() for _ in range(5)))
    taken = [step for each in done for step in each]
    assert len(taken) == len(set(taken))
    assert len(taken) > len(steps("postgres"))  # with those of Holdfast's own tables
    assert await Holdfast(postgres_url).migrate() == []


@pytest.mark.slow
async def test_a_migration_that_has_to_wait_for_a_table_lets_others_work(postgres_url: str) -> None:
    connection, reader = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    for step in steps("postgres")[:14]:
        await connection.execute(step.sql)
        await connection.execute(
            "INSERT INTO holdfast.schema_version (version, name) VALUES ($1, $2)",
            step.version,
            step.name,
        )
    try:
        async with reader.transaction():
            await reader.fetch("SELECT FROM holdfast.queues")
            migrating = asyncio.create_task(Holdfast(postgres_url).migrate())
            await wait_until(lambda: waits_for_a_lock(connection), "a migration that waits")
            await connection.fetch("SELECT FROM holdfast.queues")  # behind it, until it gives up
            assert not migrating.done()
        assert "0015_shortest_leases" in await migrating
    finally:
        await connection.close()
        await reader.close()


@pytest.mark.parametrize(
    ("difference", "advice"), [(-1, "run: holdfast migrate"), (1, None), (2, "upgrade holdfast")]
)
async def test_a_schema_that_is_one_version_newer_runs_and_no_other(
    postgres_url: str, difference: int, advice: str | None
) -> None:
    await Holdfast(postgres_url).migrate()
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("DELETE FROM holdfast.schema_version")
    await connection.execute(
        "INSERT INTO holdfast.schema_version (version, name) VALUES ($1, 'any')",
        steps("postgres")[-1].version + difference,
    )
    await connection.close()
    hf = Holdfast(postgres_url)
    try:
        if advice is None:
            assert await hf.jobs.counts() == []
        else:
            with pytest.raises(SchemaMismatch, match=advice):
                await hf.jobs.counts()
    finally:
        await hf.close()


async def test_an_empty_postgres_database_says_what_to_do(postgres_url: str) -> None:
    hf = Holdfast(postgres_url)
    with pytest.raises(SchemaMismatch, match="is empty; run: holdfast migrate"):
        await hf.jobs.counts()
    await hf.close()


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_migrations_are_numbered_without_a_gap(dialect: str) -> None:
    versions = [step.version for step in steps(dialect)]
    assert versions == list(range(1, len(versions) + 1))
