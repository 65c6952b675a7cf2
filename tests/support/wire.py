"""What goes over the wire to PostgreSQL: statements and round trips, counted between the two."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from tests.support.proxy import Proxy

_HEAD_BYTES = 5  # one for the kind of a message, four for its length
_PROTOCOL_3 = (196608).to_bytes(4)
_SIMPLE_QUERY, _PARSE, _BIND, _COPY_DONE, _SYNC = b"Q", b"P", b"B", b"c", b"S"
_ROUND_TRIPS = (_SIMPLE_QUERY, _COPY_DONE, _SYNC)  # after these a client waits for an answer


class Wire(Proxy):
    """Counts what all connections through it send, by the text of the statement."""

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self.statements: Counter[str] = Counter()
        self.round_trips = 0
        self.bytes_max = 0  # of one message of a client

    def forget(self) -> None:
        self.statements.clear()
        self.round_trips = 0
        self.bytes_max = 0

    async def _forward_both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        their_reader: asyncio.StreamReader,
        their_writer: asyncio.StreamWriter,
    ) -> None:
        counted: Any = _Counted(their_writer, self)
        await super()._forward_both(reader, writer, their_reader, counted)


class _Counted:
    """A writer that reads along what a client says."""

    def __init__(self, writer: asyncio.StreamWriter, wire: Wire) -> None:
        self._writer = writer
        self._wire = wire
        self._unread = b""
        self._started = False
        self._prepared: dict[bytes, str] = {}
        self.transport = writer.transport

    def write(self, data: bytes) -> None:
        self._unread += data
        while self._read_message():
            pass
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def _read_message(self) -> bool:
        kind = self._unread[:1] if self._started else b""
        length = int.from_bytes(self._unread[len(kind) : len(kind) + 4])
        if len(self._unread) < max(_HEAD_BYTES, len(kind) + length):
            return False
        content = self._unread[len(kind) + 4 : len(kind) + length]
        self._unread = self._unread[len(kind) + length :]
        if self._started:
            self._note(kind, content)
        else:
            # Before it a client asks for encryption, in a message without a kind as well.
            self._started = content.startswith(_PROTOCOL_3)
        return True

    def _note(self, kind: bytes, content: bytes) -> None:
        self._wire.round_trips += kind in _ROUND_TRIPS
        self._wire.bytes_max = max(self._wire.bytes_max, len(content))
        if kind == _SIMPLE_QUERY:
            self._wire.statements[content.rstrip(b"\0").decode()] += 1
        elif kind == _PARSE:
            name, text = content.split(b"\0")[:2]
            self._prepared[name] = text.decode()
        elif kind == _BIND:
            name = content.split(b"\0")[1]
            self._wire.statements[self._prepared[name]] += 1
