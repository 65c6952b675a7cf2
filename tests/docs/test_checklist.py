"""Every line of the checklist says where it is built and which test guards it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.checklist import PAGE, named_tests

pytest_plugins = ["pytester"]

ROOT = PAGE.parents[2]
TEXT = PAGE.read_text(encoding="utf-8")
_BAR = re.compile(r"(?<!\\)\|")
SYSTEMS = ("Passport", "Webhooks", "Convert", "Compute", "Documents")


def rows() -> Iterator[tuple[str, list[str]]]:
    """Yield the cells of each line of the tables, with its system."""
    system = ""
    for line in TEXT.splitlines():
        if line.startswith("## "):
            system = line[3:].partition(":")[0]
        elif line.startswith("| ") and not line.startswith("| Asked"):
            yield system, [cell.strip() for cell in _BAR.split(line.strip("|"))]


@cache
def names_in(path: str) -> set[str]:
    """The names of the tests in a file, with their class if they have one."""
    names = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for each in inside:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(f"{prefix}{each.name}")
    return names


def test_every_system_has_its_lines() -> None:
    counted = [system for system, _ in rows()]
    assert all(counted.count(system) >= 10 for system in SYSTEMS), counted


def test_every_line_names_a_place_and_a_test() -> None:
    for system, cells in rows():
        assert len(cells) == 4, f"{system}: {cells}"
        asked, built, guarded, _ = cells
        assert asked
        places = re.findall(r"`([\w./-]+)`", built)
        assert places, f"{system}: {asked} is built nowhere"
        for place in places:
            assert (ROOT / place).exists(), f"{system}: {asked}: there is no {place}"
        assert named_tests(guarded), f"{system}: {asked} has no test"


@pytest.mark.parametrize("test", sorted(named_tests(TEXT)))
def test_a_named_test_exists(test: str) -> None:
    path, _, name = test.partition("::")
    assert Path(ROOT / path).is_file()
    assert name in names_in(path)


def test_a_whole_run_without_a_named_test_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(
        "from tests.support.checklist import Ran\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(Ran(), 'checklist')\n"
    )
    pytester.makepyfile("def test_another(): pass")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["*checklist.md that did not pass*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
