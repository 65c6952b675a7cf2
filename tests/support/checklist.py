"""The page on which customers tick off what they asked for, and whether its tests have run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/systems/checklist.md"

_TEST = re.compile(r"`(tests/[\w/]+\.py::\w+(?:::\w+)?)`")


def named_tests(page: str) -> set[str]:
    """The tests that the page names, without parameters."""
    return set(_TEST.findall(page))


class Ran:
    """Fails a whole run in which a test that the page names did not pass."""

    def __init__(self) -> None:
        self._passed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.add(report.nodeid.partition("[")[0])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return  # the process that hears of all tests judges
        if missed := sorted(named_tests(PAGE.read_text(encoding="utf-8")) - self._passed):
            reporter = session.config.pluginmanager.get_plugin("terminalreporter")
            assert reporter is not None
            reporter.section("tests of docs/systems/checklist.md that did not pass", red=True)
            for test in missed:
                reporter.line(test)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
