"""A file of an older version: it opens quickly, loses nothing, and its workers go on with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from holdfast.domain.errors import StoreRefused
from holdfast.domain.job import Count, Filter
from holdfast.domain.states import State
from holdfast.runtime.seam import Seam
from holdfast.stores import migrations
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.statements import Statement, load, read_sql
from holdfast.testing.conformance.breakers import breaker_status, park_all
from holdfast.testing.conformance.harness import (
    claim,
    enqueue,
    new_id,
    new_job,
    queue_status,
    recorded,
    success,
)

SCHEMAS = Path(__file__).parents[1] / "schemas"
SCHEMA = load(read_sql("holdfast.stores.sqlite", "schema.sql"), numbered=False)
STATEMENTS_OF_VERSION_1 = SCHEMAS / "sqlite_1_statements.sql"
STATEMENTS_OF_VERSION_5 = SCHEMAS / "sqlite_5_statements.sql"
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

FILL_5 = """
INSERT INTO schema_version VALUES (5, 'workers', 0);
INSERT INTO jobs (id, name, queue, priority, arguments, max_attempts, run_at, created_at)
VALUES ('00000000-0000-7000-8000-000000000001', 'job', 'queue', 0, '{}', 5, 1, 1);
INSERT INTO jobs (id, name, queue, priority, arguments, max_attempts, run_at, created_at, state,
    attempt, fence, lease_owner, lease_expires_at, started_at)
VALUES ('00000000-0000-7000-8000-000000000002', 'job', 'queue', 0, '{}', 5, 1, 1, 'running', 1, 1,
    'worker', 9000000000000000, 1);
INSERT INTO history (id, kept_until, state, queue, name, tags, priority, attempt, max_attempts,
    snoozes, releases, crashes, fence, run_at, created_at, finished_at, arguments)
VALUES ('00000000-0000-7000-8000-000000000003', 9000000000000000, 'dead', 'queue', 'job', '[]', 0,
    5, 5, 0, 0, 0, 10, 1, 1, 1, '{}');
"""


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A file as version 1 left it."""
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as connection:
        versions = load(read_sql("holdfast.stores.sqlite", "schema.sql"), numbered=False)[
            "create_versions"
        ]
        connection.executescript(f"{versions.sql};{migrations.steps('sqlite')[0].sql}{FILL}")
        yield connection


@pytest.fixture
def version_5(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A file as version 5 left it: with a job that waits, one that runs, and one that has ended."""
    with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as connection:
        versions = load(read_sql("holdfast.stores.sqlite", "schema.sql"), numbered=False)[
            "create_versions"
        ]
        steps = [step for step in migrations.steps("sqlite") if step.version <= 5]
        connection.executescript(f"{versions.sql};{''.join(step.sql for step in steps)}{FILL_5}")
        yield connection


@pytest.fixture
def old_5() -> dict[str, Statement]:
    return load(STATEMENTS_OF_VERSION_5.read_text(), numbered=False)


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


async def test_jobs_of_version_5_go_on_and_can_be_held_from_now_on(
    tmp_path: Path, version_5: sqlite3.Connection
) -> None:
    waiting, running, ended = (UUID(int=(7 << 76) + (8 << 60) + number) for number in (1, 2, 3))
    store = await opened(tmp_path)
    assert [(await recorded(store, job_id)).breaker for job_id in (waiting, running, ended)] == [
        None
    ] * 3
    found = await queue_status(store, "queue")
    assert (found.ready, found.running, found.parked, found.paused) == (1, 1, 0, False)
    await store.cap("queue", 1)
    assert await claim(store) == []
    await store.cap("queue", 2)
    assert [job.id for job in await claim(store)] == [waiting]
    assert await store.requeue(ended, new_id())
    assert await store.breakers() == []
    assert await store.park(10) == (0, None)
    await store.close()


async def test_every_statement_of_version_5_runs_on_this_schema(
    tmp_path: Path, version_5: sqlite3.Connection, old_5: dict[str, Statement]
) -> None:
    await (await opened(tmp_path)).close()
    for statement in old_5.values():
        values = dict.fromkeys(statement.parameters, "[]")
        assert version_5.execute(f"EXPLAIN {statement.sql}", values).fetchall()


async def test_a_worker_of_version_5_leaves_held_jobs_alone(
    tmp_path: Path, version_5: sqlite3.Connection, old_5: dict[str, Statement]
) -> None:
    version_5.execute("DELETE FROM jobs")
    store = await opened(tmp_path)
    await enqueue(store, breaker="gateway")
    await store.open_breaker("gateway", None, None)
    now = 2**52
    lane = {"queue": "default", "priority": 0, "now": now, "names": '["job"]', "limit": 10}
    lanes = version_5.execute(old_5["due_lanes"].sql, lane).fetchall()
    (due,) = version_5.execute(old_5["due_jobs"].sql, lane).fetchone()
    assert lanes == [("default", 0)]
    assert due != "[]"
    assert await park_all(store) == 1
    assert version_5.execute(old_5["due_lanes"].sql, lane).fetchall() == []
    assert version_5.execute(old_5["due_jobs"].sql, lane).fetchone() == ("[]",)
    await store.close()


async def test_what_a_worker_of_version_5_does_to_a_held_job_is_understood(
    tmp_path: Path, version_5: sqlite3.Connection, old_5: dict[str, Statement]
) -> None:
    version_5.execute("DELETE FROM jobs")
    store = await opened(tmp_path)
    retried, canceled = [await enqueue(store, breaker="gateway") for _ in range(2)]
    created_at = (await recorded(store, canceled)).created_at
    await store.open_breaker("gateway", None, None)
    assert await park_all(store) == 2

    (number,) = version_5.execute("SELECT rowid FROM jobs WHERE id = ?", [str(canceled)]).fetchone()
    move = f'[[{number}, "canceled", {2**52}, 0, "CANCELED", "by hand", 0, 0, 0, 0, 0, null]]'
    version_5.execute(old_5["end"].sql, {"moves": move, "now": 1})
    version_5.execute(old_5["remove"].sql, {"numbers": f"[{number}]"})
    found = await recorded(store, canceled)
    assert (found.state, found.run_at) == (State.CANCELED, created_at)

    assert version_5.execute(old_5["retry"].sql, {"id": str(retried), "now": 1}).rowcount == 1
    assert (await breaker_status(store)).parked == 0
    assert await park_all(store) == 1
    await store.close_breaker("gateway")
    assert await park_all(store) == 1
    assert [job.id for job in await claim(store)] == [retried]
    await store.close()


async def test_a_held_job_that_a_worker_of_version_1_ended_in_place_moves_with_its_due_time(
    tmp_path: Path, connection: sqlite3.Connection
) -> None:
    connection.execute("DELETE FROM jobs")
    store = await opened(tmp_path)
    job_id = await enqueue(store, breaker="gateway", run_at=datetime(2020, 1, 1, tzinfo=UTC))
    before = await recorded(store, job_id)
    await store.open_breaker("gateway", None, None)
    assert await park_all(store) == 1
    now = int(before.created_at.timestamp() * 1_000_000)
    connection.execute(
        "UPDATE jobs SET state = 'canceled', fence = 1, finished_at = ? WHERE id = ?",
        [now, str(job_id)],
    )
    await store.close_breaker("gateway")
    assert await park_all(store) == 0
    assert not (await breaker_status(store)).unparking
    await tidy_up(store)
    found = await recorded(store, job_id)
    assert (found.state, found.run_at) == (State.CANCELED, before.run_at)
    await store.close()
