"""A pool of connections that costs nothing where nothing is to be done.

The driver's own pool gives a connection back in a task of its own, which takes a fifth of the time
of a small statement. And its time-out for statements sets a timer for each, which takes a
twentieth: here one timer looks after all connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

CLOSE_SECONDS_MAX = 5.0
GOODBYE_SECONDS_MAX = 1.0  # of a connection that nobody uses: a server that listens takes a moment


class Pool:
    """At most `size` connections, made when they are needed. The last one used is used next: its
    server has the usual statements prepared. What is done aside, now and then, takes the one that
    rested longest and puts it back there, so that nobody has to prepare them on another meanwhile.

    One that is in use for longer than `use_seconds_max` is ended, and with it what it is used for,
    unless that is said to be endless.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Any]], size: int, use_seconds_max: float
    ) -> None:
        self._connect = connect
        self._size = size
        self._free = asyncio.Semaphore(size)
        self._idle: list[Any] = []
        self._cut_off: set[Any] = set()
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
                connection = self._idle.pop(0 if aside else -1)
                if connection in self._cut_off:
                    self._cut_off.discard(connection)
                    await _close(connection)
                elif not connection.is_closed():
                    return self._watched(connection, endless)
            return self._watched(await self._connect(), endless)
        except BaseException:
            self._let_go()
            raise

    def _watched(self, connection: Any, endless: bool) -> Any:
        if endless:
            return connection
        loop = asyncio.get_running_loop()
        self._used_since[connection] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._use_seconds_max, self._end_overdue)
        return connection

    def prolong(self, connection: Any) -> None:
        """Its use has made progress: restart its time limit."""
        if connection in self._used_since:
            self._used_since[connection] = asyncio.get_running_loop().time()

    def _end_overdue(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        oldest = loop.time() - self._use_seconds_max
        for connection, since in self._used_since.items():
            if since <= oldest:
                connection.terminate()
        younger = [since for since in self._used_since.values() if since > oldest]
        if younger:
            self._timer = loop.call_later(min(younger) - oldest, self._end_overdue)

    def release(self, connection: Any, *, cut_off: bool = False, aside: bool = False) -> None:
        self._let_go()
        self._used_since.pop(connection, None)
        if connection.is_closed():
            return
        # What was cut off inside a transaction is rolled back by ending the connection.
        if self._closed or connection.is_in_transaction():
            connection.terminate()
        elif cut_off:
            # The driver no longer knows where it stands: a BEGIN may have been carried out, and
            # what is done next would never be committed. So it is not used again, only closed:
            # later, because the driver has yet to tell the server to stop.
            self._cut_off.add(connection)
            self._idle.insert(0, connection)
        elif aside:
            self._idle.insert(0, connection)
        else:
            self._idle.append(connection)

    def _let_go(self) -> None:
        self.in_use -= 1
        self._free.release()

    async def close(self) -> None:
        """Wait a while for what is under way, then end all connections."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                for _ in range(self._size):
                    await self._free.acquire()
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        idle, self._idle = self._idle, []
        await asyncio.gather(*[_close(connection, GOODBYE_SECONDS_MAX) for connection in idle])

    def abandon(self) -> None:
        """End all connections here and now."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in (*self._idle, *self._used_since):
            connection.terminate()
        self._idle.clear()


async def _close(connection: Any, seconds_max: float = CLOSE_SECONDS_MAX) -> None:
    try:
        await connection.close(timeout=seconds_max)
    except BaseException as error:
        connection.terminate()
        if not isinstance(error, Exception):
            raise
