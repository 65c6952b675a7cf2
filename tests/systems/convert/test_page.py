"""The page about this system is complete: its commands, run as written, print what it shows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.docs.test_service import ADDRESS
from tests.support.console import Console, Step, steps
from tests.support.forks import ROOT
from tests.support.postgres import free_port
from tests.support.processes import Process
from tests.support.services import missing
from tests.systems.convert.bench import gateway_address

pytestmark = pytest.mark.heavy

PAGE = ROOT / "docs" / "systems" / "convert.md"
GATEWAY = "holdfast-gateway --port 8080"
SERVE = "holdfast serve "
VARIABLES = ("DATABASE_URL", "GATEWAY_URL", "UPLOADS_DIR", "RESULTS_DIR")


async def test_the_commands_of_the_page_print_what_it_shows(
    tmp_path: Path, invoice_pdf: bytes
) -> None:
    if shutil.which("curl") is None:
        missing("curl is not installed")
    (tmp_path / "invoice.pdf").write_bytes(invoice_pdf)
    page = PAGE.read_text(encoding="utf-8").partition("## Run it")[2]
    console = Console(tmp_path, {"PATH": os.environ["PATH"]})
    port, address = free_port(), ""
    started: list[Process] = []
    try:
        for command, shown in steps(page):
            if command == GATEWAY:
                words = ["-m", "holdfast_systems.convert.gateway", "--port", "0"]
                started.append(Process("gateway", words, tmp_path, {}))
                address = await gateway_address(started[-1])
            elif command.startswith(SERVE):
                words = ["-m", *command.split(), f"--port={port}"]
                variables = console.variables(*VARIABLES)
                started.append(Process("serve", words, tmp_path, variables))
                await started[-1].logs("serving")
            else:
                command = command.replace("http://localhost:8080", address)
                console.run(Step(command.replace(ADDRESS, f"127.0.0.1:{port}"), shown))
    finally:
        for process in started:
            process.kill()
    assert len(started) == 2
