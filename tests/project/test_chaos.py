"""The run that breaks everything at random, in short, and what its judge sees."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from chaos.app import CAPPED
from chaos.judge import Account, Row, judge
from chaos.ledger import Entry
from tests.support.forks import ROOT
from tests.support.postgres import WRITTEN, system_binaries
from tests.support.services import missing

pytestmark = pytest.mark.long

SECONDS = 20
SECONDS_MAX = 280
KEPT = re.compile(r"^\| (sqlite|postgresql) \| \d\d+ \| [\d.]+ s \| 0 \| 0 \| 0 \| 0 \|$", re.M)


@pytest.mark.slow
def test_chaos_on_both_stores_breaks_no_promise() -> None:
    if system_binaries() is None:
        missing("PostgreSQL is not installed")
    environment = {
        key: value for key, value in os.environ.items() if "HOLDFAST_" not in key or key == WRITTEN
    }
    done = subprocess.run(
        [sys.executable, "-m", "chaos", f"--seconds={SECONDS}", "--light"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert KEPT.findall(done.stdout) == ["sqlite", "postgresql"]
    assert done.stdout.endswith("every promise was kept\n")


def row(**changes: Any) -> Row:
    """A job that succeeded at its first attempt."""
    whole = Row(
        id="job",
        name="work",
        queue="default",
        state="succeeded",
        fence=2,
        attempt=1,
        max_attempts=2,
        releases=0,
        snoozes=0,
        crashes=0,
        request="1-1",
        key=None,
        requeued_from=None,
        early=False,
        result_fence=1,
        progress_fence=1,
        ordered=None,
    )
    return whole._replace(**changes)


def entry(what: str, at: float = 0.0, **fields: Any) -> Entry:
    return Entry(what=what, at=at, pid=1, **fields)


def run(fence: int = 1, *, at: float = 1.0, job: str = "job", how: str = "ok") -> list[Entry]:
    """A run of a handler; one that ended `died` has left no line."""
    ended = [entry("end", at + 1, job=job, fence=fence, how=how)] if how != "died" else []
    return [entry("start", at, job=job, fence=fence), *ended]


ASK = entry("ask", request="1-1", jobs=1)
TOLD = entry("told", request="1-1", ids=["job"])
WHOLE = [ASK, TOLD, *run()]


def found(
    entries: list[Entry],
    rows: list[Row],
    payments: list[tuple[str, int]] | None = None,
    orders: list[str] | None = None,
) -> set[tuple[str, int]]:
    account = Account(entries, rows, payments or [], orders or [])
    return {(finding.kind, finding.promise) for finding in judge(account)}


def test_the_judge_finds_nothing_where_nothing_is_wrong() -> None:
    assert found(WHOLE, [row()]) == set()
    lost_once = [ASK, TOLD, *run(1, how="died"), *run(3, at=5)]
    assert found(lost_once, [row(fence=4, attempt=2, result_fence=3, progress_fence=3)]) == set()
    assert found([*WHOLE, entry("ask", request="1-2", jobs=3)], [row()]) == set()
    assert found([ASK, TOLD, *run()], [row(name="pay")], [("job", 1)]) == set()


def test_the_judge_catches_lost_jobs() -> None:
    assert ("lost", 1) in found([ASK, TOLD], [])
    requeued = entry("requeued", ids=["other"])
    assert found([*WHOLE, requeued], [row()]) == {("lost", 1)}
    batch = entry("ask", request="1-1", jobs=2)
    assert found([batch, *run()], [row()]) == {("lost", 1)}


def test_the_judge_catches_doubled_jobs() -> None:
    assert ("doubled", 7) in found(WHOLE, [row(), row()])
    assert found([*WHOLE, *run()], [row()]) == {("doubled", 2)}
    paid_twice = [("job", 1), ("job", 1)]
    assert found(WHOLE, [row(name="pay")], paid_twice) == {("doubled", 4)}
    keyed = [entry("ask", request=f"1-{n}", jobs=1, key="k") for n in (1, 2)]
    rows = [row(key="k"), row(id="other", request="1-2", key="k")]
    assert found([*keyed, *run(), *run(job="other")], rows) == {("doubled", 10)}


def test_the_judge_catches_stuck_jobs() -> None:
    assert found([ASK, TOLD], [row(state="queued")]) == {("stuck", 5)}


@pytest.mark.parametrize(
    ("wrong", "promise"),
    [
        (row(state="dead"), 6),
        (row(result_fence=3), 3),
        (row(progress_fence=-1), 3),
        (row(fence=4, result_fence=3, progress_fence=3), 3),
        (row(name="pay"), 4),
        (row(name="pay", state="canceled"), 6),
        (row(name="order"), 4),
        (row(name="kill"), 6),
        (row(early=True), 8),
    ],
)
def test_the_judge_catches_a_wrong_row(wrong: Row, promise: int) -> None:
    assert found(WHOLE, [wrong]) == {("wrong", promise)}


def test_the_judge_catches_what_contradicts_the_clients() -> None:
    canceled = [entry("cancel", job="job"), entry("canceled", job="job")]
    assert found([*WHOLE, *canceled], [row()]) == {("wrong", 7)}
    seen = entry("seen", job="job", how="failed", fence=2)
    assert found([*WHOLE, seen], [row()]) == {("wrong", 7)}
    assert found([ASK, entry("undone", request="1-1"), *run()], [row()]) == {("wrong", 1)}
    delayed = entry("ask", request="1-1", jobs=1, delay_seconds=10)
    assert found([delayed, TOLD, *run()], [row()]) == {("wrong", 8)}
    assert found(WHOLE, [row()], orders=["1-1", "1-1"]) == {("wrong", 1)}
    assert found([*WHOLE, entry("surprise", how="KeyError()")], [row()]) == {("wrong", 13)}


def test_the_judge_catches_an_end_without_its_handler() -> None:
    assert found([ASK, TOLD, *run(how="died")], [row()]) == {("wrong", 3)}
    assert found([ASK, TOLD, *run(how="ValueError")], [row()]) == {("wrong", 3)}


def test_the_judge_catches_too_many_starts() -> None:
    starts = [each for n in range(4) for each in run(2 * n + 1, at=3 * n)]
    last = row(fence=8, result_fence=7, progress_fence=7)
    assert found([ASK, TOLD, *starts], [last]) == {("wrong", 6)}


def test_the_judge_catches_a_queue_beyond_its_cap() -> None:
    rows = [row(id=str(n), name="work_under_a_cap", queue=CAPPED) for n in range(3)]
    batch = entry("ask", request="1-1", jobs=3)
    beside = [each for n in range(3) for each in run(job=str(n), at=1 + n / 10)]
    assert found([batch, *beside], rows) == {("wrong", 2)}
    in_turn = [each for n in range(3) for each in run(job=str(n), at=1 + 2 * n)]
    assert found([batch, *in_turn], rows) == set()
