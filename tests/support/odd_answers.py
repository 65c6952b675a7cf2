"""A server that sends broken or unexpected HTTP. Whatever it sends may only fail that one call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Final

Answer = bytes | Callable[[], Iterator[bytes]]

DEEP: Final = b"[" * 200_000
_PIECE: Final = b"x" * 65_536


def answer(
    body: bytes, content_type: str = "application/json", status: str = "200 OK", headers: str = ""
) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{headers}Connection: close\r\n\r\n".encode("latin-1") + body


def _endless(start: bytes, piece: bytes) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        yield start
        while True:
            yield piece

    return pieces


# Answers that no client can use.
BROKEN: Final[dict[str, Answer]] = {
    "nothing": b"",
    "no HTTP": b"\x00\xff\x16\x03\x01 hello\r\n\r\n",
    "an invalid status line": b"HTTP/1.1 two hundred OK\r\n\r\n",
    "a status that is no number": b"HTTP/1.1 2x0 OK\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a header without a colon": b"HTTP/1.1 200 OK\r\nnothing\r\n\r\n",
    "a header of many megabytes": b"HTTP/1.1 200 OK\r\nX: " + b"x" * 5_000_000 + b"\r\n\r\n",
    "endless headers": _endless(b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n" * 5_000),
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "a length below zero": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nx",
    "a body that is cut off": b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n[",
    "chunks that are none": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a body that is no gzip": answer(b"no gzip", headers="Content-Encoding: gzip\r\n"),
    "an endless body": _endless(b"HTTP/1.1 200 OK\r\n\r\n", _PIECE),
}
# Well-formed HTTP with unreadable bodies.
UNREADABLE: Final[dict[str, Answer]] = {
    "an empty body": answer(b""),
    "what is not UTF-8": answer(b'{"records": ["\xff\xfe"], "id": "\xff"}'),
    "what is nested too deeply": answer(DEEP),
    "what ends too early": answer(b'{"records": ['),
    "a page for people": answer(b"<html><p>Sign in</html>", "text/html"),
    "a redirect": answer(b"", status="302 Found", headers="Location: http://127.0.0.1:1/\r\n"),
    "a status that nobody knows": answer(b"\xff", status="299 \xe9"),
    "an error that is not UTF-8": answer(b'[{"errorCode": "\xff"}]', status="500 Oops"),
    "an error that is nested too deeply": answer(DEEP, status="500 Oops"),
}


class OddServer:
    """Answers every request with `answer`, unless `answers` has one for its method and path."""

    def __init__(self) -> None:
        self.answer: Answer = b""
        self.answers: dict[str, Answer] = {}
        self.url = ""
        self.asked: list[str] = []
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.asked.append(head.split("\r\n")[0])
            method, path = head.split("?")[0].split()[:2]
            answer = self.answers.get(path, self.answers.get(method, self.answer))
            pieces = [answer] if isinstance(answer, bytes) else answer()
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            # A client that still sends must not lose the answer to a reset.
            writer.write_eof()
            await reader.read()
        writer.transport.abort()
        del self._open[task]

    async def close(self) -> None:
        for writer in self._open.values():
            writer.transport.abort()
        await asyncio.gather(*self._open)


@asynccontextmanager
async def odd_server() -> AsyncIterator[OddServer]:
    odd = OddServer()
    server = await asyncio.start_server(odd.serve, "127.0.0.1", 0)
    odd.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield odd
    finally:
        server.close()
        await odd.close()
