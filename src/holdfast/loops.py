"""The stores of one app: one for each event loop that uses it, and a loop for code without one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from holdfast.seam import Seam, SideLoop
from holdfast.stores.protocol import Store

R = TypeVar("R")
Opening = asyncio.Task[Store]


class Loops:
    def __init__(self, seam: Seam, open_store: Callable[[], Coroutine[Any, Any, Store]]) -> None:
        self._seam = seam
        self._open_store = open_store
        self._stores: WeakKeyDictionary[asyncio.AbstractEventLoop, Opening] = WeakKeyDictionary()
        self._stores_process_id = os.getpid()
        self._sync_lock = threading.Lock()
        self._sync_loop: SideLoop | None = None
        self._sync_process_id = 0

    @property
    def have_stores(self) -> bool:
        return bool(self._stores)

    async def store(self) -> Store:
        """The store of this event loop, opened by whoever needs it first."""
        loop = asyncio.get_running_loop()
        if self._stores_process_id != os.getpid():
            # A forked child has its parent's stores, but not their threads and connections.
            self._stores, self._stores_process_id = WeakKeyDictionary(), os.getpid()
        opening = self._stores.get(loop)
        if opening is None or _failed(opening):
            opening = self._stores[loop] = loop.create_task(self._open_store())
            await self._close_forgotten()
        if opening.done():
            return opening.result()
        try:
            return await asyncio.shield(opening)
        except BaseException:
            if _failed(opening) and self._stores.get(loop) is opening:
                del self._stores[loop]
            raise

    async def close(self) -> None:
        """Close what this event loop opened."""
        opening = self._stores.pop(asyncio.get_running_loop(), None)
        if opening is not None:
            await (await opening).close()

    def run_sync(self, work: Coroutine[Any, Any, R]) -> R:
        with self._sync_lock:
            # A forked child has the object, but not the thread.
            if self._sync_loop is None or self._sync_process_id != os.getpid():
                self._sync_loop = self._seam.side_loop("holdfast-sync")
                self._sync_process_id = os.getpid()
            loop = self._sync_loop
        return loop.submit(work).result()

    def close_sync(self) -> None:
        """Close what `run_sync` opened."""
        with self._sync_lock:
            loop, self._sync_loop = self._sync_loop, None
        if loop is not None and self._sync_process_id == os.getpid():
            loop.submit(self.close()).result()
            loop.close()

    async def _close_forgotten(self) -> None:
        """Close the stores of event loops that ended without a `close`."""
        for loop in [loop for loop in self._stores if loop.is_closed()]:
            opening = self._stores.pop(loop, None)
            if opening is not None and opening.done() and not _failed(opening):
                # Connections that belong to that loop can't be closed without it, only dropped.
                with suppress(RuntimeError):
                    await opening.result().close()


def _failed(opening: Opening) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)
