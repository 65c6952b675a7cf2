"""The guides of the service are complete: their commands, run as written, print what they show."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.test_examples import BLOCK
from tests.support.console import Console, Step, steps
from tests.support.forks import ROOT
from tests.support.postgres import free_port
from tests.support.processes import Process
from tests.support.services import missing

pytestmark = pytest.mark.heavy

GUIDES = ROOT / "docs" / "guides"
ADDRESS = "localhost:8000"
STAYS = re.compile(r"(holdfast serve|python worker\.py)\b")  # what runs until the end of the page


class Guide:
    """A guide whose commands are run in an empty folder, beside the files that it says to save."""

    def __init__(self, name: str, folder: Path) -> None:
        self.text = (GUIDES / f"{name}.md").read_text(encoding="utf-8")
        self.folder = folder
        self.port = free_port()
        self.started: list[Process] = []
        blocks = list(BLOCK.finditer(self.text))
        (folder / "app.py").write_text(blocks[0]["code"], encoding="utf-8")
        for block in blocks:
            if block["mark"].startswith("no-run"):
                (folder / "worker.py").write_text(block["code"], encoding="utf-8")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.console = Console(folder, {"PATH": path, "PYTHONPATH": str(ROOT / "src")})

    async def run(self) -> None:
        for command, shown in steps(self.text):
            if STAYS.match(command):
                await self.start(command)
            else:
                self.console.run(Step(command.replace(ADDRESS, f"127.0.0.1:{self.port}"), shown))

    async def start(self, command: str) -> None:
        first, *others = command.split()
        serves = first == "holdfast"
        words = ["-m", first, *others, f"--port={self.port}"] if serves else others
        set_here = self.console.variables("HOLDFAST_KEY")
        variables = {"HOLDFAST_URL": f"http://127.0.0.1:{self.port}", **set_here}
        name = f"started{len(self.started)}"
        self.started.append(Process(name, words, self.folder, variables))
        if serves:
            await self.started[-1].logs("serving")


@pytest.mark.parametrize("name", ["service", "leases"])
async def test_the_commands_of_a_guide_print_what_it_shows(name: str, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        missing("curl is not installed")
    guide = Guide(name, tmp_path)
    try:
        await guide.run()
    finally:
        for process in guide.started:
            process.kill()
    assert guide.started


def test_what_is_not_shown_is_found(tmp_path: Path) -> None:
    console = Console(tmp_path, {})
    first, second = "01a1eb19-a8b8-7396-a10e-ac07e6a38e0e", "01a1eb19-a87b-7698-9b23-d8d735919981"
    console.compare("", f'{{"id":"{first}","state":"queued"}}', f'{{"id": "{second}", ...}}')
    assert console.translated(f"get {second}") == f"get {first}"
    with pytest.raises(AssertionError, match="the page shows"):
        console.compare("", f'{{"id":"{second}"}}', f'{{"id":"{second}"}}')
    with pytest.raises(AssertionError, match="the page shows"):
        console.compare("", "404", "200")
    with pytest.raises(AssertionError, match="no-such-command"):
        console.run(Step("no-such-command", ""))
