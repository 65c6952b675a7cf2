"""Requests to stop a worker, which may come while it is still starting."""

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


def _log_early(name: str, hurry: bool) -> None:
    logs.event(INFO, "shutdown", f"{name}: stopping before the worker has started")


class StopRequest:
    """After the first request, a worker claims no more and finishes its jobs. After the second, it
    hurries.

    `signaled` is called with the name of each signal, and whether the worker should hurry.
    """

    def __init__(self, seam: Seam, settings: Settings, *, ends_process: bool) -> None:
        self.deadline = StopDeadline(seam, settings.grace_seconds, ends_process=ends_process)
        self.requested = asyncio.Event()
        self.hurried = asyncio.Event()
        self.signaled: Callable[[str, bool], None] = _log_early
        self._seam = seam
        self._limit: asyncio.Timeout | None = None

    def request(self) -> None:
        if self.requested.is_set():
            self.hurried.set()
            return
        self.requested.set()
        if self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time())

    def signals(self) -> AbstractAsyncContextManager[None]:
        """Stop on SIGTERM and SIGINT, unless other code handles them."""
        if not self._seam.signals_are_free():
            return nullcontext()
        return handling_signals(self._seam, self._on_signal, self.deadline.start)

    def _on_signal(self, number: signal.Signals) -> None:
        self.signaled(number.name, self.requested.is_set())
        self.request()

    @asynccontextmanager
    async def cutting_off(self) -> AsyncIterator[None]:
        """Leave the block early on a request. The block stays in its task, because some resources
        must be closed in the task that opened them."""
        try:
            async with asyncio.timeout(0.0 if self.requested.is_set() else None) as limit:
                self._limit = limit
                yield
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._limit = None


async def unless_set(event: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """Do the work; cut it off and return None if the event is set first."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        waiting.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)
