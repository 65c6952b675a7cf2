"""A database of an older version: its jobs go on, and its workers work beside those of this one.

To the older version, "no tenant" was no tenant. To this one, it is the tenant `default`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
import pytest

from holdfast.domain.job import DEFAULT_TENANT, Attempt, Count, Filter, Lease
from holdfast.domain.states import State
from holdfast.runtime.seam import Seam
from holdfast.stores import migrations
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.protocol import FullStore
from holdfast.stores.sqlite import SqliteStore
from holdfast.stores.statements import load, read_sql
from holdfast.testing.conformance.harness import claim, new_id, new_job, recorded, success

UNNAMED, NAMED, OF_TENANT, RUNNING, SUCCEEDED, LATER = (
    UUID(int=(7 << 76) + (8 << 60) + number) for number in range(1, 7)
)
# Each word is a value that the two databases write in their own way.
WORDS: Final = {
    "postgres": {
        "holdfast.": "holdfast.",
        "$now": "now()",
        "$later": "now() + interval '1 hour'",
        "$day": "kept_day, ",
        "$date": "current_date, ",
        "$no_tags": "'{}'",
        "$hash": "'\\x00'",
    },
    "sqlite": {
        "holdfast.": "",
        "$now": "1700000000000000",
        "$later": "9000000000000000",
        "$day": "",
        "$date": "",
        "$no_tags": "'[]'",
        "$hash": "x'00'",
    },
}
JOB: Final = """
INSERT INTO holdfast.jobs (
    id, name, queue, priority, arguments, max_attempts, run_at, created_at, tenant, idempotency_key
) VALUES ('{id}', 'job', '{queue}', 0, '{{}}', 5, $now, $now, {tenant}, {key})
"""
KEY: Final = """
INSERT INTO holdfast.idempotency_keys (tenant, key, job_id, body_hash, expires_at)
VALUES ('{tenant}', '{key}', '{id}', $hash, $later)
"""
LEASED: Final = """
INSERT INTO holdfast.jobs (
    id, name, queue, priority, arguments, max_attempts, run_at, created_at, state, attempt, fence,
    lease_owner, lease_expires_at, started_at
) VALUES (
    '{id}', 'job', 'run', 0, '{{}}', 5, $now, $now, 'running', 1, 1, 'old', $later, $now
)
"""
ENDED: Final = """
INSERT INTO holdfast.history (
    id, kept_until, state, queue, name, tags, priority, attempt, max_attempts, snoozes, releases,
    crashes, fence, run_at, created_at, started_at, finished_at, arguments, result
) VALUES (
    '{id}', $later, 'succeeded', 'done', 'job', $no_tags, 0, 1, 5, 0, 0, 0, 2, $now, $now, $now,
    $now, '{{}}', '1'
)
"""
COUNTED: Final = """
INSERT INTO holdfast.history_counts ($daytenant, queue, state, jobs)
VALUES ($date'', 'done', 'succeeded', 1)
"""

Execute = Callable[[str], Awaitable[None]]


class Before:
    """A database as the older version left it. `write` does what a worker of that version does."""

    def __init__(self, dialect: str, store: FullStore, execute: Execute) -> None:
        self.store = store
        self._words = WORDS[dialect]
        self._execute = execute

    async def write(self, sql: str, **values: object) -> None:
        text = sql.format(**values)
        for word, value in self._words.items():
            text = text.replace(word, value)
        await self._execute(text)

    async def enqueue(
        self, job_id: UUID, queue: str, tenant: str | None = None, key: str | None = None
    ) -> None:
        quoted = {"tenant": _quoted(tenant), "key": _quoted(key)}
        await self.write(JOB, id=job_id, queue=queue, **quoted)
        if key is not None:
            await self.write(KEY, id=job_id, tenant=tenant or "", key=key)

    async def succeed(self, job_id: UUID) -> None:
        await self.write("DELETE FROM holdfast.jobs WHERE id = '{id}'", id=job_id)
        await self.write(ENDED, id=job_id)


def _quoted(text: str | None) -> str:
    return "NULL" if text is None else f"'{text}'"


Opening = Callable[[], AbstractAsyncContextManager[Before]]


def steps_before_tenants(dialect: str) -> Iterator[migrations.Step]:
    return takewhile(lambda step: step.name != "parents", migrations.steps(dialect))


@asynccontextmanager
async def file_before(path: str) -> AsyncIterator[Before]:
    connection = sqlite3.connect(path, isolation_level=None)
    schema = load(read_sql("holdfast.stores.sqlite", "schema.sql"), numbered=False)
    connection.executescript(f"{schema['create_versions'].sql};")
    for step in steps_before_tenants("sqlite"):
        connection.executescript(step.sql)
        values = {"version": step.version, "name": step.name, "applied_at": 0}
        connection.execute(schema["applied"].sql, values)

    async def execute(sql: str) -> None:
        connection.execute(sql)

    store = SqliteStore(path, Seam())
    yield Before("sqlite", store, execute)
    await store.close()
    connection.close()


@asynccontextmanager
async def server_before(url: str) -> AsyncIterator[Before]:
    connection = await asyncpg.connect(url)
    for step in steps_before_tenants("postgres"):
        await connection.execute(step.sql)
        await connection.execute(
            "INSERT INTO holdfast.schema_version (version, name) VALUES ($1, $2)",
            step.version,
            step.name,
        )
    store = PostgresStore(url, Seam())
    yield Before("postgres", store, connection.execute)
    await store.close()
    await connection.close()


@pytest.fixture(params=["sqlite", "pg15", "pg18"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opening]:
    if request.param == "sqlite":
        yield partial(file_before, str(tmp_path / "jobs.db"))
        return
    databases = request.getfixturevalue("postgres_databases")(request.param)
    name = databases.create()
    yield partial(server_before, databases.url(name))
    databases.drop(name)


@pytest.fixture
async def before(empty: Opening) -> AsyncIterator[Before]:
    """With a job of no tenant, one of a tenant named default, one of another tenant, each with a
    key; one that runs, and one that has succeeded."""
    async with empty() as database:
        await database.enqueue(UNNAMED, "wait", key="k")
        await database.enqueue(NAMED, "wait", tenant="default", key="named")
        await database.enqueue(OF_TENANT, "wait", tenant="t", key="k")
        await database.write(LEASED, id=RUNNING)
        await database.succeed(SUCCEEDED)
        await database.write(COUNTED)
        yield database


async def migrated(before: Before) -> FullStore:
    assert (await before.store.migrate())[0].endswith("_parents")
    await before.store.open()
    return before.store


async def found(store: FullStore, tenant: str) -> set[UUID]:
    return {job.id for job in (await store.page(Filter(tenant=tenant), 100)).jobs}


def keyed(key: str, tenant: str = DEFAULT_TENANT) -> Any:
    return new_job(idempotency_key=key, tenant=tenant, body_hash=b"\0", key_kept_seconds=60.0)


async def holders(store: FullStore, *jobs: Any) -> Sequence[UUID | None]:
    return [None if each.created else each.id for each in await store.enqueue(jobs)]


async def test_jobs_without_a_tenant_are_found_as_those_of_the_default_one(before: Before) -> None:
    store = await migrated(before)
    default = {UNNAMED, NAMED, RUNNING, SUCCEEDED}
    assert await found(store, DEFAULT_TENANT) == default
    assert await found(store, "t") == {OF_TENANT}
    tenants = {(await recorded(store, job_id)).tenant for job_id in default}
    assert tenants == {DEFAULT_TENANT}
    assert await store.counts(DEFAULT_TENANT) == [
        Count("done", State.SUCCEEDED, 1),
        Count("run", State.RUNNING, 1),
        Count("wait", State.QUEUED, 2),
    ]
    assert await store.counts("t") == [Count("wait", State.QUEUED, 1)]


async def test_keys_outlive_the_migration(before: Before) -> None:
    store = await migrated(before)
    jobs = [keyed("k"), keyed("named"), keyed("k", "t"), keyed("named", "t")]
    assert await holders(store, *jobs) == [UNNAMED, NAMED, OF_TENANT, None]


async def test_workers_of_both_versions_know_each_others_keys(before: Before) -> None:
    store = await migrated(before)
    await before.enqueue(LATER, "wait", key="later")
    assert await holders(store, keyed("later"), keyed("ours")) == [LATER, None]
    with pytest.raises((sqlite3.IntegrityError, asyncpg.UniqueViolationError)):
        await before.enqueue(new_id(), "wait", key="ours")


async def test_jobs_from_workers_of_both_versions_are_one_tenants(before: Before) -> None:
    store = await migrated(before)
    await before.enqueue(LATER, "wait")
    (ours,) = await store.enqueue([new_job(queue="wait")])
    assert {LATER, ours.id} < await found(store, DEFAULT_TENANT)
    claimed = await claim(store)
    assert {job.tenant for job in claimed} == {DEFAULT_TENANT, "t"}
    assert {job.id for job in claimed} == {UNNAMED, NAMED, OF_TENANT, LATER, ours.id}
    assert [job.failures for job in claimed] == [{}] * 5
    assert await store.settle([success(job) for job in claimed]) == []
    assert await store.counts(DEFAULT_TENANT) == [
        Count("done", State.SUCCEEDED, 1),
        Count("run", State.RUNNING, 1),
        Count("wait", State.SUCCEEDED, 4),
    ]


async def test_a_success_of_the_version_before_has_an_attempt_without_a_worker(
    before: Before,
) -> None:
    store = await migrated(before)
    await before.succeed(RUNNING)
    for job_id in (SUCCEEDED, RUNNING):
        (attempt,) = await store.attempts(job_id)
        assert isinstance(attempt, Attempt)
        assert (attempt.outcome, attempt.worker) == ("succeeded", None)
        assert attempt.lease == Lease(job_id, 1)


async def test_a_lease_of_the_version_before_is_settled_by_this_one(before: Before) -> None:
    store = await migrated(before)
    assert await store.renew([Lease(RUNNING, 1)], 30) == []
    (reclaimed,) = await store.reclaim(10, "old", "died")
    assert (reclaimed.job_id, reclaimed.tenant) == (RUNNING, DEFAULT_TENANT)
    (again,) = await claim(store, queues=("run",))
    await store.settle([success(again)])
    assert [each.worker for each in await store.attempts(RUNNING)] == ["old", "worker"]
