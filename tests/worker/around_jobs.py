"""Jobs for child processes with middleware and hooks, which the children import again."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from holdfast import CallNext, Context, Holdfast, Retry
from tests.support.processes import poll_blocking
from tests.support.running import QUICK

FOLDER = "AROUND_JOBS_FOLDER"
NOT_IN_CHILD = "AROUND_JOBS_NOT_IN_CHILD"
IS_CHILD = "holdfast.worker.processes.child" in sys.modules

hf = Holdfast(**QUICK, timeout_grace_seconds=0.2)
user: ContextVar[str] = ContextVar("user", default="nobody")


def note(what: str) -> None:
    """Tell the test: one file for each note, since the notes come from several processes."""
    where = "child" if IS_CHILD else "worker"
    (Path(os.environ[FOLDER]) / f"{where}: {what}").touch()


async def around(ctx: Context, call_next: CallNext) -> Any:
    token = user.set("ann")
    await asyncio.sleep(0)
    try:
        return {"result": await call_next(), "pid": os.getpid(), "user": user.get()}
    except SystemExit:
        return "it wanted to exit"
    finally:
        user.reset(token)


if not (IS_CHILD and NOT_IN_CHILD in os.environ):
    hf.middleware(around)


@hf.after_run
async def after_run(ctx: Context, result: Any) -> None:
    note(f"{ctx.name} succeeded")


@hf.on_failure
def on_failure(ctx: Context, error: BaseException) -> None:
    note(f"{ctx.name} raised {type(error).__name__} with {user.get()}")


@hf.job(executor="process")
def look() -> dict[str, Any]:
    before = user.get()
    user.set("somebody else")
    own_loop = asyncio.run(asyncio.sleep(0, "ran"))
    logging.getLogger("shop").warning("looked")
    return {"pid": os.getpid(), "user": before, "own_loop": own_loop}


@hf.job(executor="process")
def leave() -> None:
    sys.exit(3)


@hf.job(executor="process", retry=Retry.none)
def fail() -> None:
    raise ValueError("no")


@hf.job(executor="process", retry=Retry.none)
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@hf.job(executor="process", retry=Retry.none, timeout_seconds=0.1)
def listen(ctx: Context) -> None:
    poll_blocking(lambda: ctx.canceled)


@hf.job(executor="process", retry=Retry.none, timeout_seconds=0.1)
def hang() -> None:
    poll_blocking(lambda: False)
