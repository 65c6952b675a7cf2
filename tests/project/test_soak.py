"""The long run, tried in short: its parts run, print what they promise, and end with 0."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support.forks import ROOT
from tests.support.postgres import system_binaries
from tests.support.services import EVERYWHERE, missing

pytestmark = pytest.mark.heavy

SECONDS_MAX = 200


def run(module: str, *arguments: str) -> str:
    environment = {key: value for key, value in os.environ.items() if "HOLDFAST_" not in key}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_the_bench_of_the_history_compares_an_empty_database_with_a_full_one(store: str) -> None:
    if store == "postgresql" and system_binaries() is None:
        missing("PostgreSQL is not installed")
    table = run("bench.history", "--jobs=20000", "--drain=200", "--rounds=1", f"--stores={store}")
    assert f"| {store} | 5,000 finished jobs behind, ms | 20,000, ms | ratio |" in table
    rows = re.findall(r"^\| ([\w: -]+) \| [\d.]+ \| [\d.]+ \| [\d.]+ \|$", table, re.MULTILINE)
    assert {"start-up", "claim of 100", "list: all", "counts", "get", "drain"} <= set(rows)


def test_make_soak_runs_all_of_it() -> None:
    script = (ROOT / "scripts/soak").read_text(encoding="utf-8")
    assert re.findall(r"^python -m ([\w.]+)", script, re.M) == ["bench.history", "chaos"]
    assert re.search(
        r"^HOLDFAST_TEST_SCHEDULES=\d{4} pytest .* tests/testing/test_simulation.py$", script, re.M
    )
    assert re.search(r"^HOLDFAST_TEST_EXAMPLES=\d{4} pytest .* -m hypothesis$", script, re.M)
    assert re.search(rf"^{EVERYWHERE}=1 pytest [^/]*$", script, re.M)
    assert re.search(r"^scripts/lowest --whole$", script, re.M)
    assert "scripts/soak" in (ROOT / "Makefile").read_text(encoding="utf-8")
