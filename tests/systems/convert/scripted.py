"""A gateway that answers as it is told: a real server on loopback, in the test's own loop.

The file that it gets is the script: a line of a PDF, then JSON with one answer for each attempt;
the last one repeats.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from tests.support.processes import WAIT_SECONDS

HEADER = b"%PDF-1.7\n"
XML = "<document>{number}</document>"


def script(*answers: dict[str, Any]) -> bytes:
    """Answers have a status, headers, a content_type and a body with `padding` spaces after it;
    `hangs`, or `breaks` the connection."""
    return HEADER + json.dumps(answers or [{}]).encode()


@dataclass(frozen=True)
class Received:
    headers: Mapping[str, str]
    mapping: str
    filename: str
    content_type: str
    number: int

    @property
    def job_id(self) -> str:
        return self.headers["x-correlation-id"]


@dataclass
class ScriptedGateway:
    """Every request is noted; while the gate is closed nobody is answered."""

    url: str = ""
    received: list[Received] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    _end: asyncio.Event = field(default_factory=asyncio.Event)
    _counts: Counter[str] = field(default_factory=Counter)
    _more: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self) -> None:
        """Let go of whoever still waits."""
        self._end.set()
        self.gate.set()

    async def arrivals(self, count: int = 1) -> list[Received]:
        """Wait for so many requests."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.received) < count:
                self._more.clear()
                await self._more.wait()
        return self.received

    async def answer(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        file, mapping = form["file"], form["mapping"]
        assert isinstance(file, web.FileField)
        assert isinstance(mapping, str)
        with file.file as content:
            answers = json.loads(content.read().removeprefix(HEADER))
        job_id = request.headers["x-correlation-id"]
        self._counts[job_id] += 1
        number = self._counts[job_id]
        self.received.append(
            Received(request.headers, mapping, file.filename, file.content_type, number)
        )
        self._more.set()
        await self.gate.wait()
        return await self._reply(request, answers[min(number, len(answers)) - 1], number)

    async def _reply(
        self, request: web.Request, chosen: dict[str, Any], number: int
    ) -> web.StreamResponse:
        if chosen.get("hangs"):
            await self._end.wait()
        if chosen.get("breaks") and request.transport:
            request.transport.abort()
        return web.Response(
            status=chosen.get("status", 200),
            headers=chosen.get("headers"),
            text=chosen.get("body", XML.format(number=number)) + " " * chosen.get("padding", 0),
            content_type=chosen.get("content_type", "application/xml"),
        )


@asynccontextmanager
async def scripted_gateway() -> AsyncIterator[ScriptedGateway]:
    gateway = ScriptedGateway()
    gateway.gate.set()
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/process", gateway.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    gateway.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield gateway
    finally:
        gateway.end()
        await runner.cleanup()
