"""The conformance suite on every store: they behave the same."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio

from holdfast.seam import Seam
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.protocol import Store
from holdfast.stores.sqlite import SqliteStore
from holdfast.testing import VirtualTime
from holdfast.testing.conformance import Harness, StoreConformance
from tests.conftest import SERVERS
from tests.support.postgres import Databases

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHIFTED = {
    "jobs": [
        "run_at",
        "expires_at",
        "created_at",
        "started_at",
        "finished_at",
        "lease_expires_at",
    ],
    "attempts": ["started_at", "ended_at"],
    "idempotency_keys": ["expires_at"],
}


class SqliteHarness:
    """The clock is the seam's, so time passes by moving it on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._time = VirtualTime()

    async def open_store(self) -> Store:
        store = SqliteStore(str(self._path), self._time, synchronous="NORMAL")
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
        assignments = ", ".join(f"{name} = :{name}" for name in values)
        connection = sqlite3.connect(self._path)
        try:
            with connection:
                connection.execute(
                    f"UPDATE jobs SET {assignments} WHERE id = :id", {**values, "id": str(job_id)}
                )
            return True
        except sqlite3.IntegrityError:
            return False
        finally:
            connection.close()


class PostgresHarness:
    """The server's clock can't be moved, so time passes by moving all rows into the past."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def open_store(self) -> Store:
        store = PostgresStore(self._url, Seam())
        await store.open()
        return store

    async def clear(self) -> None:
        connection = await asyncpg.connect(self._url)
        try:
            tables = ", ".join(f"holdfast.{table}" for table in SHIFTED)
            await connection.execute(f"TRUNCATE {tables}")
        finally:
            await connection.close()

    async def advance(self, seconds: float) -> None:
        connection = await asyncpg.connect(self._url)
        try:
            # Without the triggers, which would refuse changes of what has ended.
            await connection.execute("SET session_replication_role = replica")
            for table, columns in SHIFTED.items():
                moves = ", ".join(f"{column} = {column} - $1::interval" for column in columns)
                await connection.execute(
                    f"UPDATE holdfast.{table} SET {moves}", timedelta(seconds=seconds)
                )
        finally:
            await connection.close()

    async def write(self, job_id: UUID, columns: Mapping[str, object]) -> bool:
        assignments = ", ".join(f"{name} = ${place}" for place, name in enumerate(columns, 2))
        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute(
                f"UPDATE holdfast.jobs SET {assignments} WHERE id = $1", job_id, *columns.values()
            )
            return True
        except asyncpg.CheckViolationError:
            return False
        finally:
            await connection.close()


@pytest.fixture(scope="module", params=["sqlite", *SERVERS])
def shared_url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """One database of each server for all tests, which is quicker than one for each test."""
    if request.param == "sqlite":
        yield None
        return
    databases: Databases = request.getfixturevalue("postgres_databases")(request.param)
    name = databases.create(request.getfixturevalue("migrated_template")(request.param))
    yield databases.url(name)
    databases.drop(name)


class TestStore(StoreConformance):
    @pytest_asyncio.fixture
    async def harness(self, shared_url: str | None, tmp_path: Path) -> Harness:
        if shared_url is None:
            return SqliteHarness(tmp_path / "jobs.db")
        harness = PostgresHarness(shared_url)
        await harness.clear()
        return harness
