"""The second look at tests that failed beside others: see `docs/internals/testing.md`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forks import ROOT
from tests.support.processes import PROGRAM_SECONDS_MAX

pytestmark = pytest.mark.heavy

WARNING = "WARNING: failed beside others, passed alone:"
PASSES = "def test_that_passes(): pass"
STARVED = """
import pathlib, pytest

@pytest.mark.parametrize("number", range(%d))
def test_that_was_starved(number):
    seen = pathlib.Path(f"seen {number}")
    if not seen.exists():
        seen.touch()
        assert not "enough time"
"""
BROKEN = "def test_that_is_broken(): assert not 'right'"
UNREADABLE = "import nothing_of_this_name"
INTERRUPTS = """
import os, signal, threading

def test_that_interrupts():
    os.kill(os.getppid(), signal.SIGINT)
    threading.Event().wait()
"""


def run(folder: Path, *modules: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").touch()
    for number, text in enumerate(modules):
        (folder / f"test_{number}.py").write_text(text)
    inherited = {key: value for key, value in os.environ.items() if "PYTEST_" not in key}
    path = f"{Path(sys.executable).parent}{os.pathsep}{inherited['PATH']}"
    return subprocess.run(
        [ROOT / "scripts/look-twice", "-p", "xdist", "--numprocesses=1"],
        cwd=folder,
        env=inherited | {"PATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS_MAX,
        check=False,
    )


def test_tests_that_pass_alone_are_named_and_fail_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, PASSES, STARVED % 5)
    assert done.returncode == 0, done.stderr
    first, _, warned = done.stdout.partition(WARNING)
    shown = [line for line in first.splitlines() if line.startswith("E ") and "enough" in line]
    assert len(shown) == 5
    assert warned.split() == [f"test_1.py::test_that_was_starved[{number}]" for number in range(5)]


@pytest.mark.parametrize(
    "modules",
    [(STARVED % 1, BROKEN), (STARVED % 6,), (STARVED % 1, UNREADABLE), (STARVED % 1, INTERRUPTS)],
    ids=["fails again", "six failures", "not collected", "interrupted"],
)
def test_the_run_fails(tmp_path: Path, modules: tuple[str, ...]) -> None:
    done = run(tmp_path, PASSES, *modules)
    assert done.returncode in (1, 2), done.stderr
    assert "assert not 'enough time'" in done.stdout
    assert WARNING not in done.stdout
    looked_again = done.stdout.count("test session starts") == 2
    assert looked_again == (BROKEN in modules)
