"""The hot statements stay on their indexes on a million rows, whatever the statistics say.

Each is explained as it runs: prepared, with a generic plan. 200 queues of two priorities hold
300,000 due jobs, behind 100,000 of a better priority that are not due yet, among 600,000 ended
ones. `stale` statistics were gathered while the table was empty.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from uuid import UUID

import asyncpg
import pytest

from holdfast.seam import Seam
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.store import STATEMENTS
from tests.conftest import SERVERS
from tests.support.postgres import Databases

ROWS = 1_000_000
LANES = 600
QUEUES = [f"queue {number}" for number in range(200)]

FILL = f"""
INSERT INTO holdfast.jobs (
    id, name, queue, priority, arguments, max_attempts, attempt, fence, state, run_at,
    lease_owner, lease_expires_at, finished_at, tenant
)
SELECT
    (lpad(to_hex(i), 12, '0') || '-7000-8000-000000000000')::uuid, 'resize', 'queue ' || i % 200,
    CASE WHEN kind < 100 THEN -10 ELSE i / 200 % 2 END,
    '{{"image": "a.png"}}', 5, CASE WHEN kind < 400 THEN 0 ELSE 1 END,
    CASE WHEN kind < 400 THEN 0 ELSE 1 END,
    CASE WHEN kind < 400 THEN 'queued' WHEN kind < 402 THEN 'running'
         WHEN kind < 404 THEN 'dead' ELSE 'succeeded' END,
    now() + make_interval(secs => CASE WHEN kind < 100 THEN 86400 ELSE i * 1e-6 - 60 END),
    CASE WHEN kind BETWEEN 400 AND 401 THEN 'worker' END,
    CASE kind WHEN 400 THEN now() - interval '1 s' WHEN 401 THEN now() + interval '1 day' END,
    CASE WHEN kind >= 402 THEN now() END,
    CASE WHEN i % 1000 = 7 THEN 'rare' END
FROM (
    SELECT i, (i::bigint * 7919) % 1000 AS kind FROM generate_series(1, {ROWS}) AS i
) AS numbered
"""


class Plan(NamedTuple):
    """What a statement read of the table of jobs."""

    rows: int
    indexes: set[str]
    seq_scans: int

    @classmethod
    def read(cls, root: dict[str, Any]) -> Plan:
        nodes = [node for node in _nodes(root) if node["Node Type"].endswith("Scan")]
        rows = sum(_rows(node) for node in nodes if node.get("Relation Name") == "jobs")
        seq_scans = sum(
            node["Node Type"] == "Seq Scan" and node["Relation Name"] == "jobs" for node in nodes
        )
        indexes = {
            node["Index Name"]
            for node in nodes
            if node.get("Index Name", "").startswith("jobs") and node["Actual Loops"]
        }
        return cls(rows, indexes, seq_scans)


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _rows(node: dict[str, Any]) -> int:
    removed = sum(node.get(f"Rows Removed by {cause}", 0) for cause in ("Filter", "Index Recheck"))
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])


def _literal(value: object) -> str:
    if isinstance(value, list):
        items = ["NULL" if item is None else json.dumps(str(item)) for item in value]
        value = "{" + ",".join(items) + "}"
    if value is None or isinstance(value, (int, float)):
        return "NULL" if value is None else str(value)
    return "'" + str(value).replace("'", "''") + "'"


async def _fill(url: str) -> None:
    store = PostgresStore(url, Seam())
    await store.migrate()
    await store.close()
    connection = await asyncpg.connect(url, command_timeout=120)
    await connection.execute("ALTER TABLE holdfast.jobs SET (autovacuum_enabled = false)")
    await connection.execute("ANALYZE holdfast.jobs")
    await connection.execute(FILL)
    await connection.close()


async def _analyze(url: str) -> None:
    connection = await asyncpg.connect(url, command_timeout=120)
    await connection.execute("ANALYZE holdfast.jobs")
    await connection.close()


@pytest.fixture(
    scope="module",
    params=[(server, statistics) for server in SERVERS for statistics in ("stale", "fresh")],
    ids="-".join,
)
def million_jobs(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    worker_id: str,
    postgres_databases: Callable[[str], Databases],
) -> tuple[str, Path]:
    """A filled database, made once for all processes of this run, and the file that they lock to
    have it to themselves."""
    server, statistics = request.param
    databases = postgres_databases(server)
    folder = tmp_path_factory.getbasetemp()
    folder = folder if worker_id == "master" else folder.parent
    path = folder / f"million jobs, {server}, {statistics}"
    with locked(path) as note:
        note.seek(0)
        name = note.read()
        if not name:
            name = databases.create()
            databases.run(_fill(databases.url(name)))
            if statistics == "fresh":
                databases.run(_analyze(databases.url(name)))
            note.write(name)
    return databases.url(name), path


@contextmanager
def locked(path: Path) -> Iterator[TextIO]:
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


class Explainer:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def explain(self, name: str, /, **values: object) -> Plan:
        """Explain a statement with the generic plan that the store runs it with."""
        statement = STATEMENTS[name]
        arguments = ", ".join(_literal(value) for value in statement.arguments(values))
        await self._connection.execute(f"PREPARE {name} AS {statement.sql}")
        call = f"{name}({arguments})" if arguments else name
        return await self._explain(f"EXECUTE {call}")

    async def explain_planned(self, name: str, /, **values: object) -> Plan:
        """Explain a statement with a plan for these values."""
        statement = STATEMENTS[name]
        return await self._explain(statement.sql, *statement.arguments(values))

    async def _explain(self, sql: str, *arguments: object) -> Plan:
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            answer = await self._connection.fetchval(
                f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *arguments
            )
        finally:
            await transaction.rollback()
        return Plan.read(json.loads(answer)[0]["Plan"])

    async def ids(self, state: str, count: int) -> list[UUID]:
        rows = await self._connection.fetch(
            "SELECT id FROM holdfast.jobs WHERE state = $1 ORDER BY id LIMIT $2", state, count
        )
        return [row["id"] for row in rows]


@pytest.fixture
async def database(million_jobs: tuple[str, Path]) -> AsyncIterator[Explainer]:
    url, path = million_jobs
    with locked(path):
        connection = await asyncpg.connect(url, command_timeout=60)
        await connection.execute("SET jit = off; SET plan_cache_mode = force_generic_plan")
        yield Explainer(connection)
        await connection.close()


def assert_bounded(plan: Plan, indexes: set[str], rows_max: int) -> None:
    assert plan.seq_scans == 0
    assert plan.indexes == indexes
    assert plan.rows <= rows_max


@pytest.mark.parametrize("queues", [None, QUEUES[:10], QUEUES[:1]], ids=["any", "ten", "one"])
@pytest.mark.parametrize("limit", [1, 100, 500])
async def test_a_claim_reads_its_lanes_and_no_more_jobs_than_it_takes(
    database: Explainer, queues: list[str] | None, limit: int
) -> None:
    plan = await database.explain(
        "claim",
        queues=queues,
        except_queues=[],
        worker="worker",
        lease_seconds=30,
        last_queue="",
        names=["resize"],
        limit=limit,
    )
    lanes = LANES if queues is None else 3 * len(queues)
    assert_bounded(plan, {"jobs_ready", "jobs_pkey"}, 2 * lanes + 2 * limit)


async def test_a_claim_that_goes_on_reads_no_more_jobs_than_it_takes(database: Explainer) -> None:
    plan = await database.explain(
        "claim_onwards",
        worker="worker",
        lease_seconds=30,
        lane_queues=QUEUES,
        lane_priorities=[0] * len(QUEUES),
        lane_run_at=["2020-01-01T00:00:00Z"] * len(QUEUES),
        lane_ids=[UUID(int=0)] * len(QUEUES),
        names=["resize"],
        limit=100,
    )
    assert_bounded(plan, {"jobs_ready", "jobs_pkey"}, 2 * 100)


async def test_a_sweep_reads_one_job_of_each_lane(database: Explainer) -> None:
    plan = await database.explain("lanes", queues=None, except_queues=[])
    assert_bounded(plan, {"jobs_ready"}, 2 * LANES)


async def test_settling_successes_reads_only_their_rows(database: Explainer) -> None:
    ids = await database.ids("running", 500)
    plan = await database.explain(
        "settle_succeeded", ids=ids, fences=[1] * len(ids), results=["null"] * len(ids)
    )
    assert_bounded(plan, {"jobs_pkey"}, len(ids))


async def test_settling_failures_reads_only_their_rows(database: Explainer) -> None:
    ids = await database.ids("running", 500)
    zeros = [0] * len(ids)
    plan = await database.explain(
        "settle",
        ids=ids,
        fences=[1] * len(ids),
        outcomes=["failed"] * len(ids),
        error_codes=["ERROR"] * len(ids),
        error_texts=["text"] * len(ids),
        states=["queued"] * len(ids),
        attempts_back=zeros,
        snoozed=zeros,
        released=zeros,
        delay_seconds=zeros,
        results=[None] * len(ids),
    )
    assert_bounded(plan, {"jobs_pkey"}, 2 * len(ids))


async def test_renewing_reads_only_the_leases(database: Explainer) -> None:
    ids = await database.ids("running", 1000)
    plan = await database.explain("renew", ids=ids, fences=[1] * len(ids), lease_seconds=30)
    assert_bounded(plan, {"jobs_pkey"}, 2 * len(ids))


async def test_reclaiming_reads_no_more_jobs_than_it_takes(database: Explainer) -> None:
    plan = await database.explain("reclaim", limit=100)
    assert_bounded(plan, {"jobs_leases", "jobs_pkey"}, 2 * 100)


async def test_reclaiming_looks_at_the_waiting_jobs_with_an_expiry_only(
    database: Explainer,
) -> None:
    plan = await database.explain("reclaim", limit=5000)
    assert_bounded(plan, {"jobs_leases", "jobs_expiring", "jobs_pkey"}, 2 * 1000)


async def test_canceling_reads_only_the_named_jobs(database: Explainer) -> None:
    ids = await database.ids("queued", 100)
    plan = await database.explain("cancel", ids=ids)
    assert_bounded(plan, {"jobs_pkey"}, 2 * len(ids))


@pytest.mark.parametrize("queues", [None, QUEUES[:1]], ids=["any", "one"])
async def test_asking_whether_jobs_are_awaited_reads_few(
    database: Explainer, queues: list[str] | None
) -> None:
    # No such name is running, so the answer is among the waiting.
    plan = await database.explain("awaited", queues=queues, names=["resize"], within_seconds=0)
    assert plan.seq_scans == 0
    assert plan.rows <= 2 * LANES


@pytest.mark.parametrize("queues", [None, QUEUES[:1]], ids=["any", "one"])
async def test_asking_for_unknown_names_reads_a_bounded_number(
    database: Explainer, queues: list[str] | None
) -> None:
    plan = await database.explain("unknown_names", queues=queues, names=["resize"])
    assert_bounded(plan, {"jobs_ready"}, 2 * LANES + 2000)


@pytest.mark.parametrize("name", ["claim_by_id", "progress", "retry", "requeue", "get"])
async def test_what_names_one_job_reads_one_row(database: Explainer, name: str) -> None:
    [job_id] = await database.ids("running" if name == "progress" else "queued", 1)
    plan = await database.explain(
        name,
        job_id=job_id,
        worker="worker",
        lease_seconds=30,
        progress="{}",
        fence=1,
        new_id=UUID(int=1),
    )
    assert_bounded(plan, {"jobs_pkey"}, 1)


@pytest.mark.parametrize(
    ("filters", "index"),
    [
        ({}, "jobs_pkey"),
        ({"after": UUID("00000007-a120-7000-8000-000000000000")}, "jobs_pkey"),
        ({"states": ["failed", "dead"]}, "jobs_unsuccessful"),
        ({"states": ["dead"]}, "jobs_unsuccessful"),
        ({"tenant": "rare"}, "jobs_tenant"),
    ],
    ids=["all", "after", "unsuccessful", "dead", "tenant"],
)
async def test_a_page_reads_no_more_jobs_than_it_shows(
    database: Explainer, filters: dict[str, object], index: str
) -> None:
    blank = dict.fromkeys(("after", "queue", "name", "tenant", "tag", "correlation_id"))
    values: dict[str, object] = {**blank, "states": [], "limit": 51, **filters}
    assert_bounded(await database.explain_planned("page", **values), {index}, 51)
