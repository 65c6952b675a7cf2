"""A network that can be slow, lose some of its connections, or one end of all of them."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from tests.support.proxy import Proxy


class Network(Proxy):
    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self._delay_seconds = 0.0
        self._clients: set[asyncio.StreamWriter] = set()
        self._is_whole = asyncio.Event()
        self._is_whole.set()

    def slow_down(self, seconds: float) -> None:
        """Delay every piece of data by this much from now on."""
        self._delay_seconds = seconds

    def cut_some(self, random: Random) -> None:
        """End half of the connections."""
        self._call(self._cut_some(random))

    def lose_clients(self) -> None:
        """Cut all connections; the server doesn't learn of it until `heal`."""
        self._call(self._lose_clients())

    def heal(self) -> None:
        self._delay_seconds = 0.0
        self.cut_answers(b"", times=0)
        self._call(self._do(self._is_whole.set))
        self.resume()

    async def _cut_some(self, random: Random) -> None:
        for writer in list(self._clients):
            if random.random() < 0.5:
                writer.transport.abort()

    async def _lose_clients(self) -> None:
        self._is_whole.clear()
        for writer in list(self._clients):
            writer.transport.abort()

    async def _close(self) -> None:
        self._is_whole.set()
        await super()._close()

    async def _forward_both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        their_reader: asyncio.StreamReader,
        their_writer: asyncio.StreamWriter,
    ) -> None:
        self._clients.add(writer)
        questions: Any = _Way(their_writer, self)
        answers: Any = _Way(writer, self)
        try:
            await super()._forward_both(reader, answers, their_reader, questions)
        finally:
            self._clients.discard(writer)
            await self._is_whole.wait()

    async def delay(self) -> None:
        if self._delay_seconds:
            await asyncio.sleep(self._delay_seconds)


class _Way:
    """One way of a connection, on which everything takes as long as the network says."""

    def __init__(self, writer: asyncio.StreamWriter, network: Network) -> None:
        self.transport = writer.transport
        self._writer = writer
        self._network = network
        self._data = b""

    def write(self, data: bytes) -> None:
        self._data = data

    async def drain(self) -> None:
        await self._network.delay()
        self._writer.write(self._data)
        await self._writer.drain()
