"""Jobs that make it hard for their worker to stop."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

from holdfast import Context, Holdfast
from tests.promises.handlers import hang_for_ever, note, stubborn

IS_CHILD = "holdfast.worker.children.child" in sys.modules


def complete_in_thread(ctx: Context) -> None:
    with ctx.completing_sync() as connection:
        connection.execute("INSERT INTO public.commits VALUES ($1)", str(ctx.job_id))


def quick_in_child(ctx: Context) -> None:
    note(ctx, "finish")


def clinging() -> Iterator[None]:
    """In a child process, a resource that can't be closed."""
    yield
    if IS_CHILD:
        threading.Event().wait()


class Stopping:
    def __init__(self, hf: Holdfast) -> None:
        hf.resource(clinging)
        self.stubborn = hf.job(name="deaf")(stubborn)
        self.complete_in_thread = hf.job(complete_in_thread)
        self.quick_in_child = hf.job(executor="process")(quick_in_child)
        self.hang_in_child = hf.job(name="hang_in_child", executor="process")(hang_for_ever)


hf = Holdfast()
jobs = Stopping(hf)
