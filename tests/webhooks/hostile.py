"""Receivers on loopback that misbehave, and count their connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from typing import Final

from tests.support.fast_forward import fast_forward

Behavior = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

DRIP_SECONDS: Final = 1.0
OK: Final = b"HTTP/1.1 200 OK\r\n"


@dataclass
class Hostile:
    """Every request is a connection of its own."""

    behave: Behavior
    url: str = ""
    connections: int = 0
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self.behave(reader, writer)
        writer.transport.abort()
        self._open.remove(task)

    async def close(self) -> None:
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open)


@asynccontextmanager
async def hostile(behave: Behavior, *, scheme: str = "http") -> AsyncIterator[Hostile]:
    receiver = Hostile(behave)
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    try:
        yield receiver
    finally:
        server.close()
        await receiver.close()


def saying(answer: bytes, *, then: Behavior | None = None) -> Behavior:
    """Read the request, send this answer, then do `then` or hang up."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        (length,) = [
            int(line.partition(b":")[2])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        await reader.readexactly(length)
        writer.write(answer)
        await writer.drain()
        if then is None:
            writer.write_eof()
            await reader.read()
        else:
            await then(reader, writer)

    return behave


async def say_no_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()


async def reset(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close with a reset, as a killed process does."""
    lingering: socket.socket = writer.get_extra_info("socket")
    lingering.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def fall_silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


def repeating(piece: bytes) -> Behavior:
    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(piece)
            await writer.drain()

    return behave


def dripping(piece: bytes) -> Behavior:
    """Send one byte every DRIP_SECONDS of the loop's clock, until the client hangs up."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in cycle(piece):
            writer.write(bytes([byte]))
            await writer.drain()
            await fast_forward(DRIP_SECONDS)
            if reader.at_eof():
                return

    return behave
