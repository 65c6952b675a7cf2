"""The page about this system is complete: its commands, run as written, print what it shows."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.test_service import ADDRESS, STAYS
from tests.support.console import Console, Step, steps
from tests.support.forks import ROOT
from tests.support.postgres import free_port
from tests.support.processes import Process
from tests.support.services import missing

pytestmark = pytest.mark.heavy

PAGE = ROOT / "docs" / "systems" / "passport.md"
FILES = ("passport.json", "receipt.json", "qr.png", "label.pdf")
SHIM = '#!/bin/sh\nexec "{python}" -m holdfast_systems.passport "$@"\n'


async def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        missing("curl is not installed")
    port = free_port()
    command = tmp_path / "bin" / "holdfast-passport"
    command.parent.mkdir()
    command.write_text(SHIM.format(python=sys.executable))
    command.chmod(0o755)
    path = os.pathsep.join([str(command.parent), os.environ["PATH"]])
    console = Console(tmp_path, {"PATH": path, "PYTHONPATH": str(ROOT / "src")})
    started: list[Process] = []
    try:
        for line, shown in steps(PAGE.read_text(encoding="utf-8")):
            if STAYS.match(line):
                words = ["-m", *line.split(), f"--port={port}"]
                keys = (tmp_path / ".variables").read_text(encoding="utf-8")
                started.append(Process("serve", words, tmp_path, signing_keys(keys)))
                await started[-1].logs("serving")
            else:
                console.run(Step(line.replace(ADDRESS, f"127.0.0.1:{port}"), shown))
    finally:
        for process in started:
            process.kill()
    assert len(started) == 1
    assert all((tmp_path / name).stat().st_size for name in FILES)


def signing_keys(exported: str) -> dict[str, str]:
    """The variable as the page sets it, without the quotes of the shell."""
    (line,) = [each for each in exported.splitlines() if "BPC_SIGNING_KEYS=" in each]
    return {"BPC_SIGNING_KEYS": line.partition("=")[2][1:-1].replace('\\"', '"')}
