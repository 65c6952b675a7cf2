"""A file of version 1: it opens quickly, loses nothing, and workers of version 1 go on with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.domain.errors import StoreRefused
from holdfast.domain.job import Count, Filter
from holdfast.domain.states import State
from holdfast.seam import Seam
from holdfast.stores import migrations
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.statements import Statement, load, read_sql
from holdfast.testing.conformance.harness import claim, new_id, new_job, recorded, success

STATEMENTS_OF_VERSION_1 = Path(__file__).parent / "schemas" / "sqlite_1_statements.sql"
ENDED_JOBS = 1000
FILL = """
INSERT INTO schema_version VALUES (1, 'jobs', 0);
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1000)
INSERT INTO jobs (id, name, state, queue, priority, arguments, tenant, max_attempts, attempt, fence,
    run_at, created_at, started_at, finished_at, result, error_code, error_text)
SELECT printf('00000000-0000-7000-8000-%012x', n), 'job',
    CASE n % 10 WHEN 0 THEN 'dead' ELSE 'succeeded' END, 'queue', 3, '{"n":1}',
    CASE n % 2 WHEN 0 THEN 'even' END, 5, 1, 2, n, n, n, n,
    CASE n % 10 WHEN 0 THEN NULL ELSE '"done"' END, CASE n % 10 WHEN 0 THEN 'BROKEN' END,
    CASE n % 10 WHEN 0 THEN 'it broke' END
FROM numbers;
INSERT INTO attempts (job_id, fence, attempt, outcome, worker, ended_at)
SELECT id, 1, 1, 'failed', 'worker', 0 FROM jobs WHERE state = 'dead';
"""


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A file as version 1 left it."""
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as connection:
        versions = load(read_sql("sqlite", "schema.sql"), numbered=False)["create_versions"]
        connection.executescript(f"{versions.sql};{migrations.steps('sqlite')[0].sql}{FILL}")
        yield connection


@pytest.fixture
def old() -> dict[str, Statement]:
    return load(STATEMENTS_OF_VERSION_1.read_text(), numbered=False)


async def opened(tmp_path: Path) -> SqliteStore:
    store = SqliteStore(str(tmp_path / "jobs.db"), Seam())
    await store.open()
    return store


async def tidy_up(store: SqliteStore) -> None:
    while await store.tidy(300) == 300:
        pass


def rows(connection: sqlite3.Connection, table: str) -> int:
    count: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return count


async def test_what_had_ended_is_moved_by_upkeep_and_not_by_the_migration(
    tmp_path: Path, connection: sqlite3.Connection
) -> None:
    store = await opened(tmp_path)
    assert (rows(connection, "jobs"), rows(connection, "history")) == (ENDED_JOBS, 0)
    counts = await store.counts()
    assert counts == [
        Count("queue", State.DEAD, ENDED_JOBS // 10),
        Count("queue", State.SUCCEEDED, ENDED_JOBS - ENDED_JOBS // 10),
    ]
    pages = await store.page(Filter(), ENDED_JOBS)
    assert len(pages.jobs) == ENDED_JOBS
    assert await store.tidy(300) == 300
    assert (rows(connection, "jobs"), rows(connection, "history")) == (700, 300)
    assert await store.counts() == counts
    # They ended in 1970, so that the rest is moved and then forgotten, with its attempts.
    await tidy_up(store)
    assert [rows(connection, table) for table in ("jobs", "history", "attempts")] == [0, 0, 0]
    assert await store.counts() == []
    await store.close()


@pytest.mark.parametrize("step", ["INSERT ON history WHEN new", "DELETE ON jobs WHEN old"])
async def test_what_may_not_move_keeps_nothing_else_from_it(
    tmp_path: Path, connection: sqlite3.Connection, step: str
) -> None:
    store = await opened(tmp_path)
    refused = "00000000-0000-7000-8000-000000000002"
    connection.execute(
        f"CREATE TRIGGER refused BEFORE {step}.id = '{refused}'"
        " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    )
    assert await store.tidy(300) == 300
    assert (rows(connection, "jobs"), rows(connection, "history")) == (701, 298)
    with pytest.raises(StoreRefused, match="not this one"):
        await tidy_up(store)
    assert [rows(connection, table) for table in ("jobs", "history", "attempts")] == [1, 0, 0]
    assert await store.counts() == [Count("queue", State.SUCCEEDED, 1)]
    await store.close()


async def test_attempts_outlive_the_migration(
    tmp_path: Path, connection: sqlite3.Connection
) -> None:
    store = await opened(tmp_path)
    (dead, *_) = (await store.page(Filter(states=(State.DEAD,), tenant="even"), 1)).jobs
    assert [attempt.outcome for attempt in await store.attempts(dead.id)] == ["failed"]
    again = new_id()
    assert await store.requeue(dead.id, again)
    assert (await recorded(store, again)).requeued_from == dead.id
    await store.close()


async def test_every_statement_of_version_1_runs_on_this_schema(
    tmp_path: Path, connection: sqlite3.Connection, old: dict[str, Statement]
) -> None:
    await (await opened(tmp_path)).close()
    for statement in old.values():
        values = dict.fromkeys(statement.parameters, "[]")
        assert connection.execute(f"EXPLAIN {statement.sql}", values).fetchall()


async def test_a_worker_of_version_1_ends_jobs_that_this_version_moves(
    tmp_path: Path, connection: sqlite3.Connection, old: dict[str, Statement]
) -> None:
    connection.execute("DELETE FROM jobs")
    connection.execute("DELETE FROM attempts")
    store = await opened(tmp_path)
    await store.enqueue([new_job() for _ in range(2)])
    mine, theirs = await claim(store)
    settlements = f'[["{theirs.id}", {theirs.fence}, "\\"old\\""]]'
    now = (await recorded(store, theirs.id)).created_at.timestamp() * 1_000_000
    succeeded = connection.execute(
        old["succeed"].sql, {"settlements": settlements, "now": int(now)}
    )
    assert succeeded.rowcount == 1
    assert await store.settle([success(theirs)]) != []
    assert await store.settle([success(mine)]) == []
    assert await store.tidy(100) == 1
    found = await recorded(store, theirs.id)
    assert (found.state, found.result, found.fence) == (State.SUCCEEDED, "old", theirs.fence + 1)
    assert (rows(connection, "jobs"), rows(connection, "history")) == (0, 2)
    await store.close()
