"""A receiver on loopback inside of a test, whose answers the test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Received:
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Answers the statuses one after the other, the last one for ever."""

    answers: list[int]
    body: bytes = b"thanks"
    headers: dict[str, str] = field(default_factory=dict)
    url: str = ""
    port: int = 0
    requests: list[Received] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.Request) -> web.Response:
        received = Received(request.path, dict(request.headers), await request.read())
        self.requests.append(received)
        self.came.set()
        await self.gate.wait()
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return web.Response(status=status, body=self.body, headers=self.headers)


@asynccontextmanager
async def receiving(*answers: int) -> AsyncIterator[Receiver]:
    receiver = Receiver(list(answers) or [200])
    receiver.gate.set()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        receiver.port = runner.addresses[0][1]
        receiver.url = f"http://127.0.0.1:{receiver.port}/hook"
        yield receiver
    finally:
        receiver.gate.set()
        await runner.cleanup()
