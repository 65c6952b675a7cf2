"""Connections that cut off slow and huge requests. Uvicorn does the rest.

Uvicorn limits neither the time nor (with httptools) the size of a request's head. Both of its
parsers have the same attributes: `cycle` is the newest request whose head is complete.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from socket import SO_LINGER, SOL_SOCKET
from struct import pack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.api.limits import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    HEAD_SECONDS_MAX,
    STALL_SECONDS_MAX,
)
from holdfast.api.problems import Problem, unavailable

LINGER_SECONDS: Final = 2.0
LINGER_BYTES_MAX: Final = 4 * 1024 * 1024
_NO_LINGER: Final = pack("ii", 1, 0)

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol as _Protocol
else:
    _Protocol = object


class ConnectionLimits(NamedTuple):
    head_bytes: int = HEAD_BYTES_MAX
    head_seconds: float = HEAD_SECONDS_MAX
    stall_seconds: float = STALL_SECONDS_MAX
    connections: int = CONNECTIONS_MAX


class Careful(_Protocol):
    """Goes in front of one of uvicorn's protocols."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = limits
        self._newest: Any = None  # the newest cycle seen so far
        self._head_bytes = 0  # received since the last request
        self._idle_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stalling: asyncio.TimerHandle | None = None  # while the client does not read

    @property
    def awaits_head(self) -> bool:
        return self._newest is None or self.cycle.response_complete

    @property
    def is_midway(self) -> bool:
        """Whether the client has begun to send something and has not finished."""
        return self._head_bytes > 0 or (self._newest is not None and self.cycle.more_body)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(_Gentle(transport, self))  # type: ignore[arg-type]
        self._start_timer()
        if len(self.connections) > self._limits.connections and not self._make_room():
            self._refuse(
                unavailable(
                    "all connections of this server are in use; try again later",
                    "too-many-connections",
                )
            )

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_stalling()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._idle_since = self.loop.time()
        self._await_reading()

    def resume_writing(self) -> None:
        self._stop_stalling()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            self.transport.discard(data)  # type: ignore[attr-defined]
        elif not self.awaits_head and self.cycle.more_body:
            super().data_received(data)
        elif not self.awaits_head:
            self._receive_early(data)
        else:
            self._receive_head(data)

    def _receive_head(self, data: bytes) -> None:
        room = self._limits.head_bytes - self._head_bytes
        self._feed(data[:room])
        if self.awaits_head and self._timer is None and not self.transport.is_closing():
            self._start_timer()
        if len(data) <= room or self.transport.is_closing():
            return
        if self.awaits_head:
            most = self._limits.head_bytes
            text = f"the request line and the headers are larger than {most:,} bytes"
            self._refuse(Problem("head-too-large", text))
        else:
            self.data_received(data[room:])

    def _receive_early(self, data: bytes) -> None:
        """Accept a little of what a client sends before it has its response."""
        if self._head_bytes + len(data) > self._limits.head_bytes:
            self.transport.abort()
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self.cycle is self._newest:
            return
        self._newest = self.cycle
        self._head_bytes = 0
        self._stop_timer()
        if b"upgrade" in dict(self.cycle.scope["headers"]):
            # The parser takes what follows for another protocol, but we don't switch.
            self.cycle.keep_alive = False

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._idle_since = self.loop.time()
        if self.awaits_head and self.cycle.more_body:
            self.transport.close()  # nobody will read the rest of the body

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem("bad-request", "the request is not valid HTTP/1.1"))

    def _refuse(self, problem: Problem) -> None:
        self._stop_timer()
        self.transport.write(_raw(problem))
        self.transport.close()

    def _make_room(self) -> bool:
        """Close the connection that has been idle longest; return whether there was one."""
        connections: set[Any] = self.connections
        idle = [
            each
            for each in connections
            if each is not self and (each.awaits_head or each._stalling is not None)
        ]
        if idle:
            min(idle, key=lambda each: each._idle_since)._cut_off()
        return bool(idle)

    def _start_timer(self) -> None:
        self._idle_since = self.loop.time()
        self._timer = self.loop.call_later(self._limits.head_seconds, self._head_is_late)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _await_reading(self) -> None:
        unread = self.transport.get_write_buffer_size()
        seconds = self._limits.stall_seconds
        self._stalling = self.loop.call_later(seconds, self._check_reading, unread)

    def _check_reading(self, unread: int) -> None:
        """Cut off a client that has read nothing of its answer; a slow one may go on."""
        if self.transport.get_write_buffer_size() < unread:
            self._await_reading()
        else:
            self._cut_off()

    def _cut_off(self) -> None:
        """Close it at once. The system, too, forgets what the client has not read."""
        socket = self.transport.get_extra_info("socket")
        socket.setsockopt(SOL_SOCKET, SO_LINGER, _NO_LINGER)
        self.transport.abort()

    def _stop_stalling(self) -> None:
        if self._stalling is not None:
            self._stalling.cancel()
            self._stalling = None

    def _head_is_late(self) -> None:
        if self._head_bytes:
            text = f"the headers did not arrive within {self._limits.head_seconds:g} s"
            self._refuse(Problem("too-slow", text))
        else:
            self.transport.close()


def fastest() -> type[Any]:
    """The fastest of uvicorn's protocols that is installed, made careful."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol

        return careful(H11Protocol)
    return careful(HttpToolsProtocol)


def careful(protocol: type[Any]) -> type[Any]:
    return type("Connection", (Careful, protocol), {})


class _Gentle:
    """A transport that closes in two steps while the client is still sending.

    If a socket is closed with unread bytes, the client may lose the response. So this ends the
    response first, then discards what arrives for a short while, until the client closes.
    """

    def __init__(self, transport: asyncio.Transport, connection: Careful) -> None:
        self._transport = transport
        self._connection = connection
        self._lingering: asyncio.TimerHandle | None = None
        self._discarded_bytes = 0
        self.abort = transport.abort
        self.get_extra_info = transport.get_extra_info
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.write = transport.write

    def is_closing(self) -> bool:
        return self._lingering is not None or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing() or not self._connection.is_midway:
            self._transport.close()
            return
        self._transport.write_eof()
        self._transport.resume_reading()
        loop = self._connection.loop
        self._lingering = loop.call_later(LINGER_SECONDS, self._transport.abort)

    def discard(self, data: bytes) -> None:
        self._discarded_bytes += len(data)
        if self._discarded_bytes > LINGER_BYTES_MAX:
            self._transport.abort()


def _raw(problem: Problem) -> bytes:
    """The response to a request that never reaches the application."""
    response = problem.response()
    status = HTTPStatus(response.status_code)
    lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), b"connection: close"]
    lines += [name + b": " + value for name, value in response.raw_headers]
    return b"\r\n".join([*lines, b"", bytes(response.body)])
