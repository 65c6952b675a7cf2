"""Jobs that make it hard for their worker to stop."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from holdfast import Context, Holdfast
from tests.promises.handlers import block_for_ever, gated, hang_for_ever, note, stubborn
from tests.support.processes import LOOK_SECONDS_MAX

CLINGS: list[bool] = []
IS_CHILD = "holdfast.worker.processes.child" in sys.modules


def complete_in_thread(ctx: Context) -> None:
    with ctx.completing_sync() as connection:
        connection.execute("INSERT INTO public.commits VALUES ($1)", str(ctx.job_id))


def quick_in_child(ctx: Context) -> None:
    note(ctx, "finish")


async def slow_to_close() -> AsyncIterator[int]:
    try:
        yield 1
    finally:
        await asyncio.Event().wait()


GENERATORS: list[AsyncIterator[int]] = []


async def leave_a_generator_behind(ctx: Context) -> None:
    """Stop in the middle of one that does not let itself be closed."""
    generator = slow_to_close()
    GENERATORS.append(generator)
    await anext(generator)
    note(ctx, "start")
    await asyncio.Event().wait()


def clinging() -> Iterator[None]:
    """A resource that can't be closed: in a child process, or where it was made to be so."""
    yield
    if IS_CHILD or CLINGS:
        threading.Event().wait()


def leave_an_orphan(ctx: Context) -> None:
    """Start a process whose parent is gone at once, and see that it is buried."""
    shell = subprocess.Popen(
        ["sh", "-c", "cat <&0 >/dev/null & echo $!"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert shell.stdin is not None
    assert shell.stdout is not None
    orphan = int(shell.stdout.readline())
    assert shell.wait() == 0
    shell.stdin.close()  # which ends the orphan
    shell.stdout.close()
    while Path(f"/proc/{orphan}").exists():
        ctx.wait_canceled(LOOK_SECONDS_MAX)
    note(ctx, "buried")
    threading.Event().wait()


async def cling(ctx: Context) -> None:
    CLINGS.append(True)
    note(ctx, "start")


class Stopping:
    def __init__(self, hf: Holdfast) -> None:
        hf.resource(clinging)
        self.gated = hf.job(name="wait")(gated)
        self.block = hf.job(name="block_without_timeout")(block_for_ever)
        self.leave_a_generator_behind = hf.job(leave_a_generator_behind)
        self.leave_an_orphan = hf.job(leave_an_orphan)
        self.cling = hf.job(cling)
        self.stubborn = hf.job(name="deaf")(stubborn)
        self.complete_in_thread = hf.job(complete_in_thread)
        self.quick_in_child = hf.job(executor="process")(quick_in_child)
        self.hang_in_child = hf.job(name="hang_in_child", executor="process")(hang_for_ever)


hf = Holdfast()
jobs = Stopping(hf)
