"""A messenger as a user would write one: the processes of a test read and write one board."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager

from holdfast.messengers import BrokerMessenger, Heard, Hint, Messenger, Outgoing, Seam, Wakeup


class Board:
    """Hints for everybody who reads, and the connections to cut. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers: dict[object, Heard] = {}
        self._lost: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def write(self, wakeup: Wakeup) -> None:
        with self._lock:
            readers = [*self._readers.values()]
        for heard in readers:
            heard(wakeup)

    def cut(self) -> None:
        with self._lock:
            for lost, loop in self._lost.items():
                loop.call_soon_threadsafe(lost.set)

    @asynccontextmanager
    async def connected(self, heard: Heard | None) -> AsyncIterator[Awaitable[None]]:
        lost = asyncio.Event()
        with self._lock:
            self._lost[lost] = asyncio.get_running_loop()
            if heard is not None:
                self._readers[lost] = heard

        async def until_lost() -> None:
            await lost.wait()

        try:
            yield until_lost()
        finally:
            with self._lock:
                del self._lost[lost]
                self._readers.pop(lost, None)


_boards: defaultdict[str, Board] = defaultdict(Board)


class BoardBroker:
    name = "blackboard"

    def __init__(self, address: str) -> None:
        self.address = address
        self._board = _boards[address]

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[Outgoing]:
        async def send(hints: Sequence[Hint]) -> None:
            for hint in hints:
                if not hint.delay_seconds:
                    self._board.write(Wakeup(queue=hint.queue, job_id=hint.job_id))

        async with self._board.connected(None) as lost:
            yield Outgoing(send, lost)

    @asynccontextmanager
    async def receiving(self, heard: Heard) -> AsyncIterator[Awaitable[None]]:
        async with self._board.connected(heard) as lost:
            yield lost


def make_messenger(url: str, seam: Seam) -> Messenger:
    return BrokerMessenger(BoardBroker(url.partition("://")[2]), seam)


def cut(address: str) -> None:
    """Cut all connections to this board."""
    _boards[address].cut()
