"""The stores of one app: one per event loop that uses it, and a loop for code without one."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import cache, partial
from logging import WARNING
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from holdfast.domain.errors import StoreUnavailable
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.blocking import wait_for
from holdfast.runtime.seam import Seam, SideLoop
from holdfast.stores.protocol import Store

R = TypeVar("R")

OPEN_BACKOFF_SECONDS = 0.1, 2.0
Opening = asyncio.Task[Store]

_UNCLOSED = (
    "Python collected a Holdfast object that was never closed; its threads and connections are now"
    " closed. Create one object per process, or close each: await hf.close(), hf.close_sync()"
)


class _Opened:
    """What one process opened."""

    def __init__(self) -> None:
        self.stores: WeakKeyDictionary[asyncio.AbstractEventLoop, Opening] = WeakKeyDictionary()
        self.lock = threading.Lock()  # for the rest
        self.sync_loop: SideLoop | None = None
        self.awaited: set[Future[Any]] = set()  # what threads wait for

    def take_sync_loop(self) -> SideLoop | None:
        """Take the loop, to stop it: it gets no more work, and threads stop waiting for it."""
        with self.lock:
            loop, self.sync_loop = self.sync_loop, None
            awaited, self.awaited = self.awaited, set()
        for work in awaited:
            work.cancel()
        return loop


def _abandon(opened: _Opened) -> bool:
    """Close what is open, on whatever thread this happens, without waiting; return whether anything
    was."""
    openings = list(opened.stores.items())
    for loop, opening in openings:
        if opening.done() and not _failed(opening):
            with suppress(RuntimeError):  # connections of a closed loop are only dropped
                abandon = opening.result().abandon
                if loop.is_running():
                    loop.call_soon_threadsafe(abandon)
                else:
                    abandon()
    sync_loop = opened.take_sync_loop()
    if sync_loop is not None:
        sync_loop.close(wait=False)
    return bool(openings) or sync_loop is not None


def _collected(opened: _Opened) -> None:
    if _abandon(opened):
        _log_unclosed()
        # Last, because it raises if warnings are errors.
        warnings.warn(_UNCLOSED, ResourceWarning, stacklevel=1)


@cache  # once: a server that makes an object for each request collects many
def _log_unclosed() -> None:
    logs.event(WARNING, "object_not_closed", _UNCLOSED)


class Loops:
    """With `close_at_end`, a store is closed when its event loop's runner cancels what is left."""

    def __init__(
        self,
        seam: Seam,
        open_store: Callable[[], Coroutine[Any, Any, Store]],
        *,
        close_at_end: bool = False,
    ) -> None:
        self._seam = seam
        self._open_store = open_store
        self._close_at_end = close_at_end
        self._guards: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]]
        self._guards = WeakKeyDictionary()
        self._opened = self._new_opened()
        _all.add(self)

    def _new_opened(self) -> _Opened:
        opened = _Opened()
        self._keep_open = self._seam.when_collected(self, partial(_collected, opened))
        return opened

    def reset_after_fork(self) -> None:
        """A forked process has its parent's stores and locks, but not the threads behind them."""
        self._keep_open()
        _inherited.append(self._opened)
        self._opened = self._new_opened()

    @property
    def have_stores(self) -> bool:
        return bool(self._opened.stores)

    async def store(self) -> Store:
        """The store of this event loop, opened on first use."""
        loop = asyncio.get_running_loop()
        opening = self._opened.stores.get(loop)
        if opening is None or _failed(opening):
            opening = self._opened.stores[loop] = loop.create_task(self._open_store())
            if self._close_at_end and loop not in self._guards:
                self._guards[loop] = loop.create_task(self._guard())
            await self._close_forgotten()
        if opening.done():
            return opening.result()
        await asyncio.wait({opening})
        if _failed(opening) and self._opened.stores.get(loop) is opening:
            del self._opened.stores[loop]
        if opening.cancelled():
            raise StoreUnavailable("the Holdfast object was closed while it was opening")
        return opening.result()

    async def store_at_last(self) -> Store:
        """The store of this event loop, however long its database is away."""
        trouble = Backoff(self._seam, *OPEN_BACKOFF_SECONDS)
        while True:
            try:
                return await self.store()
            except StoreUnavailable as error:
                logs.event(WARNING, "open_failed", str(error))
            await trouble.wait()

    async def close(self) -> None:
        """Close what this event loop opened."""
        guard = self._guards.pop(asyncio.get_running_loop(), None)
        if guard is not None:
            guard.cancel()
            await asyncio.wait({guard})
        await self._close()

    async def _guard(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await self._close()

    async def _close(self) -> None:
        opening = self._opened.stores.pop(asyncio.get_running_loop(), None)
        if opening is None:
            return
        if not opening.done():
            opening.cancel()
            await asyncio.wait({opening})
        if not _failed(opening):
            await opening.result().close()

    def run_sync(self, work: Coroutine[Any, Any, R]) -> R:
        """Run the coroutine on the loop for code without one, and wait for it."""
        if sys.is_finalizing():
            work.close()
            raise RuntimeError("Python is exiting, and the thread that does this work has ended")
        opened = self._opened
        running: Future[R] | None = None
        try:
            with opened.lock:
                if opened.sync_loop is None:
                    opened.sync_loop = self._seam.side_loop("holdfast-sync")
                running = opened.sync_loop.submit(work)
                opened.awaited.add(running)
            return wait_for(running)
        except CancelledError:
            if running in opened.awaited:
                raise
            raise StoreUnavailable(
                "the Holdfast object was closed while this call was waiting"
            ) from None
        except KeyboardInterrupt:
            if opened.sync_loop is not None:  # it may have come before there was a future
                opened.sync_loop.submit(_cancel(work))
            raise
        finally:
            if running is not None:
                opened.awaited.discard(running)

    def close_sync(self) -> None:
        """Close what `run_sync` opened."""
        loop = self._opened.take_sync_loop()
        if loop is not None:
            loop.submit(self.close()).result()
            loop.close()

    def abandon(self) -> None:
        """Close what other event loops opened, without waiting. This object is no longer used."""
        self._keep_open()
        _abandon(self._opened)

    async def _close_forgotten(self) -> None:
        """Close the stores of event loops that ended without a `close`."""
        for loop in [loop for loop in self._opened.stores if loop.is_closed()]:
            opening = self._opened.stores.pop(loop, None)
            if opening is not None and opening.done() and not _failed(opening):
                # Without their loop, connections can only be dropped.
                with suppress(RuntimeError):
                    await opening.result().close()


async def _cancel(work: Coroutine[Any, Any, Any]) -> None:
    for task in asyncio.all_tasks():
        if task.get_coro() is work:
            task.cancel()


def _failed(opening: Opening) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)


_all: WeakSet[Loops] = WeakSet()
_inherited: list[_Opened] = []  # never collected in a forked process: the parent uses it


def _reset_after_fork() -> None:
    for loops in list(_all):
        loops.reset_after_fork()


os.register_at_fork(after_in_child=_reset_after_fork)
