"""A worker whose handlers write through their completing transaction."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from holdfast import Context, Holdfast, Retry
from tests.promises.handlers import is_open, note
from tests.support.processes import poll_blocking

hf = Holdfast()
URL = os.environ.get("HOLDFAST_DATABASE_URL", "sqlite:///unused.db")
SOON = Retry.schedule([0.01] * 9)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def watched(ctx: Context, dies: str) -> Iterator[None]:
    """Around the block of a handler: its first attempt is killed after the commit."""
    note(ctx, "start")
    ctx.set_result({"attempt": ctx.attempt})
    yield
    if ctx.attempt == 1 and dies == "after":
        die()
    note(ctx, "finish")


def end_block(ctx: Context, dies: str) -> None:
    """At the end of the block: the first attempt is killed, or fails."""
    if ctx.attempt == 1 and dies == "before":
        die()
    if ctx.attempt == 1 and dies == "error":
        raise RuntimeError("not enough money")


@hf.job(retry=SOON)
async def pay(ctx: Context, dies: str = "") -> None:
    with watched(ctx, dies):
        async with ctx.completing() as connection:
            await connection.execute(
                "INSERT INTO payments VALUES ($1, $2)", str(ctx.job_id), ctx.attempt
            )
            end_block(ctx, dies)


@hf.job(retry=SOON)
def pay_sync(ctx: Context, dies: str = "") -> None:
    with watched(ctx, dies), ctx.completing_sync() as connection:
        connection.execute("INSERT INTO payments VALUES ($1, $2)", str(ctx.job_id), ctx.attempt)
        end_block(ctx, dies)


# The libraries are imported by those that use them: a worker that dies in another handler starts
# in half the time.


@hf.job(retry=SOON)
def pay_sqlalchemy(ctx: Context, dies: str = "") -> None:
    from sqlalchemy import NullPool, create_engine, text
    from sqlalchemy.orm import Session

    engine = create_engine(URL.replace("sql://", "sql+psycopg://"), poolclass=NullPool)
    insert = text("INSERT INTO payments VALUES (:job, :attempt)")
    with (
        watched(ctx, dies),
        Session(engine) as session,
        ctx.completing_sync(connection=session),
    ):
        session.execute(insert, {"job": str(ctx.job_id), "attempt": ctx.attempt})
        end_block(ctx, dies)


@hf.job(retry=SOON)
def pay_django(ctx: Context, dies: str = "") -> None:
    from tests.support import django_settings

    with (
        watched(ctx, dies),
        django_settings.database(URL) as connection,
        ctx.completing_sync(connection=connection),
        connection.cursor() as cursor,
    ):
        cursor.execute("INSERT INTO payments VALUES (%s, %s)", [str(ctx.job_id), ctx.attempt])
        end_block(ctx, dies)


@hf.job(retry=SOON)
async def owe(ctx: Context, dies: str = "") -> None:
    """Fail once, with a row; the first attempt may be killed before or after the commit."""
    error = RuntimeError("not enough money")
    with watched(ctx, dies):
        if ctx.attempt > (2 if dies == "before" else 1):
            return
        async with ctx.failing(error) as connection:
            await connection.execute(
                "INSERT INTO payments VALUES ($1, $2)", str(ctx.job_id), ctx.attempt
            )
            end_block(ctx, dies)


@hf.job(retry=SOON)
def owe_sync(ctx: Context, dies: str = "") -> None:
    error = RuntimeError("not enough money")
    with watched(ctx, dies):
        if ctx.attempt > (2 if dies == "before" else 1):
            return
        with ctx.failing_sync(error) as connection:
            connection.execute("INSERT INTO payments VALUES ($1, $2)", str(ctx.job_id), ctx.attempt)
            end_block(ctx, dies)
    raise error


@hf.job(retry=SOON)
async def pay_late(ctx: Context, gate: str) -> None:
    """Block until the gate opens, then pay, even if asked to stop."""
    note(ctx, "start")
    poll_blocking(partial(is_open, gate, ctx))
    paying = asyncio.create_task(insert(ctx))
    while not paying.done():
        with suppress(BaseException):
            await asyncio.shield(paying)
    note(ctx, "paid" if paying.exception() is None else type(paying.exception()).__name__)


async def insert(ctx: Context) -> None:
    async with ctx.completing() as connection:
        await connection.execute(
            "INSERT INTO payments VALUES ($1, $2)", str(ctx.job_id), ctx.attempt
        )
