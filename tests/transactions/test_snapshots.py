"""Transactions that see the database as of one moment: no job runs twice because of that."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from holdfast import BadArguments, DuplicateJob, Holdfast, StoreUnavailable
from holdfast.job_function import JobFunction
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres import PostgresStore
from tests.support.running import see_one_moment_by_default

POSTGRES = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
one_snapshot = pytest.mark.parametrize("isolation", ["repeatable_read", "serializable"])


@pytest.fixture
def resize(hf: Holdfast) -> JobFunction[[str], Any]:
    @hf.job
    async def resize(image: str) -> None: ...

    return resize


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def only_job(hf: Holdfast) -> Any:
    (job,) = (await hf.jobs.list()).jobs
    return job.id


@POSTGRES
@one_snapshot
async def test_a_chosen_id_can_not_run_twice_by_an_old_snapshot(
    hf: Holdfast, resize: JobFunction[[str], Any], store_url: str, isolation: Any
) -> None:
    chosen = resize.options(id=uuid4())
    async with connected(store_url) as connection:
        async with connection.transaction(isolation=isolation):
            await connection.fetchval("SELECT count(*) FROM holdfast.jobs")
            job = await chosen.enqueue("photo.png")
            await hf.run_worker(until_empty=True)
            with pytest.raises(BadArguments, match=r"READ COMMITTED .* idempotency key"):
                await chosen.options(connection=connection).enqueue("photo.png")
        async with connection.transaction():
            with pytest.raises(DuplicateJob):
                await chosen.options(connection=connection).enqueue("photo.png")
    assert await only_job(hf) == job.id


@POSTGRES
@one_snapshot
async def test_a_key_can_not_run_twice_by_an_old_snapshot(
    hf: Holdfast, resize: JobFunction[[str], Any], store_url: str, isolation: Any
) -> None:
    keyed = resize.options(idempotency_key="once")
    async with connected(store_url) as connection:
        async with connection.transaction(isolation=isolation):
            await connection.fetchval("SELECT count(*) FROM holdfast.jobs")
            first = await keyed.enqueue("photo.png")
            await hf.run_worker(until_empty=True)
            with pytest.raises(StoreUnavailable, match="serialize"):
                await keyed.options(connection=connection).enqueue("photo.png")
        async with connection.transaction(isolation=isolation):
            again = await keyed.options(connection=connection).enqueue("photo.png")
    assert await only_job(hf) == first.id == again.id


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_file_that_was_read_before_others_wrote_takes_no_job(
    hf: Holdfast, resize: JobFunction[[str], Any], store_url: str
) -> None:
    """By an old view of the file, a chosen id could run twice."""
    chosen = resize.options(id=uuid4())
    await hf.jobs.counts()
    path = store_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        again = chosen.options(connection=connection)
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM jobs").fetchone()
        job = await chosen.enqueue("photo.png")
        await hf.run_worker(until_empty=True)
        with pytest.raises(StoreUnavailable, match="BEGIN IMMEDIATE"):
            again.enqueue_sync("photo.png")
        connection.execute("ROLLBACK")
        connection.execute("BEGIN")
        with pytest.raises(DuplicateJob):
            again.enqueue_sync("photo.png")
    assert await only_job(hf) == job.id


@pytest.mark.parametrize("store_url", ["pg15", "bouncer"], indirect=True)
async def test_the_default_isolation_of_a_database_is_not_the_engines(store_url: str) -> None:
    """Claims, settlements and looks for ended jobs see what was committed before them."""
    await see_one_moment_by_default(store_url)
    store = PostgresStore(store_url, Seam())

    async def look(connection: Any) -> str:
        async with connection.transaction():
            return str(await connection.fetchval("SHOW transaction_isolation"))

    try:
        assert await store._connections.run(look) == "read committed"
    finally:
        await store.close()
