from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO

import pytest

from holdfast_systems.convert.settings import ConvertSettings
from holdfast_systems.demos.convert import INVOICE, make_pdf
from tests.support.processes import Process
from tests.systems.convert.bench import Bench, gateway_address
from tests.systems.convert.scripted import ScriptedGateway, scripted_gateway


@pytest.fixture
async def gateway() -> AsyncIterator[ScriptedGateway]:
    async with scripted_gateway() as made:
        yield made


@pytest.fixture
async def bench(store_url: str, gateway: ScriptedGateway, tmp_path: Path) -> AsyncIterator[Bench]:
    settings = ConvertSettings(
        gateway_url=gateway.url,
        database_url=store_url,
        uploads_dir=tmp_path / "uploads",
        results_dir=tmp_path / "results",
    )
    made = Bench(settings, tmp_path)
    try:
        await made.hf.migrate()
        yield made
    finally:
        await made.close()


@pytest.fixture(scope="module")
def real_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the reference gateway, as a process of its own."""
    folder = tmp_path_factory.mktemp("gateway")
    process = Process("gateway", ["-m", "holdfast_systems.convert.gateway"], folder, {})
    try:
        yield asyncio.run(gateway_address(process))
    finally:
        process.kill()


@pytest.fixture
def invoice_file(invoice_pdf: bytes) -> Iterator[IO[bytes]]:
    """As the gateway gets it: in memory, until somebody asks for the file's descriptor."""
    with SpooledTemporaryFile(max_size=1024 * 1024) as file:
        file.write(invoice_pdf)
        yield file


@pytest.fixture(scope="session")
def invoice_pdf() -> bytes:
    return make_pdf(INVOICE)
