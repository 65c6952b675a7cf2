"""The jobs of a run, and the workers' module: `holdfast worker chaos.app:hf`.

Each handler writes a line before and after its effect. What it returns names its fence, so that
the judge sees whose end the database has kept.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chaos import ledger
from holdfast import Breaker, Context, Holdfast, Permanent, Retry, Snooze

# Enough attempts that an innocent job never runs out of them: each kill costs one.
INNOCENT = Retry.schedule([0.05, 0.2], max_attempts=200)
GUILTY = Retry.schedule([0.05], max_attempts=2)
CAPPED = "capped"
CAP = 2
DOWN = "down"  # while a file with this name exists, the dependency of `depend` is down

hf = Holdfast()


def is_down() -> bool:
    return os.path.exists(os.path.join(os.environ[ledger.FOLDER], DOWN))


@contextmanager
def noted(ctx: Context) -> Iterator[dict[str, int]]:
    """Record a run; the value identifies it in a result or a row."""
    run = {"job": str(ctx.job_id), "fence": ctx.fence}
    ledger.write("start", **run, name=ctx.name, queue=ctx.queue, attempt=ctx.attempt)
    try:
        yield {"fence": ctx.fence}
    except BaseException as error:
        ledger.write("end", **run, how=type(error).__name__)
        raise
    ledger.write("end", **run, how="ok")


@hf.job(retry=INNOCENT)
async def work(ctx: Context, seconds: float) -> dict[str, int]:
    with noted(ctx) as run:
        await ctx.progress(run)
        await asyncio.sleep(seconds)
        return run


@hf.job(retry=INNOCENT)
def work_in_thread(ctx: Context, seconds: float) -> dict[str, int]:
    with noted(ctx) as run:
        if ctx.wait_canceled(seconds):
            raise InterruptedError("told to stop")
        return run


@hf.job(retry=INNOCENT, executor="process")
def work_in_child(ctx: Context, seconds: float) -> dict[str, int]:
    with noted(ctx) as run:
        threading.Event().wait(seconds)
        return run


@hf.job(retry=INNOCENT, queue=CAPPED)
async def work_under_a_cap(ctx: Context, seconds: float) -> dict[str, int]:
    with noted(ctx) as run:
        await asyncio.sleep(seconds)
        return run


@hf.job(retry=INNOCENT)
async def carry(ctx: Context, load: str) -> dict[str, Any]:
    """Return a result four times as large as the arguments."""
    with noted(ctx) as run:
        return {**run, "load": [load, load, load, load]}


@hf.job(retry=INNOCENT)
async def fail(ctx: Context, times: int) -> dict[str, int]:
    with noted(ctx) as run:
        if ctx.attempt <= times:
            raise ConnectionError(f"attempt {ctx.attempt} of {times}")
        return run


@hf.job(retry=INNOCENT)
async def snooze(ctx: Context, until: float) -> dict[str, int]:
    with noted(ctx) as run:
        if time.monotonic() < until:
            raise Snooze(0.3, "not yet")
        return run


@hf.job(
    retry=INNOCENT, breaker=Breaker("dependency", failures=3, window_seconds=5, probe_seconds=0.5)
)
async def depend(ctx: Context) -> dict[str, int]:
    with noted(ctx) as run:
        if is_down():
            raise ConnectionError("the dependency is down")
        return run


@hf.job(retry=INNOCENT)
async def pay(ctx: Context, seconds: float) -> None:
    with noted(ctx) as run:
        ctx.set_result(run)
        await asyncio.sleep(seconds)
        async with ctx.completing() as connection:
            await connection.execute(
                "INSERT INTO payments VALUES ($1, $2)", str(ctx.job_id), ctx.fence
            )
            await asyncio.sleep(seconds / 10)  # on SQLite everybody waits for it


@hf.job(retry=INNOCENT)
def pay_in_thread(ctx: Context) -> None:
    with noted(ctx) as run:
        ctx.set_result(run)
        with ctx.completing_sync() as connection:
            connection.execute("INSERT INTO payments VALUES ($1, $2)", str(ctx.job_id), ctx.fence)


@hf.job(retry=INNOCENT)
async def order(ctx: Context) -> None:
    """Enqueue a job in the transaction that ends this one: exactly one."""
    with noted(ctx) as run:
        ctx.set_result(run)
        async with ctx.completing() as connection:
            await ship.options(connection=connection).enqueue(str(ctx.job_id))


@hf.job(retry=INNOCENT)
async def ship(ctx: Context, ordered: str) -> dict[str, int]:
    with noted(ctx) as run:
        return run


@hf.job(retry=INNOCENT)
async def block(ctx: Context, seconds: float) -> dict[str, int]:
    """Block the event loop, like code that was not written for one."""
    with noted(ctx) as run:
        threading.Event().wait(seconds)
        return run


@hf.job(retry=INNOCENT)
def hold_the_interpreter(ctx: Context, seconds: float) -> dict[str, int]:
    """Keep every other thread from running, like some extensions in C."""
    with noted(ctx) as run:
        ctypes.PyDLL(None).usleep(int(seconds * 1e6))
        return run


@hf.job(retry=GUILTY)
async def kill(ctx: Context) -> None:
    with noted(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@hf.job(retry=GUILTY, executor="process")
def kill_child(ctx: Context) -> None:
    with noted(ctx):
        os._exit(3)


@hf.job(retry=GUILTY, timeout_seconds=0.3)
async def overrun(ctx: Context) -> None:
    with noted(ctx):
        await asyncio.sleep(60)


@hf.job(retry=INNOCENT)
async def refuse(ctx: Context) -> None:
    with noted(ctx):
        raise Permanent("never")
