"""How long each area of the tests took, and which exceeded its budget.

An area is a folder in tests/ (one per system in tests/systems/), or a test file directly there.
More tests run in parallel than there are cores. A budget is for the sum of their seconds.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict

import pytest

BUDGET_SECONDS = 45.0
BUDGETS_SECONDS: dict[str, float] = {
    "api/": 330.0,
    "browser/": 300.0,
    "cli/": 300.0,
    "dashboard/": 900.0,
    "mutants/": 270.0,
    "observability/": 90.0,
    "operations/": 160.0,
    "project/": 270.0,
    "promises/": 490.0,
    "servicebus_local/": 300.0,
    "stores/": 300.0,
    "systems/": 90.0,
    "systems/compute/": 270.0,
    "systems/convert/": 240.0,
    "systems/documents/": 120.0,
    "systems/passport/": 180.0,
    "testing/": 90.0,
    "transactions/": 120.0,
    "wakeups/": 560.0,
    "webhooks/": 240.0,
    "worker/": 300.0,
}


class Times:
    """Adds up what each area's tests took, and reports it at the end."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        area = area_of(report.nodeid)
        self._seconds[area] += report.duration
        self._tests[area] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        checks = float(os.environ.get("HOLDFAST_CHECKS_SECONDS", "0"))
        tests = time.monotonic() - self._started
        terminalreporter.section("time by area")
        for area, seconds in sorted(self._seconds.items(), key=lambda item: -item[1]):
            budget = BUDGETS_SECONDS.get(area, BUDGET_SECONDS)
            over = f"  OVER its budget of {budget:.0f} s" if seconds > budget else ""
            terminalreporter.line(f"{area:40}{self._tests[area]:6} tests{seconds:8.1f} s{over}")
        terminalreporter.line(
            f"checks {checks:.1f} s, tests {tests:.1f} s, in all {checks + tests:.1f} s"
        )


def area_of(nodeid: str) -> str:
    path = nodeid.partition("::")[0].removeprefix("tests/")
    folders = path.split("/")[:-1]
    if not folders:
        return path.removesuffix(".py")
    return "/".join(folders[: 2 if folders[0] == "systems" else 1]) + "/"
