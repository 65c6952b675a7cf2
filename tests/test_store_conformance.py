"""The conformance suite on every store: they behave the same."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from holdfast.domain.retention import A_WEEK, Retention
from holdfast.seam import Seam
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.protocol import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import VirtualTime
from holdfast.testing.conformance import Harness, PollingConformance, StoreConformance
from tests.conftest import SERVERS

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
    "breakers": ["opened_at", "next_probe_at", "changed_at"],
}
SHIFT_FAILURES = """
UPDATE holdfast.breakers
SET failures = ARRAY(
    SELECT failed_at - $1::interval
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

    async def open_store(self, retention: Retention = A_WEEK) -> Store:
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
    """The server's clock can't be moved, so time passes by moving all rows into the past."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open_store(self, retention: Retention = A_WEEK) -> Store:
        store = PostgresStore(self._url, Seam(), retention=retention)
        await store.open()
        return store

    async def clear(self) -> None:
        async with self._beside() as connection:
            # Quicker than to truncate all partitions of the history.
            for table in (*SHIFTED, "history_counts"):
                await connection.execute(f"DELETE FROM holdfast.{table}")

    async def advance(self, seconds: float) -> None:
        async with self._beside() as connection:
            # Without the triggers, which would refuse changes of what has ended.
            await connection.execute("SET LOCAL session_replication_role = replica")
            for table, columns in SHIFTED.items():
                moves = ", ".join(f"{column} = {column} - $1::interval" for column in columns)
                await connection.execute(
                    f"UPDATE holdfast.{table} SET {moves}", timedelta(seconds=seconds)
                )
            await connection.execute(SHIFT_FAILURES, timedelta(seconds=seconds))
            # Which are kept by the day, and their jobs have changed theirs.
            await connection.execute(COUNT_ANEW)

    async def write(self, job_id: UUID, columns: Mapping[str, object]) -> bool:
        try:
            async with self._beside() as connection:
                if not await self._update(connection, "jobs", job_id, columns):
                    kept = {
                        name: columns[name] for name in columns if not name.startswith("lease_")
                    }
                    await self._update(connection, "history", job_id, kept)
            return True
        except asyncpg.CheckViolationError:
            return False

    @asynccontextmanager
    async def _beside(self) -> AsyncIterator[asyncpg.Connection]:
        """A transaction, which behind a pooler is all that stays on one connection."""
        connection = await asyncpg.connect(self._url, statement_cache_size=0)
        try:
            async with connection.transaction():
                yield connection
        finally:
            await connection.close()

    async def _update(
        self,
        connection: asyncpg.Connection,
        table: str,
        job_id: UUID,
        columns: Mapping[str, object],
    ) -> bool:
        assignments = ", ".join(f"{name} = ${place}" for place, name in enumerate(columns, 2))
        told: str = await connection.execute(
            f"UPDATE holdfast.{table} SET {assignments} WHERE id = $1", job_id, *columns.values()
        )
        return told == "UPDATE 1"


@pytest.fixture(scope="module", params=["sqlite", *SERVERS])
def shared_url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """One database of each server for all tests, which is quicker than one for each test."""
    if request.param == "sqlite":
        yield None
        return
    yield from request.getfixturevalue("migrated_database")(request.param)


class TestStore(StoreConformance):
    @pytest_asyncio.fixture
    async def harness(self, shared_url: str | None, tmp_path: Path) -> Harness:
        if shared_url is None:
            return SqliteHarness(tmp_path / "jobs.db")
        harness = PostgresHarness(shared_url)
        await harness.clear()
        return harness


@pytest.fixture(scope="module")
def pooled_url(migrated_database: Callable[[str], Iterator[str]]) -> Iterator[str]:
    yield from migrated_database("bouncer")


@pytest.mark.slow
class TestStoreBehindPgBouncer(PollingConformance):
    """In transaction mode, where nothing that a session keeps is found again."""

    @pytest_asyncio.fixture
    async def harness(self, pooled_url: str) -> Harness:
        harness = PostgresHarness(pooled_url)
        await harness.clear()
        return harness
