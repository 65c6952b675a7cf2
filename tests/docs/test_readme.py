"""The first job in the README is complete: its commands, run as written, print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forks import ROOT

pytestmark = pytest.mark.heavy

README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST = re.compile(
    r"^```python\n(?P<tasks>.*?)^```$.*?^```console\n(?P<session>.*?)^```$", re.M | re.S
)
JOB_ID = re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
# The last column of a table: `relative` in holdfast/domain/times.py.
WHEN = re.compile(r"(?<=  )(now|in \d+ \w+|\d+ \w+ ago) *$")


def shape(output: str) -> list[list[str]]:
    """Split the lines into words, and replace IDs and relative times, which differ in each run."""
    return [WHEN.sub("*", JOB_ID.sub("*", line)).split() for line in output.strip().splitlines()]


@pytest.mark.parametrize("when", ["now", "6 s ago", "12 min ago", "in 3 h"])
def test_a_relative_time_of_any_form_has_the_same_shape(when: str) -> None:
    assert shape(f"succeeded  resize  1/5    {when}") == [["succeeded", "resize", "1/5", "*"]]


def test_only_relative_times_are_replaced() -> None:
    assert shape("queued now") == [["queued", "now"]]


def test_the_first_job_prints_what_the_readme_shows(tmp_path: Path) -> None:
    first = FIRST.search(README)
    assert first is not None
    (tmp_path / "tasks.py").write_text(first["tasks"], encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for step in re.split(r"^\$ ", first["session"], flags=re.MULTILINE)[1:]:
        command, _, shown = step.partition("\n")
        ran = subprocess.run(
            command.split(),
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        assert shape(ran.stdout) == shape(shown), command
