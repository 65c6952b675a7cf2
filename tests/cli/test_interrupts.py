"""Ctrl-C while a program starts: it ends with code 130 and one line, at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import PATH, PROGRAM_SECONDS_MAX, ROOT

SCRIPT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["holdfast"]
MODULE, _, FUNCTION = SCRIPT.partition(":")
# What an installer writes into the file `holdfast`.
INSTALLED = ["-c", f"import sys; from {MODULE} import {FUNCTION}; sys.exit({FUNCTION}())"]
COMMANDS = {"installed": INSTALLED, "module": ["-m", "holdfast"]}
# The first and the last of what is imported, and some of the rest.
MOMENTS = ["click.core", "msgspec", "asyncio", "holdfast.app", "holdfast.cli.main"]
SERVERS = ["compute.appserver", "convert.gateway", "documents.salesforce.local"]


@pytest.mark.parametrize("moment", [*MOMENTS, "aiohttp.client"])
@pytest.mark.parametrize("start", COMMANDS)
def test_a_command_that_is_interrupted_while_it_starts_shows_no_traceback(
    start: str, moment: str, tmp_path: Path
) -> None:
    with started([*COMMANDS[start], "demo", "compute"], tmp_path) as process:
        shown = interrupt_after(process, moment)
    assert (process.returncode, shown) == (130, ["holdfast: interrupted"])


@pytest.mark.parametrize("moment", ["fastapi"])
@pytest.mark.parametrize("server", SERVERS)
def test_a_server_that_is_interrupted_while_it_starts_shows_no_traceback(
    server: str, moment: str, tmp_path: Path
) -> None:
    with started(["-m", f"holdfast_systems.{server}"], tmp_path) as process:
        shown = interrupt_after(process, moment)
    assert (process.returncode, shown) == (130, ["holdfast: interrupted"])


@pytest.mark.parametrize("server", SERVERS)
def test_ctrl_c_ends_a_server_without_a_traceback(server: str, tmp_path: Path) -> None:
    quiet = ["-W", "ignore", "-m", f"holdfast_systems.{server}"]
    with started(quiet, tmp_path, trace=False) as process:
        assert process.stdout is not None
        assert "address" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        shown = process.communicate(timeout=PROGRAM_SECONDS_MAX)[1]
    assert process.returncode == 130
    assert "Traceback" not in shown


def test_a_command_in_the_background_ignores_ctrl_c_as_it_was_told(tmp_path: Path) -> None:
    ignoring = [*COMMANDS["module"], "--version"]
    with started(ignoring, tmp_path, interrupts=signal.SIG_IGN) as process:
        shown = interrupt_after(process, "click.core")
    assert (process.returncode, shown) == (0, [])


@contextmanager
def started(
    command: list[str],
    folder: Path,
    *,
    interrupts: signal.Handlers = signal.SIG_DFL,
    trace: bool = True,
) -> Iterator[subprocess.Popen[str]]:
    """A process that tells what it imports, whose SIGINT is handled like a shell leaves it."""
    prepare: Callable[[], object] = lambda: signal.signal(signal.SIGINT, interrupts)  # noqa: E731
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(PATH),
        "HOLDFAST_DATABASE_URL": f"sqlite:///{folder / 'jobs.db'}",
    }
    process = subprocess.Popen(
        [sys.executable, *(["-X", "importtime"] if trace else []), *command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=prepare,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupt_after(process: subprocess.Popen[str], module: str) -> list[str]:
    """Interrupt it when it has imported this module; answer what else it writes to the end."""
    assert process.stderr is not None
    for line in process.stderr:
        if line.rpartition("|")[2].strip() == module:
            process.send_signal(signal.SIGINT)
            break
    else:
        pytest.fail(f"it never imported {module}")
    left = process.communicate(timeout=PROGRAM_SECONDS_MAX)[1]
    return [line for line in left.split("\n") if line and not line.startswith("import time:")]
