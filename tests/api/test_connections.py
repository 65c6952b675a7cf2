"""Slow, huge and odd requests, as raw bytes, on both of uvicorn's parsers."""

from __future__ import annotations

import asyncio
import json
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any, NamedTuple

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast import Holdfast
from holdfast.api import make_api
from holdfast.api.connections import ConnectionLimits, careful
from holdfast.api.limits import BODY_BYTES_MAX, HEAD_BYTES_MAX
from holdfast.api.server import Server, make_server
from tests.support.api import serving
from tests.support.processes import wait_until
from tests.support.running import WAIT_SECONDS_MAX

PARSERS = {"httptools": HttpToolsProtocol, "h11": H11Protocol}
AT_ONCE = {"head_seconds": 0.05}
HOST = b"host: localhost\r\n"
LIVE = b"GET /v1/health/live HTTP/1.1\r\n" + HOST
JSON = b"content-type: application/json\r\n"
POST = b"POST /v1/jobs HTTP/1.1\r\n" + HOST + JSON


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


class Client:
    """A client that sends whatever it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Send as much as the server takes."""
        self._writer.write(data)
        with suppress(OSError):
            await self._writer.drain()

    async def answer(self) -> Answer:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return Answer(int(first.split()[1]), headers, json.loads(body))

    async def end(self) -> bytes:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return await self._reader.read()

    async def is_closed(self) -> bool:
        try:
            return await self.end() == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self._writer.transport.abort()  # without waiting for a server that reads no more


class Wire:
    def __init__(self, port: int, server: Server) -> None:
        self.port = port
        self._server = server
        self._clients: list[Client] = []

    def is_stalled(self) -> bool:
        """Is there a connection that can't take more of its answer?"""
        connections: set[Any] = self._server.server_state.connections
        return any(each.flow.write_paused for each in connections)

    async def connect(self, first: bytes = b"") -> Client:
        """Connect. The first bytes are on their way before the server can start its timer: with
        AT_ONCE, it closes a connection on which a busy machine is slower than that."""
        connected = socket.create_connection(("127.0.0.1", self.port))
        connected.sendall(first)
        client = Client(*await asyncio.open_connection(sock=connected))
        self._clients.append(client)
        return client

    async def answer_to(self, data: bytes) -> Answer:
        client = await self.connect()
        await client.send(data)
        return await client.answer()

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture(params=PARSERS)
def parser(request: pytest.FixtureRequest) -> Any:
    return careful(PARSERS[request.param])


@asynccontextmanager
async def wired(hf: Holdfast, parser: Any, **limits: float) -> AsyncIterator[Wire]:
    limited = ConnectionLimits(**limits)  # type: ignore[arg-type]
    server = make_server(make_api(hf, upkeep=False), limits=limited, protocol=parser)
    async with serving(server) as port:
        wire = Wire(port, server)
        try:
            yield wire
        finally:
            wire.close()


class Deaf:
    """A client that asks for more than fits into the buffers on the way, and reads nothing."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect(("127.0.0.1", port))
        self._socket.sendall(100 * (b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"))
        self._poll = select.poll()
        self._poll.register(self._socket, 0)  # only its end

    def is_cut_off(self) -> bool:
        return bool(self._poll.poll(0))

    def close(self) -> None:
        self._socket.close()


async def test_a_client_that_reads_nothing_is_cut_off(local_hf: Holdfast, parser: Any) -> None:
    async with wired(local_hf, parser, stall_seconds=0.05) as wire:
        with closing(Deaf(wire.port)) as deaf:
            await wait_until(deaf.is_cut_off, "the deaf client is cut off", 30.0)
        assert (await wire.answer_to(LIVE + b"\r\n")).status == 200


async def test_clients_that_read_nothing_keep_nobody_out(local_hf: Holdfast, parser: Any) -> None:
    async with wired(local_hf, parser, connections=1) as wire:
        with closing(Deaf(wire.port)):
            await wait_until(wire.is_stalled, "its answers fill all buffers", 30.0)
            assert (await wire.answer_to(LIVE + b"\r\n")).status == 200


async def test_a_head_that_is_too_large_is_refused(local_hf: Holdfast, parser: Any) -> None:
    async with wired(local_hf, parser) as wire:
        long_line = b"GET /" + b"a" * HEAD_BYTES_MAX + b" HTTP/1.1\r\n"
        many_lines = LIVE + b"x: y\r\n" * (HEAD_BYTES_MAX // 6)
        for head in (long_line, many_lines, LIVE + b"x: " + b"a" * 500_000 + b"\r\n\r\n"):
            answer = await wire.answer_to(head)
            assert (answer.status, answer.body["code"]) == (431, "head-too-large")
            assert answer.headers["content-type"] == "application/problem+json"
        fits = LIVE + b"x: " + b"a" * (HEAD_BYTES_MAX - 100) + b"\r\n\r\n"
        assert (await wire.answer_to(fits)).status == 200


async def test_a_head_that_comes_too_slowly_is_cut_off(local_hf: Holdfast, parser: Any) -> None:
    async with wired(local_hf, parser, **AT_ONCE) as wire:
        client = await wire.connect(LIVE[:1])
        for byte in LIVE[1:5]:
            await client.send(bytes([byte]))
        answer = await client.answer()
        assert (answer.status, answer.body["code"]) == (408, "too-slow")
        assert await client.is_closed()


async def test_a_connection_that_says_nothing_is_closed(local_hf: Holdfast, parser: Any) -> None:
    async with wired(local_hf, parser, **AT_ONCE) as wire:
        assert await (await wire.connect()).is_closed()


async def test_the_second_head_of_a_connection_has_the_same_limits(
    local_hf: Holdfast, parser: Any
) -> None:
    async with wired(local_hf, parser, **AT_ONCE) as wire:
        client = await wire.connect(LIVE + b"\r\n")
        assert (await client.answer()).status == 200
        await client.send(LIVE + b"\r\n")
        assert (await client.answer()).status == 200
        await client.send(LIVE)
        assert (await client.answer()).status == 408


async def test_a_request_may_take_longer_than_its_head(local_hf: Holdfast, parser: Any) -> None:
    job = await _job(local_hf).enqueue(1)
    async with wired(local_hf, parser, **AT_ONCE) as wire:
        path = f"GET /v1/jobs/{job.id}/result?wait_seconds=0.3 HTTP/1.1\r\n".encode()
        answer = await (await wire.connect(path + HOST + b"\r\n")).answer()
        assert answer.status < 300 or answer.body["code"] != "too-slow"


async def test_a_body_that_is_too_large_is_answered_before_it_is_read(
    local_hf: Holdfast, parser: Any
) -> None:
    async with wired(local_hf, parser) as wire:
        declared = POST + b"content-length: 1000000000\r\n\r\n"
        assert (await wire.answer_to(declared)).status == 413
        client = await wire.connect()
        await client.send(declared + b"a" * (2 * BODY_BYTES_MAX))
        answer = await client.answer()
        assert (answer.status, answer.body["code"]) == (413, "too-large")
        assert await client.end() == b"", "a reset could have overtaken the answer"


async def test_chunks_without_end_are_cut_off(local_hf: Holdfast, parser: Any) -> None:
    async with wired(local_hf, parser) as wire:
        client = await wire.connect()
        await client.send(POST + b"transfer-encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        sending = asyncio.create_task(client.send(chunk * 200))
        assert (await client.answer()).status == 413
        assert await client.is_closed()
        await sending


async def test_the_rest_of_a_body_that_nobody_reads_ends_the_connection(
    local_hf: Holdfast, parser: Any
) -> None:
    async with wired(local_hf, parser) as wire:
        client = await wire.connect()
        await client.send(LIVE + b"content-length: 1000\r\n\r\n")
        assert (await client.answer()).status == 200
        assert await client.is_closed()


async def test_a_request_with_two_lengths_is_refused(local_hf: Holdfast, parser: Any) -> None:
    async with wired(local_hf, parser) as wire:
        lengths = b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
        client = await wire.connect()
        await client.send(POST + lengths + LIVE + b"\r\n")
        assert (await client.answer()).status == 400
        assert await client.is_closed(), "the smuggled request is not answered"


NONSENSE = [
    b"nonsense\r\n\r\n",
    b"GET / HTTP/1.1\r\n: \r\n\r\n",
    POST + b"content-length: -1\r\n\r\n",
    POST + b"content-length: 1\r\ncontent-length: 2\r\n\r\n",
    POST + b"transfer-encoding: gzip\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS
]


async def test_what_is_not_http_is_refused(local_hf: Holdfast, parser: Any) -> None:
    async with wired(local_hf, parser) as wire:
        for nonsense in NONSENSE:
            client = await wire.connect()
            await client.send(nonsense)
            answer = await client.answer()
            assert (answer.status, answer.body["code"]) == (400, "bad-request"), nonsense
            assert await client.is_closed()


async def test_requests_in_one_packet_are_answered_in_order(
    local_hf: Holdfast, parser: Any
) -> None:
    async with wired(local_hf, parser) as wire:
        client = await wire.connect()
        missing = b"GET /nothing HTTP/1.1\r\n" + HOST + b"\r\n"
        await client.send((LIVE + b"\r\n" + missing) * 3)
        assert [(await client.answer()).status for _ in range(6)] == [200, 404] * 3


async def test_a_client_that_sends_on_before_its_answer_is_cut_off(
    local_hf: Holdfast, parser: Any
) -> None:
    job = await _job(local_hf).enqueue(1)
    async with wired(local_hf, parser) as wire:
        client = await wire.connect()
        path = f"GET /v1/jobs/{job.id}/result?wait_seconds=50 HTTP/1.1\r\n".encode()
        await client.send(path + HOST + b"\r\n" + LIVE)
        await client.send(b"x: " + b"a" * 10 * HEAD_BYTES_MAX)
        assert await client.is_closed()


async def test_a_client_that_asks_for_another_protocol_gets_its_answer_in_this_one(
    local_hf: Holdfast, parser: Any
) -> None:
    """As Java's HttpClient does, which offers HTTP/2 with every first request."""
    offer = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n\r\n"
    async with wired(local_hf, parser) as wire:
        client = await wire.connect()
        await client.send(LIVE + offer)
        assert (await client.answer()).status == 200
        assert await client.is_closed(), "the parser can't read what follows"


async def test_a_new_connection_takes_the_place_of_the_one_that_was_idle_longest(
    local_hf: Holdfast, parser: Any
) -> None:
    async with wired(local_hf, parser, connections=2) as wire:
        silent, active = await wire.connect(), await wire.connect()
        await active.send(LIVE + b"\r\n")
        assert (await active.answer()).status == 200
        assert (await wire.answer_to(LIVE + b"\r\n")).status == 200
        assert await silent.is_closed()
        await active.send(LIVE + b"\r\n")
        assert (await active.answer()).status == 200


async def test_a_connection_too_many_is_told_to_try_again(local_hf: Holdfast, parser: Any) -> None:
    job = await _job(local_hf).enqueue(1)
    limits = ConnectionLimits(connections=1)
    server = make_server(make_api(local_hf, upkeep=False), limits=limits, protocol=parser)
    async with serving(server) as port:
        with closing(Wire(port, server)) as wire:
            waiting = await wire.connect()
            path = f"GET /v1/jobs/{job.id}/result?wait_seconds=50 HTTP/1.1\r\n".encode()
            await waiting.send(path + HOST + b"\r\n")
            await wait_until(lambda: server.service.traffic.in_flight, "a request in flight")
            answer = await (await wire.connect()).answer()
            assert (answer.status, answer.body["code"]) == (503, "too-many-connections")
            assert answer.headers["retry-after"] == "1"


def _job(hf: Holdfast) -> Any:
    @hf.job
    async def never(_number: int) -> None:
        raise NotImplementedError

    return never
