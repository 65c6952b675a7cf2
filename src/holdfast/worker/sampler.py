"""The sampler: writes this process's part of the samples, for charts. Losing some costs a gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from logging import WARNING

from holdfast.domain.samples import FINEST
from holdfast.observability import logs
from holdfast.runtime.seam import Seam

LAST_SECONDS = 0.5  # for the last sample of a process that stops

Take = Callable[[], Awaitable[object]]


@asynccontextmanager
async def sampling(take: Take, seam: Seam) -> AsyncIterator[None]:
    """Take samples during the block, and a last one at its end."""
    task = asyncio.create_task(_Sampler(take, seam).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


class _Sampler:
    """Calls `take` a little more often than there are buckets, so that none is missed."""

    def __init__(self, take: Take, seam: Seam) -> None:
        self._take = take
        self._seam = seam
        self._known_errors: set[str] = set()

    async def run(self) -> None:
        try:
            while True:
                await self._sample()
                await asyncio.sleep(FINEST.seconds * self._seam.random.uniform(0.7, 1))
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self._sample()

    async def _sample(self) -> None:
        """Log each kind of failure once, until a sample is taken: there is one every few seconds,
        and nothing depends on it."""
        try:
            await self._take()
        except Exception as error:
            kind = type(error).__name__
            if kind not in self._known_errors:
                self._known_errors.add(kind)
                logs.event(WARNING, "sample_failed", str(error))
        else:
            self._known_errors.clear()
