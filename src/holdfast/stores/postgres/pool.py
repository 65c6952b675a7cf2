"""A pool of connections that adds almost no cost.

The driver's pool releases a connection in a separate task, which takes a fifth of the time of a
small statement. Its statement timeout sets a timer for each, which takes a twentieth. Here, one
timer watches all connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

CLOSE_SECONDS_MAX = 5.0
GOODBYE_SECONDS_MAX = 1.0  # to close an idle connection: a live server takes a moment
UNUSED_SECONDS_MAX = 60.0


class Pool:
    """At most `size` connections, made on demand. The most recently used one is used next: its
    server process has the usual statements prepared. Occasional work runs `aside`, on the least
    recently used one, so that other work doesn't have to prepare its statements again. Connections
    that neither needs for a while are closed: each is a process of the server.

    Work that takes longer than `use_seconds_max` is ended with its connection, unless it is
    `endless`.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Any]], size: int, use_seconds_max: float
    ) -> None:
        self._connect = connect
        self._size = size
        self._free = asyncio.Semaphore(size)
        self._idle: list[tuple[Any, float]] = []  # and since when
        self._cut_off: set[Any] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False
        self._use_seconds_max = use_seconds_max
        self._used_since: dict[Any, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.in_use = 0

    async def acquire(self, *, endless: bool = False, aside: bool = False) -> Any:
        await self._free.acquire()
        self.in_use += 1
        try:
            while self._idle:
                connection, _ = self._idle.pop(0 if aside else -1)
                if connection in self._cut_off:
                    self._cut_off.discard(connection)
                    await _close(connection)
                elif not connection.is_closed():
                    return self._watched(connection, endless)
            return self._watched(await self._connect(), endless)
        except BaseException:
            self._free_one()
            raise

    def _watched(self, connection: Any, endless: bool) -> Any:
        if endless:
            return connection
        loop = asyncio.get_running_loop()
        self._used_since[connection] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._use_seconds_max, self._look)
        return connection

    def prolong(self, connection: Any) -> None:
        """Restart the connection's time limit: its work has made progress."""
        if connection in self._used_since:
            self._used_since[connection] = asyncio.get_running_loop().time()

    def _look(self) -> None:
        """End overdue uses, close unused connections, and look again when the next is due."""
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        uses = [(each, since + self._use_seconds_max) for each, since in self._used_since.items()]
        for connection, end in uses:
            if end <= now:
                connection.terminate()
        idle = [(each, since + UNUSED_SECONDS_MAX) for each, since in self._idle[1:-1]]
        for connection in [each for each, end in idle if end <= now]:
            self._close_unused(connection)
        if later := [end for _, end in (*uses, *idle) if end > now]:
            self._timer = loop.call_at(min(later), self._look)

    def _close_unused(self, connection: Any) -> None:
        self._idle = [each for each in self._idle if each[0] is not connection]
        self._cut_off.discard(connection)
        closing = asyncio.create_task(_close(connection, GOODBYE_SECONDS_MAX))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def release(self, connection: Any, *, cut_off: bool = False, aside: bool = False) -> None:
        self._free_one()
        self._used_since.pop(connection, None)
        if connection.is_closed():
            return
        # Ending the connection rolls back a transaction that was cut off.
        if self._closed or connection.is_in_transaction():
            connection.terminate()
            return
        if cut_off:
            # The driver has lost track: a BEGIN may have run, and later work would never be
            # committed. So close it instead of using it again; but later, because the driver has
            # yet to tell the server to stop.
            self._cut_off.add(connection)
        place = 0 if cut_off or aside else len(self._idle)
        self._idle.insert(place, (connection, asyncio.get_running_loop().time()))

    def _free_one(self) -> None:
        self.in_use -= 1
        self._free.release()

    async def close(self) -> None:
        """Wait a while for work in progress, then close all connections."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                for _ in range(self._size):
                    await self._free.acquire()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        idle, self._idle = self._idle, []
        closing = [_close(connection, GOODBYE_SECONDS_MAX) for connection, _ in idle]
        await asyncio.gather(*closing, *self._closing)

    def abandon(self) -> None:
        """Close all connections without waiting."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in (*(each for each, _ in self._idle), *self._used_since):
            connection.terminate()
        self._idle.clear()


async def _close(connection: Any, seconds_max: float = CLOSE_SECONDS_MAX) -> None:
    try:
        await connection.close(timeout=seconds_max)
    except BaseException as error:
        connection.terminate()
        if not isinstance(error, Exception):
            raise
