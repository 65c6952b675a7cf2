"""What waits and what has ended slows nothing on SQLite: plans, and the steps that they take."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest

from holdfast import Holdfast
from holdfast.domain.job import Filter
from holdfast.domain.limits import AHEAD_COUNTED_MAX, PAGE_LOOK_MAX
from holdfast.domain.states import State
from holdfast.runtime.seam import Seam
from holdfast.stores.sqlite import SqliteStore, queries
from holdfast.stores.sqlite.rows import SQL
from holdfast.testing import VirtualTime
from holdfast.testing.conformance.harness import (
    claim,
    claim_suspect,
    enqueue,
    new_job,
    recorded,
    success,
)
from holdfast.testing.conformance.probes import probe

pytestmark = pytest.mark.heavy

ROWS = 5 * PAGE_LOOK_MAX
FAR = 2**52
HELD = 2**63 - 1
NUMBERS = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :rows)
"""
FILL = (
    NUMBERS
    + """
INSERT INTO jobs (id, name, queue, priority, arguments, max_attempts, run_at, created_at, state,
    finished_at, breaker, held_run_at)
SELECT printf('00000000-0000-7000-%04x-%012x', :series, n), :name, 'queue ' || (n % :queues),
    :priority, '{}', 5, :run_at, 0, :state, CASE :state WHEN 'queued' THEN NULL ELSE 0 END,
    :breaker, CASE :run_at WHEN 9223372036854775807 THEN 0 END
FROM numbers
"""
)
FILL_BREAKERS = (
    NUMBERS
    + """
INSERT INTO breakers (key, window_seconds, probe_seconds, opened_at, next_probe_at, changed_at)
SELECT 'key ' || n, 30, 10, CASE WHEN n <= :open THEN 0 END,
    CASE WHEN n <= :open THEN :next_probe_at END, 0
FROM numbers
"""
)
FILL_HISTORY = (
    NUMBERS
    + """
INSERT INTO history (id, kept_until, state, queue, name, tenant, correlation_id, tags, priority,
    attempt, max_attempts, snoozes, releases, crashes, fence, run_at, created_at, finished_at,
    arguments)
SELECT printf('00000000-0000-7000-8000-%012x', n), :kept_until, :state, 'queue', 'job', :tenant,
    :correlation_id, '[]', 0, 1, 5, 0, 0, 0, 2, 0, 0, 0, '{}'
FROM numbers
"""
)
# Running jobs, suspects and leftovers are few: they may be read whole.
UNFIT = re.compile(
    r"SCAN (history|attempts|idempotency_keys)\b|USE TEMP B-TREE FOR ORDER BY"
    r"|SCAN jobs(?! USING (COVERING )?INDEX jobs_(leased|suspects|leftovers))"
)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


async def opened(path: str, seam: Seam | None = None) -> SqliteStore:
    store = SqliteStore(path, seam or Seam())
    await store.open()
    return store


def fill(path: str, **changes: object) -> None:
    rows = {"rows": ROWS, "queues": 1, "priority": 0, "name": "job", "run_at": FAR}
    defaults = {**rows, "series": 1, "state": "queued", "breaker": None}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(FILL, {**defaults, **changes})


def fill_breakers(path: str, *, known: int, open: int, next_probe_at: int = 0) -> None:
    rows = {"rows": known, "open": open, "next_probe_at": next_probe_at}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(FILL_BREAKERS, rows)


def fill_history(path: str, **changes: object) -> None:
    rows = {"rows": ROWS, "state": "succeeded", "tenant": None, "correlation_id": None}
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(FILL_HISTORY, {**rows, "kept_until": FAR, **changes})


class Counting(VirtualTime):
    """Counts the thousands of steps of SQLite's machine: the same number on every computer."""

    def __init__(self) -> None:
        super().__init__()
        self.thousands = 0

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        connection = super().connect_sqlite(path)
        connection.set_progress_handler(self._count, 1000)
        return connection

    def _count(self) -> int:
        self.thousands += 1
        return 0


async def work(store: SqliteStore) -> None:
    """Use all verbs of a worker."""
    await store.enqueue([new_job(priority=9) for _ in range(10)])
    await store.enqueue([new_job(priority=9, max_attempts=1)])
    jobs = await claim(store, 11)
    assert len(jobs) == 11
    await store.renew([job.lease for job in jobs], 30.0)
    assert await store.awaited(["job"], None, 5)
    await store.settle([success(job) for job in jobs[:10]])
    assert len(await store.reclaim(100, "worker", "died")) == 1
    assert await store.suspects(["job"], None) == 1
    suspect = await claim_suspect(store)
    assert suspect is not None
    await store.settle([success(suspect)])
    assert not await store.awaited(["job"], None, 5)
    assert await store.unknown_names(["job"], None) == []
    assert await store.reclaim(100) == []


@pytest.mark.parametrize(
    "backlog",
    [
        {"priority": -5},
        {"run_at": FAR},
        {"queues": 200},
        {"state": "succeeded"},
        {"state": "dead"},
    ],
    ids=["better but not due", "not due", "not due in 200 queues", "succeeded", "dead"],
)
async def test_what_waits_or_ended_in_place_does_not_slow_the_verbs_of_a_worker(
    path: str, backlog: dict[str, object]
) -> None:
    seam = Counting()
    store = await opened(path, seam)
    fill(path, **backlog)
    seam.thousands = 0
    await work(store)
    assert seam.thousands < 80
    await store.close()


async def test_history_slows_neither_the_start_nor_the_verbs_of_a_worker_nor_upkeep(
    path: str,
) -> None:
    await (await opened(path)).close()
    fill_history(path)
    seam = Counting()
    store = await opened(path, seam)
    await work(store)
    assert await store.tidy(100) == 0
    assert await store.counts() != []
    assert seam.thousands < 10
    await store.close()


async def test_jobs_that_nobody_here_knows_are_passed_over_in_the_index(path: str) -> None:
    seam = Counting()
    store = await opened(path, seam)
    fill(path, name="unknown", run_at=0)
    await enqueue(store)
    seam.thousands = 0
    assert len(await claim(store, 10)) == 1
    assert seam.thousands < 600
    await store.close()


async def test_jobs_that_a_breaker_holds_slow_nobody(path: str) -> None:
    seam = Counting()
    store = await opened(path, seam)
    fill(path, rows=100_000, priority=-5, breaker="key 1", run_at=HELD)
    fill_breakers(path, known=5000, open=1000, next_probe_at=FAR)
    seam.thousands = 0
    await work(store)
    assert (await store.park(1000)).moved == 0
    assert await probe(store) == []
    assert await store.tidy(10) == 10
    assert seam.thousands < 150
    await store.close()


async def test_due_jobs_of_an_open_breaker_are_read_over_until_they_are_held_and_not_again(
    path: str,
) -> None:
    seam = Counting()
    store = await opened(path, seam)
    fill(path, rows=PAGE_LOOK_MAX, priority=-5, breaker="key 1", run_at=0)
    fill_breakers(path, known=2, open=1)
    await enqueue(store)
    seam.thousands = 0
    assert len(await claim(store, 10)) == 1
    assert seam.thousands < PAGE_LOOK_MAX // 1000 * 40
    seam.thousands = 0
    steps = [(await store.park(PAGE_LOOK_MAX // 2)).moved for _ in range(3)]
    assert steps == [PAGE_LOOK_MAX // 2] * 2 + [0]
    assert seam.thousands < PAGE_LOOK_MAX // 1000 * 250
    seam.thousands = 0
    await enqueue(store)
    assert len(await claim(store, 10)) == 1
    assert (await store.park(10)).moved == 0
    assert seam.thousands < 5
    await store.close()


async def test_a_step_of_holding_or_letting_go_touches_no_more_than_its_limit(path: str) -> None:
    seam = Counting()
    store = await opened(path, seam)
    fill(path, rows=PAGE_LOOK_MAX, breaker="key 1", run_at=HELD)
    fill(path, rows=PAGE_LOOK_MAX, series=2, breaker="key 2", run_at=0)
    fill_breakers(path, known=2, open=2)
    seam.thousands = 0
    assert (await store.park(100)).moved == 100
    assert await store.close_breaker("key 1")
    assert await store.close_breaker("key 2")
    assert (await store.park(100)).moved == 100
    assert seam.thousands < 60
    await store.close()


async def test_the_next_probe_is_found_without_a_look_at_the_others(path: str) -> None:
    seam = Counting()
    store = await opened(path, seam)
    fill(path, rows=PAGE_LOOK_MAX, breaker="key 1", run_at=HELD)
    fill_breakers(path, known=5000, open=1000)
    seam.thousands = 0
    (first,) = await probe(store)
    assert seam.thousands < 80
    seam.advance(11)
    (second,) = await probe(store)
    assert (first.id.int % 2**32, second.id.int % 2**32) == (PAGE_LOOK_MAX, 1)
    assert seam.thousands < 160
    await store.close()


async def test_held_jobs_that_nobody_here_knows_are_passed_over_in_the_index(path: str) -> None:
    seam = Counting()
    store = await opened(path, seam)
    fill(path, rows=PAGE_LOOK_MAX, name="unknown", breaker="key 1", run_at=HELD)
    fill_breakers(path, known=1, open=1)
    seam.thousands = 0
    assert await probe(store) == []
    assert not await store.awaited(["job"], None, 60)
    assert seam.thousands < PAGE_LOOK_MAX // 1000 * 25
    await store.close()


async def test_a_paused_queue_and_a_full_one_are_passed_over_whole(path: str) -> None:
    seam = Counting()
    store = await opened(path, seam)
    fill(path, rows=PAGE_LOOK_MAX, queues=2, run_at=0, priority=-5)
    await store.pause("queue 0", None, None)
    await store.cap("queue 1", 0)
    await enqueue(store)
    seam.thousands = 0
    assert len(await claim(store, 10)) == 1
    assert seam.thousands < 5
    await store.close()


@pytest.mark.parametrize(
    "backlog",
    [{"priority": -5}, {"queues": 200}, {"priority": -5, "run_at": 0}, {"run_at": 0}],
    ids=["better but not due", "not due in 200 queues", "better and due", "due"],
)
async def test_why_a_job_waits_is_told_from_a_bounded_look(
    path: str, backlog: dict[str, object]
) -> None:
    seam = Counting()
    store = await opened(path, seam)
    fill(path, **backlog)
    job_id = await enqueue(store, queue="queue 0")
    seam.thousands = 0
    found = await store.circumstances(job_id)
    assert found is not None
    assert found.ahead == (AHEAD_COUNTED_MAX + 1 if backlog.get("run_at") == 0 else 0)
    assert seam.thousands < 80
    await store.close()


async def test_a_search_looks_no_further_than_it_may(path: str) -> None:
    await (await opened(path)).close()
    fill_history(path)
    async with Holdfast(f"sqlite:///{path}") as hf:
        nobodys = Filter(queue="nobody's")
        page = await hf.jobs.list(nobodys, look_max=PAGE_LOOK_MAX)
        assert (page.jobs, page.after and page.after.int % 2**32) == ([], ROWS - PAGE_LOOK_MAX + 1)
        page = await hf.jobs.list(nobodys, after=page.after, look_max=2 * PAGE_LOOK_MAX)
        assert (page.jobs, page.after and page.after.int % 2**32) == (
            [],
            ROWS - 3 * PAGE_LOOK_MAX + 1,
        )
        assert await hf.jobs.list(nobodys) == ([], None)


@pytest.mark.parametrize(
    ("filter", "thousands_max"),
    [
        (Filter(), 6),
        (Filter(states=(State.QUEUED,)), 5),
        (Filter(states=(State.DEAD,)), 5),
        (Filter(tenant="tenant"), 5),
        (Filter(correlation_id="request"), 5),
        (Filter(parent_id=UUID(int=7)), 5),
        (Filter(tag="nowhere"), 600),
        (Filter(states=(State.SUCCEEDED,), name="nowhere"), 600),
    ],
    ids=["all", "live", "dead", "tenant", "request", "parent", "tag", "name"],
)
async def test_a_step_of_a_list_looks_at_a_bounded_number_of_ended_jobs(
    path: str, filter: Filter, thousands_max: int
) -> None:
    await (await opened(path)).close()
    fill_history(path)
    seam = Counting()
    store = await opened(path, seam)
    live = await enqueue(store, tenant="tenant", correlation_id="request")
    assert (await recorded(store, live)).id == live
    seam.thousands = 0
    page = await store.page(filter, 100)
    assert seam.thousands < thousands_max
    assert len(page.jobs) <= 100
    await store.close()


def plans(connection: sqlite3.Connection) -> Iterator[tuple[str, list[str]]]:
    """The plan of every statement, by its name."""
    pieces = {"enqueue", "page_edge", "page_edge_tenant", "page_matching", *queries.PAGES}
    statements = {
        name: (statement.sql, statement.parameters)
        for name, statement in SQL.items()
        if name not in pieces
    }
    for source, page in queries.PAGES.items():
        for name in ("edge", "edge_tenant", "matching"):
            parameters = (*SQL[source].parameters, *SQL[f"page_{name}"].parameters)
            statements[f"{source}: {name}"] = (getattr(page, name), parameters)
    for name, (sql, parameters) in statements.items():
        rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", dict.fromkeys(parameters, "1"))
        yield name, [row[3] for row in rows]


@pytest.mark.parametrize("analysed", ["never", "while empty", "when full"])
async def test_no_statement_scans_or_sorts_what_can_be_many(path: str, analysed: str) -> None:
    await (await opened(path)).close()
    connection = sqlite3.connect(path)
    if analysed == "while empty":
        connection.execute("ANALYZE")
    fill(path)
    fill(path, series=2, state="succeeded")
    fill_history(path, tenant="t", correlation_id="c")
    if analysed == "when full":
        connection.execute("ANALYZE")
    found = {name: [line for line in plan if UNFIT.match(line)] for name, plan in plans(connection)}
    connection.close()
    assert {name: lines for name, lines in found.items() if lines} == {
        "counts": ["SCAN jobs USING INDEX jobs_due"],
        "counts_tenant": ["SCAN jobs"],
        "counts_waiting_tenant": ["SCAN jobs USING INDEX jobs_due"],  # up to its limit
        "queues": ["SCAN jobs USING INDEX jobs_due"],
        "attempts": ["USE TEMP B-TREE FOR ORDER BY"],  # the one that succeeded, after the others
        "workers": ["USE TEMP B-TREE FOR ORDER BY"],  # they are few
        "breakers": ["USE TEMP B-TREE FOR ORDER BY"],  # so are they
        "vital_lanes": ["USE TEMP B-TREE FOR ORDER BY"],  # and these
        "vital_paused": ["USE TEMP B-TREE FOR ORDER BY"],
        "vital_capped": ["USE TEMP B-TREE FOR ORDER BY"],
        # As many as their limit says, from the end.
        "newest_ended": ["SCAN history"],
        "ended_last": ["SCAN history"],
        "vital_ends": ["SCAN history"],
        "vital_failures": ["SCAN history USING INDEX history_unsuccessful"],
    }


async def test_the_bound_of_a_list_is_found_in_an_index_alone(path: str) -> None:
    """A look at the table for each of ten thousand ended jobs takes a hundred times as long."""
    await (await opened(path)).close()
    with closing(sqlite3.connect(path)) as connection:
        found = dict(plans(connection))
    for source in ("page_unsuccessful", "page_tenant", "page_correlation", "page_parent"):
        assert "USING COVERING INDEX" in found[f"{source}: edge"][0]
