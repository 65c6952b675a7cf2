"""Run a `Holdfast` object on another database for a while."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.app import Holdfast
from holdfast.runtime.loops import Loops
from holdfast.runtime.seam import Seam
from holdfast.worker.middleware import Middleware


@asynccontextmanager
async def borrowed(
    hf: Holdfast, url: str, seam: Seam, middleware: Middleware | None = None
) -> AsyncIterator[None]:
    """Let it use this database, machine and middleware inside the block."""
    own = hf._url, hf._seam, hf._loops, hf._middleware
    hf._url, hf._seam = url, seam
    hf._loops = Loops(seam, hf._open, close_at_end=True)
    hf._middleware = middleware or hf._middleware
    try:
        yield
    finally:
        await asyncio.to_thread(hf.close_sync)
        await hf.close()
        hf._loops.abandon()
        hf._url, hf._seam, hf._loops, hf._middleware = own
