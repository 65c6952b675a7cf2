"""A pool of connections that costs nothing where nothing is to be done.

The driver's own pool gives a connection back in a task of its own, which takes a fifth of the time
of a small statement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

CLOSE_SECONDS_MAX = 5.0


class Pool:
    """At most `size` connections, made when they are needed; the last one used is used next."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], size: int) -> None:
        self._connect = connect
        self._size = size
        self._free = asyncio.Semaphore(size)
        self._idle: list[Any] = []
        self._closed = False
        self.in_use = 0

    async def acquire(self) -> Any:
        await self._free.acquire()
        self.in_use += 1
        try:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    return connection
            return await self._connect()
        except BaseException:
            self._let_go()
            raise

    def release(self, connection: Any) -> None:
        self._let_go()
        if connection.is_closed():
            return
        # What was cut off inside a transaction is rolled back by ending the connection. A statement
        # that was cut off outside of one needs no care: the driver lets the next one wait for it.
        if self._closed or connection.is_in_transaction():
            connection.terminate()
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
        while self._idle:
            connection = self._idle.pop()
            try:
                await connection.close(timeout=CLOSE_SECONDS_MAX)
            except Exception:
                connection.terminate()
