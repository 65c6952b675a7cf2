"""What the routes share: a client, rendering processes, batches. Opened by the first request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from holdfast import Holdfast, JobFunction
from holdfast_systems.documents import limits
from holdfast_systems.documents.batches import Batches
from holdfast_systems.documents.interactive import Interactive
from holdfast_systems.documents.rendering.processes import Renderers
from holdfast_systems.documents.salesforce.client import Salesforce


class Parts(NamedTuple):
    salesforce: Salesforce
    interactive: Interactive
    batches: Batches


class Desk:
    """Closes its parts when the service stops and the last request has ended."""

    def __init__(
        self, hf: Holdfast, url: str, generate: JobFunction[..., Any], stopping: asyncio.Event
    ) -> None:
        self.hf = hf
        self._url = url
        self._generate = generate
        self._stopping = stopping
        self._opening = asyncio.Lock()
        self._parts: Parts | None = None
        self._closing: asyncio.Task[None] | None = None
        self._busy = 0
        self._free = asyncio.Event()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Parts]:
        async with self._opening:
            if self._parts is None:
                await self._open()
        assert self._parts is not None
        self._busy += 1
        self._free.clear()
        try:
            yield self._parts
        finally:
            self._busy -= 1
            if not self._busy:
                self._free.set()

    async def _open(self) -> None:
        async with AsyncExitStack() as stack:
            salesforce = await stack.enter_async_context(Salesforce(self._url))
            renderers = await stack.enter_async_context(Renderers(limits.CONCURRENCY))
            interactive = Interactive(salesforce, renderers, f"api:{socket.gethostname()[:80]}")
            batches = Batches(self.hf, salesforce, self._generate)
            self._parts = Parts(salesforce, interactive, batches)
            self._closing = asyncio.create_task(self._close(stack.pop_all()))

    async def _close(self, parts: AsyncExitStack) -> None:
        async with parts:
            await self._stopping.wait()
            await self._free.wait()
            self._parts = None
