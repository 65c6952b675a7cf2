"""A claimed job, and all ways in which its handler can end it in its own transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from holdfast import Context, Holdfast, Job, Permanent, Retry
from holdfast.context import Surroundings
from holdfast.domain.breakers import Strike
from holdfast.domain.codec import Results
from holdfast.domain.job import Claimed
from holdfast.domain.outcomes import Failed, Verdict, decide
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Claim, Store
from tests.support import django_settings
from tests.support.running import QUICK, execute

LEASE_SECONDS = 60.0


class Base(DeclarativeBase):
    pass


class Payment(Base):
    __tablename__ = "payments"
    job: Mapped[str] = mapped_column(primary_key=True)


@dataclass
class Stage:
    """A store, and a claimed job that its context belongs to."""

    hf: Holdfast
    url: str
    store: Store
    job: Claimed
    ctx: Context

    async def now(self) -> Job:
        return await self.hf.get(self.job.id)

    async def payments(self) -> list[str]:
        if self.url.startswith("sqlite:///"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as file:
                return [job for (job,) in file.execute("SELECT job FROM payments")]
        connection = await asyncpg.connect(self.url)
        try:
            return [job for (job,) in await connection.fetch("SELECT job FROM public.payments")]
        finally:
            await connection.close()


class Judge:
    """Decides like a worker whose handler has a retry policy, and no breaker."""

    def judge(self, job: Claimed, error: BaseException) -> Verdict:
        failed = Failed(type(error).__name__, str(error), isinstance(error, Permanent))
        return Verdict(failed, decide(job, failed, Retry.exponential(), 0.5))

    async def strike(self, strike: Strike) -> bool:
        raise NotImplementedError


@asynccontextmanager
async def staged(url: str, store_url: str | None = None) -> AsyncIterator[Stage]:
    """The context may use another URL than the checks that follow."""
    hf = Holdfast(url, **QUICK)
    handlers = Holdfast(store_url or url, **QUICK)

    @hf.job
    async def pay() -> None: ...

    async with hf, handlers:
        await execute(url, f"CREATE TABLE {table(url)} (job text PRIMARY KEY)")
        enqueued = await pay.enqueue()
        store = await handlers._store()
        (job,) = await store.claim(Claim("test", 1, LEASE_SECONDS, ["pay"]))
        assert job.id == enqueued.id
        loop = asyncio.get_running_loop()
        around = Surroundings(store, {}, Results(1000), Seam(), loop, judge=Judge())
        yield Stage(hf, url, store, job, Context(job, around))


def table(url: str) -> str:
    return "payments" if url.startswith("sqlite") else "public.payments"


def driver_url(url: str, driver: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}+{driver}://{rest}"


Pay = Callable[[Context, str], Any]


async def pay_own(ctx: Context, url: str) -> None:
    async with ctx.completing() as connection:
        await connection.execute("INSERT INTO payments VALUES ($1)", str(ctx.job_id))


def pay_own_sync(ctx: Context, url: str) -> None:
    with ctx.completing_sync() as connection:
        connection.execute("INSERT INTO payments VALUES ($1)", str(ctx.job_id))
        assert connection.fetchval("SELECT count(*) FROM payments") == 1
        assert [row[0] for row in connection.fetch("SELECT job FROM payments")] == [str(ctx.job_id)]
        assert connection.fetchrow("SELECT job FROM payments")[0] == str(ctx.job_id)


async def pay_asyncpg(ctx: Context, url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        async with ctx.completing(connection=connection) as same:
            assert same is connection
            await connection.execute("INSERT INTO payments VALUES ($1)", str(ctx.job_id))
    finally:
        await connection.close()


async def pay_psycopg_async(ctx: Context, url: str) -> None:
    async with (
        await psycopg.AsyncConnection.connect(url) as connection,
        ctx.completing(connection=connection),
    ):
        await connection.execute("INSERT INTO payments VALUES (%s)", [str(ctx.job_id)])


async def pay_async_session(ctx: Context, url: str) -> None:
    driver = "aiosqlite" if url.startswith("sqlite") else "asyncpg"
    engine = create_async_engine(driver_url(url, driver), poolclass=NullPool)
    async with AsyncSession(engine) as session, ctx.completing(connection=session):
        session.add(Payment(job=str(ctx.job_id)))


async def pay_async_connection(ctx: Context, url: str) -> None:
    driver = "aiosqlite" if url.startswith("sqlite") else "psycopg"
    engine = create_async_engine(driver_url(url, driver), poolclass=NullPool)
    async with engine.connect() as connection, ctx.completing(connection=connection):
        await connection.execute(sqlalchemy.insert(Payment).values(job=str(ctx.job_id)))


def pay_session(ctx: Context, url: str) -> None:
    driver = "pysqlite" if url.startswith("sqlite") else "psycopg"
    engine = sqlalchemy.create_engine(driver_url(url, driver), poolclass=NullPool)
    with Session(engine) as session, ctx.completing_sync(connection=session):
        assert session.get(Payment, "nobody's") is None
        session.add(Payment(job=str(ctx.job_id)))


def pay_connection(ctx: Context, url: str) -> None:
    driver = "pysqlite" if url.startswith("sqlite") else "psycopg2"
    engine = sqlalchemy.create_engine(driver_url(url, driver), poolclass=NullPool)
    with engine.connect() as connection, ctx.completing_sync(connection=connection):
        connection.execute(sqlalchemy.insert(Payment).values(job=str(ctx.job_id)))


def pay_django(ctx: Context, url: str) -> None:
    with (
        django_settings.database(url) as connection,
        ctx.completing_sync(connection=connection),
        connection.cursor() as cursor,
    ):
        cursor.execute("INSERT INTO payments VALUES (%s)", [str(ctx.job_id)])


def pay_psycopg(ctx: Context, url: str) -> None:
    with psycopg.connect(url) as connection, ctx.completing_sync(connection=connection):
        connection.execute("INSERT INTO payments VALUES (%s)", [str(ctx.job_id)])


def pay_sqlite3(ctx: Context, url: str) -> None:
    with (
        closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection,
        ctx.completing_sync(connection=connection),
    ):
        connection.execute("INSERT INTO payments VALUES (?)", [str(ctx.job_id)])


ALIKE = [pay_own, pay_own_sync, pay_async_session, pay_async_connection, pay_session]
ALIKE += [pay_connection, pay_django]
ONLY_POSTGRES = [pay_asyncpg, pay_psycopg_async, pay_psycopg]
ASYNC = [pay for pay in [*ALIKE, *ONLY_POSTGRES] if asyncio.iscoroutinefunction(pay)]
WAYS = [
    *[("pg15", pay) for pay in [*ALIKE, *ONLY_POSTGRES]],
    *[("sqlite", pay) for pay in [*ALIKE, pay_sqlite3]],
]


async def run(pay: Pay, ctx: Context, url: str) -> None:
    if asyncio.iscoroutinefunction(pay):
        await pay(ctx, url)
    else:
        await asyncio.to_thread(pay, ctx, url)
