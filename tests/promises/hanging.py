"""Jobs that hang past their timeout, and jobs that kill the child process that they run in."""

from __future__ import annotations

import asyncio
import faulthandler
import threading

from holdfast import Context, Holdfast
from tests.promises.handlers import POISONS, SOON, note

TIMEOUT_SECONDS = 1.0
SECOND = "second"

left_behind: list[threading.Event] = []


async def hang_in_loop(ctx: Context) -> str:
    """Don't listen to being canceled, at the first attempt."""
    note(ctx, "start")
    while ctx.attempt == 1:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            note(ctx, "canceled")
    return SECOND


def hang_in_thread(ctx: Context) -> str:
    note(ctx, "start")
    if ctx.attempt == 1:
        threading.Event().wait()
    return SECOND


def poison_child(ctx: Context, how: str) -> None:
    note(ctx, "start")
    faulthandler.disable()
    POISONS[how]()


def work_in_child(ctx: Context) -> str:
    note(ctx, "start")
    return "done"


def leave_poison(ctx: Context) -> None:
    """Leave a thread behind that kills the process when the next job runs there."""
    left_behind.append(threading.Event())

    def act() -> None:
        left_behind[0].wait()
        POISONS["exit"]()

    threading.Thread(target=act, daemon=True).start()


def come_next(ctx: Context) -> str:
    if left_behind:
        left_behind[0].set()
        threading.Event().wait()
    return "done"


class Hanging:
    def __init__(self, hf: Holdfast) -> None:
        self.in_loop = hf.job(retry=SOON, timeout_seconds=TIMEOUT_SECONDS)(hang_in_loop)
        self.in_thread = hf.job(retry=SOON, timeout_seconds=TIMEOUT_SECONDS)(hang_in_thread)
        self.in_child = hf.job(
            name="hang_in_child", executor="process", retry=SOON, timeout_seconds=TIMEOUT_SECONDS
        )(hang_in_thread)
        self.poison = hf.job(executor="process", retry=SOON)(poison_child)
        self.work = hf.job(executor="process", retry=SOON)(work_in_child)
        self.leave_poison = hf.job(executor="process", retry=SOON)(leave_poison)
        self.come_next = hf.job(executor="process", retry=SOON)(come_next)


hf = Holdfast()
jobs = Hanging(hf)
