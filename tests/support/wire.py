"""The traffic to PostgreSQL: counts statements and round trips, and can withhold an answer, so that
a test knows how far a client is."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

from tests.support.proxy import Proxy

_HEAD_BYTES = 5  # one for the kind of a message, four for its length
_PROTOCOL_3 = (196608).to_bytes(4)
_SIMPLE_QUERY, _PARSE, _BIND, _COPY_DONE, _SYNC = b"Q", b"P", b"B", b"c", b"S"
_ROUND_TRIPS = (_SIMPLE_QUERY, _COPY_DONE, _SYNC)  # after these a client waits for an answer


class Wire(Proxy):
    """Counts what clients send, by the text of the statement."""

    def __init__(self, target_port: int) -> None:
        super().__init__(target_port)
        self.statements: Counter[str] = Counter()
        self.round_trips = 0
        self.bytes_max = 0  # of one message of a client
        self.held = threading.Event()  # an answer has arrived and is withheld
        self.takes_held = True
        self._held_text: str | None = None

    def hold_answer(self, text: str, *, takes_it: bool = True) -> None:
        """Withhold all answers on a connection, from the next statement on that contains this text.
        With `takes_it=False`, don't even read them from the server."""
        self._held_text = text
        self.takes_held = takes_it

    def takes(self, statement: str) -> bool:
        """Should the answer to this statement be withheld?"""
        if self._held_text is None or self._held_text not in statement:
            return False
        self._held_text = None
        return True

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
        held: Any = _Held(writer, counted, self)
        await super()._forward_both(reader, held, their_reader, counted)


class _Held:
    """Writes the server's answers, until one is withheld."""

    def __init__(self, writer: asyncio.StreamWriter, counted: _Counted, wire: Wire) -> None:
        self._writer = writer
        self._counted = counted
        self._wire = wire
        self.transport = writer.transport

    def write(self, data: bytes) -> None:
        if not self._counted.is_held:
            self._writer.write(data)

    async def drain(self) -> None:
        if self._counted.is_held:
            self._wire.held.set()
            if not self._wire.takes_held:
                await asyncio.Event().wait()
        else:
            await self._writer.drain()


class _Counted:
    """Writes a client's messages, and counts them."""

    def __init__(self, writer: asyncio.StreamWriter, wire: Wire) -> None:
        self._writer = writer
        self._wire = wire
        self._unread = b""
        self._started = False
        self._prepared: dict[bytes, str] = {}
        self.is_held = False
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
            self._count(content.rstrip(b"\0").decode())
        elif kind == _PARSE:
            name, text = content.split(b"\0")[:2]
            self._prepared[name] = text.decode()
        elif kind == _BIND:
            name = content.split(b"\0")[1]
            self._count(self._prepared[name])

    def _count(self, statement: str) -> None:
        self._wire.statements[statement] += 1
        self.is_held = self.is_held or self._wire.takes(statement)
