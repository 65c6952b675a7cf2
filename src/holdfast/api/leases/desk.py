"""The desk: where clients wait for jobs. Each server process has one.

A request joins its line before the last look that finds nothing, so no job is missed. The desk asks
the database at every wake-up, and every `poll_seconds` while anyone waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from holdfast.api.leases.line import Granted, Line, Shared, Waiter, Wish
from holdfast.api.leases.release import Releaser
from holdfast.app import Holdfast
from holdfast.domain.scope import all_tenants
from holdfast.wakeups.protocol import Wakeup
from holdfast.worker.listen import listen


class Desk:
    def __init__(self, hf: Holdfast, stopping: asyncio.Event) -> None:
        self._hf = hf
        self._stopping = stopping
        self.releaser = Releaser(hf._store, hf.settings, hf._seam)
        name = f"{hf._seam.identity()}/api"
        self._shared = Shared(
            name,
            hf._store,
            hf.settings,
            hf._seam,
            self.releaser,
            hf._desk.cipher,
            hf._metrics.throughput,
        )
        self._lines: dict[Wish, Line] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._by_owner: dict[str, Waiter] = {}
        self._listening: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        ending = asyncio.create_task(self._end_all())
        try:
            yield
        finally:
            self._stopping.set()
            await ending
            await asyncio.gather(*self._running, return_exceptions=True)
            if self._listening is not None:
                self._listening.cancel()
                await asyncio.gather(self._listening, return_exceptions=True)
            await self.releaser.close()

    async def wait(
        self, wish: Wish, waiter: Waiter, wait_seconds: float, gone: asyncio.Future[None]
    ) -> Sequence[Granted]:
        """Wait until there are jobs. Return nothing if there are none in time, if the client is
        `gone`, if it asks again with the same request ID, or if the server stops."""
        self._supersede(waiter)
        line = self._line(wish)
        waiter.is_late = not wait_seconds or self._stopping.is_set()
        line.join(waiter)
        timer = asyncio.get_running_loop().call_later(wait_seconds, line.end, waiter)
        gone.add_done_callback(lambda _: waiter.give())
        try:
            return await waiter.answer
        finally:
            timer.cancel()
            waiter.give()  # if this task was canceled
            if self._by_owner.get(waiter.owner) is waiter:
                del self._by_owner[waiter.owner]

    def _supersede(self, waiter: Waiter) -> None:
        before = self._by_owner.get(waiter.owner)
        if before is not None:
            before.give()
        self._by_owner[waiter.owner] = waiter

    def _line(self, wish: Wish) -> Line:
        if self._listening is None:
            with all_tenants():
                self._listening = asyncio.create_task(self._listen())
        line = self._lines.get(wish)
        if line is None:
            definitions = self._hf._definitions
            guarded = any(definitions[name].breaker is not None for name in wish.names)
            line = self._lines[wish] = Line(wish, self._shared, with_breakers=guarded)
            with all_tenants():  # caps and breakers count the jobs of all
                task = asyncio.create_task(self._run(line))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return line

    async def _run(self, line: Line) -> None:
        try:
            await line.run()
        finally:
            # In the same step as its last check, so nobody joins a line that has ended.
            del self._lines[line.wish]

    async def _end_all(self) -> None:
        await self._stopping.wait()
        for line in self._lines.values():
            line.end_all()

    async def _listen(self) -> None:
        hf = self._hf
        await listen(await hf._loops.store_at_last(), hf.messengers, self._heard, hf._seam)

    def _heard(self, wakeup: Wakeup) -> None:
        for line in self._lines.values():
            if line.wish.fits(wakeup):
                line.wake()
