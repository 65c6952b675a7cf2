"""The conformance suite on every store: they behave the same."""

from __future__ import annotations

import sqlite3
from asyncio import to_thread
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql

from holdfast.domain.retention import A_WEEK, Retention
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.protocol import FullStore, Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import VirtualTime
from holdfast.testing.conformance import Harness, Kind, PollingConformance, Room, StoreConformance
from holdfast_systems.documents.salesforce.store import SalesforceStore
from tests.support.services import everywhere, fast
from tests.systems.documents.organization import local_salesforce, switch

POOLED = {"enqueue", "keys", "claim", "renew", "settle", "reclaim", "cancel", "races"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHIFTED = {
    "jobs": [
        "run_at",
        "expires_at",
        "created_at",
        "started_at",
        "finished_at",
        "lease_expires_at",
        "held_run_at",
    ],
    "history": [
        "run_at",
        "expires_at",
        "created_at",
        "started_at",
        "finished_at",
        "kept_until",
    ],
    "attempts": ["started_at", "ended_at"],
    "idempotency_keys": ["expires_at"],
    "requeues": ["requeued_at", "kept_until"],
    "workers": ["started_at", "seen_at"],
    "queues": ["paused_at"],
    "breakers": ["opened_at", "next_probe_at", "worked_at", "changed_at"],
}
SHIFT_FAILURES = """
UPDATE holdfast.breakers
SET failures = ARRAY(
    SELECT failed_at - %(by)s
    FROM unnest(failures) WITH ORDINALITY AS failed (failed_at, place)
    ORDER BY place
)
"""
COUNT_ANEW = """
WITH old AS (DELETE FROM holdfast.history_counts)
INSERT INTO holdfast.history_counts (kept_day, tenant, queue, state, jobs)
SELECT (kept_until AT TIME ZONE 'UTC')::date, coalesce(tenant, ''), queue, state, count(*)
FROM holdfast.history
GROUP BY 1, 2, 3, 4
"""


class SqliteHarness:
    """The clock is the seam's, so time passes by moving it on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._time = VirtualTime()

    async def open_store(self, retention: Retention = A_WEEK) -> FullStore:
        store = SqliteStore(str(self._path), self._time, synchronous="NORMAL", retention=retention)
        await store.open()
        return store

    async def advance(self, seconds: float) -> None:
        self._time.advance(seconds)

    async def write(self, job_id: UUID, columns: Mapping[str, object]) -> bool:
        values = {
            name: (value - EPOCH) // timedelta(microseconds=1)
            if isinstance(value, datetime)
            else value
            for name, value in columns.items()
        }
        connection = sqlite3.connect(self._path)
        try:
            with connection:
                if not self._update(connection, "jobs", job_id, values):
                    kept = {name: values[name] for name in values if not name.startswith("lease_")}
                    self._update(connection, "history", job_id, kept)
            return True
        except sqlite3.IntegrityError:
            return False
        finally:
            connection.close()

    def _update(
        self,
        connection: sqlite3.Connection,
        table: str,
        job_id: UUID,
        values: Mapping[str, object],
    ) -> bool:
        assignments = ", ".join(f"{name} = :{name}" for name in values)
        told = connection.execute(
            f"UPDATE {table} SET {assignments} WHERE id = :id", {**values, "id": str(job_id)}
        )
        return told.rowcount == 1


class PostgresHarness:
    """The server's clock can't be moved, so time passes by moving all rows into the past.

    What happens beside the store goes over one connection for all tests, whose server knows the
    tables by then: it has a thread, because every test has an event loop of its own.
    """

    def __init__(self, url: str, beside: psycopg.Connection) -> None:
        self._url = url
        self._beside = beside

    async def open_store(self, retention: Retention = A_WEEK) -> FullStore:
        store = PostgresStore(self._url, Seam(), retention=retention)
        await store.open()
        return store

    async def clear(self) -> None:
        # Quicker than to truncate all partitions of the history.
        tables = [sql.Identifier("holdfast", table) for table in (*SHIFTED, "history_counts")]
        await to_thread(self._run, [sql.SQL("DELETE FROM {}").format(table) for table in tables])

    async def advance(self, seconds: float) -> None:
        updates = [
            sql.SQL("UPDATE {} SET {}").format(
                sql.Identifier("holdfast", table),
                sql.SQL(", ").join(
                    sql.SQL("{0} = {0} - %(by)s").format(sql.Identifier(column))
                    for column in columns
                ),
            )
            for table, columns in SHIFTED.items()
        ]
        # Without the triggers, which would refuse changes of what has ended. What is counted is
        # kept by the day, and the jobs have changed theirs.
        unguarded = sql.SQL("SET LOCAL session_replication_role = replica")
        statements: list[sql.SQL | sql.Composed] = [
            unguarded,
            *updates,
            sql.SQL(SHIFT_FAILURES),
            sql.SQL(COUNT_ANEW),
        ]
        await to_thread(self._run, statements, {"by": timedelta(seconds=seconds)})

    async def write(self, job_id: UUID, columns: Mapping[str, object]) -> bool:
        try:
            await to_thread(self._write, job_id, columns)
            return True
        except psycopg.errors.CheckViolation:
            return False

    def _run(
        self, statements: Sequence[sql.SQL | sql.Composed], values: dict[str, object] | None = None
    ) -> None:
        # A transaction is all that stays on one connection behind a pooler.
        with self._beside.transaction():
            for statement in statements:
                self._beside.execute(statement, values)

    def _write(self, job_id: UUID, columns: Mapping[str, object]) -> None:
        with self._beside.transaction():
            if not self._update("jobs", job_id, columns):
                kept = {name: columns[name] for name in columns if not name.startswith("lease_")}
                self._update("history", job_id, kept)

    def _update(self, table: str, job_id: UUID, columns: Mapping[str, object]) -> bool:
        assignments = [
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Placeholder(name))
            for name in columns
        ]
        told = self._beside.execute(
            sql.SQL("UPDATE {} SET {} WHERE id = %(id)s").format(
                sql.Identifier("holdfast", table), sql.SQL(", ").join(assignments)
            ),
            {**columns, "id": job_id},
        )
        return told.rowcount == 1


@contextmanager
def kept_open(url: str) -> Iterator[tuple[str, psycopg.Connection]]:
    # Nothing is prepared by name: a pooler would not find it again.
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as beside:
        yield url, beside


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "shared" in metafunc.fixturenames:
        metafunc.parametrize("shared", databases_of(metafunc), indirect=True, scope="module")


def databases_of(metafunc: pytest.Metafunc) -> list[str]:
    """SQLite and both PostgreSQLs run every test. A PgBouncer in transaction mode, where nothing
    that a session keeps is found again, runs those of a job's life; in the long run, all."""
    if fast():
        return ["sqlite", "pg15"]
    area = metafunc.function.__module__.rpartition(".")[2]
    polls = hasattr(PollingConformance, metafunc.function.__name__)
    pooled = polls and (everywhere() or area in POOLED)
    return ["sqlite", "pg15", "pg18", *(["bouncer"] if pooled else [])]


@pytest.fixture(scope="module")
def shared(
    request: pytest.FixtureRequest,
) -> Iterator[tuple[str, psycopg.Connection] | None]:
    """One database of each kind for all tests, which is quicker than one for each test."""
    if request.param == "sqlite":
        yield None
        return
    for url in request.getfixturevalue("migrated_database")(request.param):
        with kept_open(url) as opened:
            yield opened


class SalesforceHarness:
    """Salesforce's clock is known only to the second, so it advances a little more than asked."""

    def __init__(self, address: str) -> None:
        self._address = address
        host = address.removeprefix("http://")
        self._url = f"salesforce+http://integration:integration-secret@{host}"

    async def open_store(self, retention: Retention = A_WEEK) -> Store:
        store = SalesforceStore(self._url, Seam(), max_attempts=5)
        await store.open()
        return store

    async def advance(self, seconds: float) -> None:
        await to_thread(switch, self._address, "POST", "records/age", ceil(seconds) + 3)

    async def write(self, job_id: UUID, columns: Mapping[str, object]) -> bool:
        raise NotImplementedError("an organization has none of the domain's constraints")


class TestStore(StoreConformance):
    @pytest_asyncio.fixture
    async def harness(
        self, shared: tuple[str, psycopg.Connection] | None, tmp_path: Path
    ) -> Harness:
        if shared is None:
            return SqliteHarness(tmp_path / "jobs.db")
        harness = PostgresHarness(*shared)
        await harness.clear()
        return harness


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with local_salesforce() as address:
        yield address


@pytest.mark.heavy
class TestSalesforce(
    StoreConformance,
    store=SalesforceStore,
    kind=Kind(
        name="generate_document",
        queue="documents",
        arguments=b'{"template":"invoice","data":{}}',
        result=b'{"file_id":"068000000000001AAA"}',
        many=100,
        lacks=frozenset(Room),
    ),
):
    """Records have none of the rooms; `docs/systems/documents.md` lists what is missing."""

    @pytest_asyncio.fixture
    async def harness(self, address: str) -> Harness:
        await to_thread(switch, address, "DELETE", "records")
        return SalesforceHarness(address)
