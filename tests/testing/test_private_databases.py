"""Sandboxes on a PostgreSQL server: each is a database of its own, which is gone afterwards."""

from __future__ import annotations

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.pool import NullPool

from holdfast import Breaker, ConfigurationError, Context, Holdfast, State
from holdfast.stores.statements import read_sql
from holdfast.testing import sandbox
from holdfast.testing.databases import PREFIX
from tests.support.completing import Base, Payment, driver_url

LEFT_ALONE = {"application_steps.applied_at", "schema_version.applied_at"}


async def fetch(url: str, sql: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(sql)]
    finally:
        await connection.close()


async def sandboxes(server: str) -> list[str]:
    return await fetch(server, f"SELECT datname FROM pg_database WHERE datname LIKE '{PREFIX}%'")


async def test_the_database_is_dropped_even_if_the_test_fails(
    hf: Holdfast, postgres_server: str
) -> None:
    used: list[str] = []

    async def fail_in_a_sandbox() -> None:
        async with sandbox(hf, postgres_server) as jobs:
            used.append(jobs.url.rpartition("/")[2])
            assert used[0] in await sandboxes(postgres_server)
            connections.append(await asyncpg.connect(jobs.url))  # which nobody closes
            raise LookupError

    connections: list[asyncpg.Connection] = []
    with pytest.raises(LookupError):
        await fail_in_a_sandbox()
    assert used[0] not in await sandboxes(postgres_server)
    connections.pop().terminate()


async def test_the_tables_of_applications_are_there(postgres_server: str, local_url: str) -> None:
    hf = Holdfast(local_url)
    hf.tables("shop", "tests.support.shop")
    async with sandbox(hf, postgres_server) as jobs:
        assert await fetch(jobs.url, "SELECT id FROM holdfast.shop_orders") == []


async def test_your_session_and_the_sandbox_share_transactions(
    hf: Holdfast, postgres_server: str
) -> None:
    @hf.job
    async def pay(ctx: Context) -> None:
        async with AsyncSession(engine) as session, ctx.completing(connection=session):
            session.add(Payment(job=str(ctx.job_id)))

    async with sandbox(hf, postgres_server) as jobs:
        engine = create_async_engine(driver_url(jobs.url, "asyncpg"), poolclass=NullPool)
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with AsyncSession(engine) as session:
            await pay.options(connection=session).enqueue()
            await session.rollback()
        assert await jobs.jobs() == []
        async with AsyncSession(engine) as session, session.begin():
            job = await pay.options(connection=session).enqueue()
        assert (await jobs.drain()).succeeded == 1
        assert await fetch(jobs.url, "SELECT job FROM payments") == [str(job.id)]


async def test_every_time_that_is_recorded_moves(hf: Holdfast, postgres_server: str) -> None:
    advance = read_sql("holdfast.testing", "advance.sql")
    async with sandbox(hf, postgres_server) as jobs:
        recorded = await fetch(
            jobs.url,
            "SELECT table_name || '.' || column_name FROM information_schema.columns"
            " WHERE table_schema = 'holdfast' AND data_type <> 'interval'"
            " AND (udt_name LIKE '%timestamp%' OR udt_name = 'date')"
            " AND table_name NOT LIKE 'history\\_2%' AND table_name <> 'history_rest'",
        )
    parts = {part.partition("\n")[0]: part for part in advance.split("-- name: ")}
    left = {
        column
        for column in recorded
        if column.partition(".")[2] not in parts.get(column.partition(".")[0], "")
    }
    assert left == LEFT_ALONE


async def test_time_moves_for_leases_breakers_keys_and_what_has_ended(
    hf: Holdfast, server: str | None
) -> None:
    @hf.job(breaker=Breaker("gateway", failures=1, probe_seconds=600))
    async def call(works: bool) -> None:
        if not works:
            raise ConnectionError("down")

    @hf.job
    async def plain() -> None: ...

    async with sandbox(hf, server) as jobs:
        before = await jobs.now()
        keyed = plain.options(idempotency_key="k")
        first = await keyed.enqueue()
        assert (await keyed.enqueue()).id == first.id
        await call.enqueue(False)
        await jobs.drain()
        parked = await call.enqueue(True)
        await jobs.drain()
        assert (await hf.get(parked.id)).state is State.QUEUED
        ended = await hf.get(first.id)
        await jobs.advance(3600)
        assert (await jobs.now() - (await hf.get(first.id)).created_at).total_seconds() >= 3600
        assert (await hf.get(first.id)).state is ended.state is State.SUCCEEDED
        assert await jobs.now() >= before
        await jobs.drain()
        assert (await hf.get(parked.id)).state is State.SUCCEEDED
        counted = {(each.state, each.jobs) for each in await hf.jobs.counts()}
        assert (State.SUCCEEDED, 2) in counted or (State.SUCCEEDED, 3) in counted


async def test_a_role_without_the_right_to_create_databases_is_told_what_to_do(
    hf: Holdfast, postgres_server: str
) -> None:
    await fetch(postgres_server, "CREATE ROLE poor LOGIN")
    try:
        with pytest.raises(ConfigurationError, match=r"run: ALTER ROLE \.\.\. CREATEDB"):
            async with sandbox(hf, postgres_server.replace("postgres@", "poor@")):
                pass
    finally:
        await fetch(postgres_server, "DROP ROLE poor")


async def test_a_role_that_is_no_superuser_can_travel_in_time(
    hf: Holdfast, postgres_server: str
) -> None:
    @hf.job
    async def later() -> None: ...

    await fetch(postgres_server, "CREATE ROLE maker LOGIN CREATEDB")
    try:
        async with sandbox(hf, postgres_server.replace("postgres@", "maker@")) as jobs:
            await later.options(delay_seconds=60).enqueue()
            assert (await jobs.drain(with_delayed=True)).succeeded == 1
            await jobs.advance(60)
    finally:
        await fetch(postgres_server, "DROP ROLE maker")


@pytest.mark.parametrize("url", ["sqlite:///mine.db", "mysql://u:secret@host/x", "nonsense"])
async def test_other_urls_are_refused_without_their_password(hf: Holdfast, url: str) -> None:
    with pytest.raises(ConfigurationError, match="a sandbox runs on") as refused:
        async with sandbox(hf, url):
            pass
    assert "secret" not in str(refused.value)
