"""Telling a worker to stop, from its first step on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from logging import INFO
from typing import Any, TypeVar

from holdfast.observability import logs
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.worker.deadline import StopDeadline
from holdfast.worker.signals import handling_signals

T = TypeVar("T")


def _tell_early(name: str, hurry: bool) -> None:
    logs.event(INFO, "shutdown", f"{name}: stopping before the start is complete")


class StopRequest:
    """Told once, a worker claims no more and finishes what runs; told twice, it hurries.

    `signaled` is called with the name of each signal, and whether it hurries.
    """

    def __init__(self, seam: Seam, settings: Settings, *, ends_process: bool) -> None:
        self.deadline = StopDeadline(seam, settings.grace_seconds, ends_process=ends_process)
        self.told = asyncio.Event()
        self.told_twice = asyncio.Event()
        self.signaled: Callable[[str, bool], None] = _tell_early
        self._seam = seam
        self._limit: asyncio.Timeout | None = None

    def tell(self) -> None:
        if self.told.is_set():
            self.told_twice.set()
            return
        self.told.set()
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    def signals(self) -> AbstractAsyncContextManager[None]:
        """Let SIGTERM and SIGINT tell, unless somebody else handles them."""
        if not self._seam.signals_are_free():
            return nullcontext()
        return handling_signals(self._seam, self._on_signal, self.deadline.tell)

    def _on_signal(self, number: signal.Signals) -> None:
        self.signaled(signal.Signals(number).name, self.told.is_set())
        self.tell()

    @asynccontextmanager
    async def cutting_off(self) -> AsyncIterator[None]:
        """Leave the block early when told to stop. It stays in its task, which what it opens may
        insist on when it is closed."""
        try:
            async with asyncio.timeout(0.0 if self.told.is_set() else None) as limit:
                self._limit = limit
                yield
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._limit = None


async def unless_set(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Do this; None if the event comes first, which cuts it off."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        waiting.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)
