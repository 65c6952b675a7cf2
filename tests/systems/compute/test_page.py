"""The page about this system is complete: its commands, run as written, print what it shows."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.console import Console, Step, steps
from tests.support.forks import ROOT
from tests.support.postgres import free_port
from tests.support.processes import Process
from tests.support.services import missing

pytestmark = pytest.mark.heavy

PAGE = ROOT / "docs" / "systems" / "compute.md"
SOLVER = "holdfast_systems.compute.appserver"


async def test_the_commands_of_the_page_print_what_it_shows(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        missing("curl is not installed")
    ports = {"8080": free_port(), "8081": free_port()}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    console = Console(tmp_path, {"PATH": path, "PYTHONPATH": str(ROOT / "src")})
    variables = {"APP_SERVER_URL": f"http://127.0.0.1:{ports['8080']}/gh/{{def}}:{{ver}}/solve"}
    started: list[Process] = []
    try:
        for line, shown in steps(PAGE.read_text(encoding="utf-8").partition("## Run it")[2]):
            command = re.sub(r"\b808[01]\b", lambda match: str(ports[match[0]]), line)
            first, *others = command.split()
            if command.startswith(("holdfast-appserver", "holdfast serve")):
                module = SOLVER if first == "holdfast-appserver" else first
                process = Process(module, ["-m", module, *others], tmp_path, variables)
                started.append(process)
                await (process.prints() if module == SOLVER else process.logs("serving"))
            else:
                console.run(Step(command.replace("localhost", "127.0.0.1"), shown))
    finally:
        for process in started:
            process.kill()
    assert len(started) == 2


def test_the_package_installs_the_command_of_the_appserver() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, function = project["scripts"]["holdfast-appserver"].partition(":")
    assert callable(getattr(import_module(module), function))
    assert module == f"{SOLVER}.__main__"
