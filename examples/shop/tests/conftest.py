"""Each test gets an empty database and a payment provider of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import uvicorn

from holdfast import Holdfast
from holdfast.testing import Sandbox
from shop import database, jobs, payments, provider
from shop.app import app


@pytest.fixture
def holdfast_app() -> Holdfast:
    return jobs.hf


@pytest.fixture
def sandbox(
    holdfast_sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Sandbox]:
    """Holdfast's database, which the shop's own tables are in, too."""
    monkeypatch.setattr(jobs, "OUTBOX", tmp_path / "outbox")
    database.use(holdfast_sandbox.url)
    yield holdfast_sandbox
    database.use(database.URL)


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[httpx.AsyncClient]:
    await database.create_tables()
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
        yield client


@pytest.fixture(scope="session")
def provider_url() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(provider.app, log_level="warning"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture(autouse=True)
def charges(
    provider_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, provider.Charge]]:
    monkeypatch.setattr(payments, "URL", provider_url)
    provider.charges.clear()
    provider.asked.clear()
    return provider.charges
