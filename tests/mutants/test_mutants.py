"""Every promise's test sees the break that it is there for."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

import holdfast
from tests.conftest import ADDRESSES, TEMPLATE
from tests.mutants.guard import SOURCE
from tests.mutants.table import MUTANTS, SEVEN, Mutant
from tests.support.forks import ROOT, Nursery
from tests.support.postgres import Databases
from tests.support.processes import MODULES

pytestmark = pytest.mark.long

ENGINE = Path(holdfast.__file__).parent
RUN_SECONDS_MAX = 200
# What a break does may hang on who comes first among real processes, and on a busy machine none may
# come in time. The promises' own tests, which must not fail, have one try only.
LOOKS_MAX = 3
PLUGINS = (
    "pytest_asyncio.plugin",
    "pytest_timeout",
    "xdist.plugin",
    "no:cacheprovider",
    "tests.mutants.guard",
)
# All but the engine, of which every run imports another copy.
NURSERY = Nursery([str(ROOT)], ["asyncpg", "click", "msgspec", "pytest", "rich.table", "uvloop"])
# By an assertion: a test that ends in another error may have missed the break.
FAILED = re.compile(r"^FAILED \S+ - (AssertionError|assert|Failed: DID NOT RAISE)", re.MULTILINE)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the engine, to be broken."""
    source = tmp_path / "source"
    shutil.copytree(ENGINE, source / "holdfast")
    return source


@pytest.fixture
def surroundings(
    postgres_databases: Callable[[str], Databases], migrated_template: Callable[[str], str]
) -> dict[str, str]:
    """A server of this run, for the runs inside it, and what to copy there: to start another and to
    migrate takes longer."""
    return {
        ADDRESSES: json.dumps({"pg15": postgres_databases("pg15").url("")}),
        TEMPLATE: migrated_template("pg15"),
    }


class Run(NamedTuple):
    code: int
    output: str


def run_test(test: str, source: Path, surroundings: Mapping[str, str], wait_seconds: float) -> Run:
    """Run a test on this copy of the engine; what does not happen is not waited for long."""
    inherited = {key: value for key, value in os.environ.items() if "PYTEST" not in key}
    options = ["-q", "-rf", "--tb=line", "-n0", *[f"-p{plugin}" for plugin in PLUGINS]]
    variables = {
        **inherited,
        **surroundings,
        "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)]),
        SOURCE: str(source),
        # All the plugins that are installed would double the time of most runs.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "COLUMNS": "500",
        "HOLDFAST_TEST_FAST": "1",
        "HOLDFAST_TEST_WAIT_SECONDS": str(wait_seconds),
    }
    out, log = source.with_name("out"), source.with_name("log")
    command = ["pytest.__main__", *options, test]
    run = NURSERY.run_module(command, ROOT, variables, out, log, nursery=MODULES)
    try:
        code = run.wait(RUN_SECONDS_MAX)
    finally:
        run.kill()
    return Run(code, "".join(path.read_text(errors="replace") for path in (out, log)))


@pytest.mark.slow
def test_the_tests_pass_on_the_unbroken_copy(source: Path, surroundings: dict[str, str]) -> None:
    run = run_test(f"tests/promises/{SEVEN}", source, surroundings, wait_seconds=RUN_SECONDS_MAX)
    assert run.code == 0, run.output


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_mutant_is_caught_by_the_test_of_its_promise(
    mutant: Mutant, source: Path, surroundings: dict[str, str]
) -> None:
    file = source / "holdfast" / mutant.file
    text = file.read_text(encoding="utf-8")
    assert text.count(mutant.text) == 1, f"the text to replace is not (only once) in {mutant.file}"
    file.write_text(text.replace(mutant.text, mutant.replacement), encoding="utf-8")
    if "migrations" in mutant.file:
        del surroundings[TEMPLATE]
    test = f"tests/promises/{mutant.test_file}::{mutant.test}"
    for _ in range(LOOKS_MAX):
        run = run_test(test, source, surroundings, mutant.wait_seconds)
        if is_seen(run):
            return
    pytest.fail(f"the break was not seen:\n{run.output}")


def is_seen(run: Run) -> bool:
    return run.code == 1 and "1 failed" in run.output and bool(FAILED.search(run.output))
