"""The HTTP API on a real server inside a test, and a client for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from holdfast import Holdfast
from holdfast.api import make_api
from holdfast.api.server import Server, listen, make_server
from tests.support.processes import turn
from tests.support.running import WAIT_SECONDS_MAX


@asynccontextmanager
async def serving(server: Server, port: int = 0) -> AsyncIterator[int]:
    """Run a server on this port, or a free one, on this event loop; the block gets the port."""
    with listen("127.0.0.1", port) as listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while not server.started and not serving.done():
                    await turn()
            yield listening.getsockname()[1]
        finally:
            server.stop()
            await serving
            await server.service.hf.close()


@asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        serving(server) as port,
        # Skip the CA certificates: they take 20 ms to load, and this is plain HTTP.
        httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=WAIT_SECONDS_MAX, verify=False
        ) as client,
    ):
        yield client


@asynccontextmanager
async def served(hf: Holdfast, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Serve the API; the block gets a client.

    `options` are those of `make_api`. Upkeep has a thread of its own, which few tests need.
    """
    options.setdefault("upkeep", False)
    async with client_of(make_server(make_api(hf, **options))) as client:
        yield client
