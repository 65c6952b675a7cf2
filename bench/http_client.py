"""The clients of the HTTP benchmarks, in a process of their own, with as little work as possible.

    python -m bench.http_client load HOST PORT PATH CONNECTIONS REQUESTS < BODY
    python -m bench.http_client watch HOST PORT < IDS

`load` sends the body again and again on open connections and tells the time. `watch` opens a stream
of events for each id, up to an empty line, and tells when all have begun. Then it tells for each
line how many events there were, and ends with its input.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import uvloop

HEAD_END = b"\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
WARM_UP_SHARE = 10


class Caller(asyncio.Protocol):
    """Sends the next request when it has the answer to the last one."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._answer = b""
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(ConnectionError(f"cut off after {self._answer!r}"))

    def data_received(self, data: bytes) -> None:
        self._answer += data
        end = self._answer.find(HEAD_END)
        if end < 0:
            return
        length = LENGTH.search(self._answer, 0, end)
        assert length is not None
        if len(self._answer) < end + len(HEAD_END) + int(length[1]):
            return
        if not self._answer.startswith(b"HTTP/1.1 201 "):
            self.ended.set_exception(AssertionError(self._answer.decode()))
            return
        self._answer = b""
        self._next()

    def _next(self) -> None:
        request = next(self._requests, None)
        if request is not None:
            self._transport.write(request)
        else:
            self.ended.set_result(None)
            self._transport.close()


def requests(host: str, path: str, body: bytes, number: int) -> Iterator[bytes]:
    head = f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n"
    start = f"{head}content-length: {len(body)}\r\n"
    for _ in range(number):
        # Only batches need a key; it makes a job of its own, which takes longer.
        key = f'idempotency-key: "{uuid4()}"\r\n' if path.endswith("/batch") else ""
        yield f"{start}{key}\r\n".encode() + body


async def load(host: str, port: int, path: str, connections: int, number: int) -> None:
    body = sys.stdin.buffer.read()
    for measured in (number // WARM_UP_SHARE + connections, number):
        sent = requests(host, path, body, measured)
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        opened = [
            await loop.create_connection(lambda: Caller(sent), host, port)  # noqa: B023
            for _ in range(min(connections, measured))
        ]
        await asyncio.gather(*(caller.ended for _, caller in opened))
        seconds = time.perf_counter() - began
    print(json.dumps({"requests": number, "seconds": seconds}), flush=True)


class Follower(asyncio.Protocol):
    """Counts the events of a stream."""

    def __init__(self, request: bytes) -> None:
        self.began = asyncio.Event()
        self.events = 0
        self._request = request

    def connection_made(self, transport: Any) -> None:
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.events += data.count(b"event: ")
        if self.events:
            self.began.set()


async def watch(host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    followers = []
    for line in iter(sys.stdin.readline, "\n"):
        request = f"GET /v1/jobs/{line.strip()}/events HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
        _, follower = await loop.create_connection(lambda: Follower(request), host, port)  # noqa: B023
        followers.append(follower)
    await asyncio.gather(*(follower.began.wait() for follower in followers))
    print(json.dumps({"streams": len(followers)}), flush=True)
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps({"events": sum(each.events for each in followers)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb in ("load", "watch"):
        each = verbs.add_parser(verb)
        each.add_argument("host")
        each.add_argument("port", type=int)
        if verb == "load":
            each.add_argument("path")
            each.add_argument("connections", type=int)
            each.add_argument("number", type=int)
    options = vars(parser.parse_args())
    work = load if options.pop("verb") == "load" else watch
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work(**options))


if __name__ == "__main__":
    main()
