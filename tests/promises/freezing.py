"""Jobs that stop every thread of their process, and jobs that are beside them then."""

from __future__ import annotations

import asyncio
import re

from holdfast import Context, Holdfast
from tests.promises.handlers import SOON, gated, note


def catastrophe() -> None:
    """Never release the interpreter lock."""
    re.match(r"(a+)+$", "a" * 40 + "b")


async def freeze(ctx: Context) -> None:
    note(ctx, "start")
    catastrophe()


class Freezing:
    def __init__(self, hf: Holdfast) -> None:
        self.wait = hf.job(name="wait", retry=SOON)(gated)
        self.freeze = hf.job(retry=SOON)(freeze)

        @hf.job
        async def freeze_with_lock(ctx: Context) -> None:
            async with hf.transaction() as connection:
                await connection.execute("UPDATE jobs SET tags = tags WHERE false")
                note(ctx, "start")
                catastrophe()

        @hf.job
        async def keep_lock(ctx: Context) -> None:
            async with hf.transaction() as connection:
                await connection.execute("UPDATE jobs SET tags = tags WHERE false")
                note(ctx, "start")
                await asyncio.Event().wait()

        self.freeze_with_lock = freeze_with_lock
        self.keep_lock = keep_lock


hf = Holdfast()
jobs = Freezing(hf)
