"""The processes of the tests: a quick copy is what a new interpreter would be."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support import forks
from tests.support.processes import Process

COPY_ONLY = pytest.mark.skipif(not forks.CAN_COPY, reason="there are no copies here")
SURROUNDINGS = ["-m", "tests.support.surroundings", "a", "word"]


def found_by(process: Process) -> dict[str, Any]:
    assert process.wait() == 7, process.text
    assert process.text == "told\n"
    found: dict[str, Any] = json.loads(process.printed)
    return found


@COPY_ONLY
def test_a_copy_finds_what_a_new_interpreter_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert forks.fit_for_a_copy(SURROUNDINGS, {"CHOSEN": "x"})
    found_by(Process("first", SURROUNDINGS, tmp_path, {}))
    monkeypatch.delenv("HOME", raising=False)  # which the process to be copied has had
    copy = found_by(Process("copy", SURROUNDINGS, tmp_path, {"CHOSEN": "x"}))
    # With an option of the interpreter it is no copy.
    new = found_by(Process("new", ["-X", "utf8", *SURROUNDINGS], tmp_path, {"CHOSEN": "x"}))
    assert copy == new


@COPY_ONLY
def test_a_copy_ends_by_a_signal(tmp_path: Path, local_url: str) -> None:
    worker = ["-m", "holdfast.cli.main", "worker", "tests.worker.child_jobs:hf"]
    process = Process("copy", worker, tmp_path, {"HOLDFAST_DATABASE_URL": local_url})
    assert process.code is None
    process.signal(signal.SIGKILL)
    assert process.wait() == process.code == -signal.SIGKILL
    process.kill()


def test_what_only_a_new_interpreter_can_do_gets_one() -> None:
    assert not forks.fit_for_a_copy(["-m", "holdfast.cli.main"], {"LD_PRELOAD": "libfaketime.so"})
    assert not forks.fit_for_a_copy(["-m", "holdfast.cli.main"], {"PYTHONHASHSEED": "1"})
    assert not forks.fit_for_a_copy(["script.py"], {})
    assert not forks.fit_for_a_copy(["-P", "-m", "holdfast.cli.main"], {})
