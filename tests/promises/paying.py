"""A worker whose handlers write through their completing transaction."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import suppress

from holdfast import Context, Holdfast, Retry
from tests.promises.handlers import is_open, note
from tests.support.processes import LOOK_SECONDS

hf = Holdfast()
SOON = Retry.schedule([0.01] * 9)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@hf.job(retry=SOON)
async def pay(ctx: Context, dies: str = "") -> None:
    """Pay, and say `dies` to be killed at a moment of the first attempt."""
    note(ctx, "start")
    first = ctx.attempt == 1
    async with ctx.completing() as connection:
        await connection.execute(
            "INSERT INTO payments VALUES ($1, $2)", str(ctx.job_id), ctx.attempt
        )
        ctx.set_result({"attempt": ctx.attempt})
        if first and dies == "before":
            die()
        if first and dies == "error":
            raise RuntimeError("not enough money")
    if first and dies == "after":
        die()
    note(ctx, "finish")


@hf.job(retry=SOON)
async def pay_late(ctx: Context, gate: str) -> None:
    """Block until the gate opens, and pay then, whatever anybody says."""
    note(ctx, "start")
    while not is_open(gate, ctx):
        threading.Event().wait(LOOK_SECONDS)
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
