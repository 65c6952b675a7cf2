"""The hot statements stay on their indexes on half a million rows, whatever the statistics say.

Each is explained as it runs: prepared, with a generic plan. Of one that calls a function, the
server's statistics tell what the statements inside have read. 200 queues of two priorities hold
150,000 due jobs, behind 50,000 of a better priority that are not due yet; 23,000 ended in place,
and 275,000 are in the history, spread over ten days and the rest. A breaker that is open holds
100,000 more, which are older than the others of their lane. Of 5,000 further breakers 1,000 are
open; each has a due job, in a queue of their own. `stale` statistics were gathered while the tables
were empty.
"""

from __future__ import annotations

import fcntl
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from uuid import UUID

import asyncpg
import pytest

from holdfast.domain.job import Filter
from holdfast.domain.limits import PAGE_LOOK_MAX, PARKED_COUNTED_MAX, PROBE_LOOK_MAX
from holdfast.domain.retention import Retention, parse_rules
from holdfast.domain.states import State
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.queries import IN_ORDER, PLANNED, page_values
from holdfast.stores.postgres.rows import SQL
from holdfast.stores.postgres.settle import retention_values
from tests.conftest import SERVERS
from tests.support.postgres import Databases

pytestmark = [pytest.mark.heavy, pytest.mark.long]

ROWS = 500_000
LANES = 600 + 1
RUNNING = SUSPECTS = ROWS * 2 // 1000
QUEUES = [f"queue {number}" for number in range(200)]

DAYS = 10
HELD = 100_000
KEYS = 5000
OPEN_KEYS = KEYS // 5

# Of each thousand jobs 400 wait (100 of them are not due, 2 are suspects), 2 run, 48 have ended in
# place, and 550 are in the history.
NUMBERED = f"""
CREATE TEMPORARY TABLE numbered AS
SELECT
    i, (i::bigint * 7919) % 1000 AS kind,
    (lpad(to_hex(i), 12, '0') || '-7000-8000-000000000000')::uuid AS id,
    CASE WHEN i % 500 = 7 THEN 'rare' END AS tenant
FROM generate_series(1, {ROWS}) AS i
"""
FILL = """
INSERT INTO holdfast.jobs (
    id, name, queue, priority, arguments, max_attempts, attempt, fence, state, run_at,
    lease_owner, lease_expires_at, finished_at, tenant, suspect
)
SELECT
    id, 'resize', 'queue ' || i % 200, CASE WHEN kind < 100 THEN -10 ELSE i / 200 % 2 END,
    '{"image": "a.png"}', 5, CASE WHEN kind < 400 THEN 0 ELSE 1 END,
    CASE WHEN kind < 400 THEN 0 ELSE 1 END,
    CASE WHEN kind < 400 THEN 'queued' WHEN kind < 402 THEN 'running'
         WHEN kind < 404 THEN 'dead' ELSE 'succeeded' END,
    now() + make_interval(secs => CASE WHEN kind < 100 THEN 86400 ELSE i * 1e-6 - 60 END),
    CASE WHEN kind BETWEEN 400 AND 401 THEN 'worker' END,
    CASE kind WHEN 400 THEN now() - interval '1 s' WHEN 401 THEN now() + interval '1 day' END,
    CASE WHEN kind >= 402 THEN now() END,
    tenant, kind IN (398, 399)
FROM numbered
WHERE kind < 450
"""
FILL_HISTORY = f"""
INSERT INTO holdfast.history (
    id, fence, run_at, created_at, finished_at, kept_until, attempt, max_attempts, snoozes,
    releases, crashes, priority, state, queue, name, arguments, tenant, tags
)
SELECT
    id, 1, now(), now(), now(),
    now() + make_interval(secs => i % 100) + make_interval(days => i % ({DAYS} + 1) - 1),
    1, 5, 0, 0, 0, 0, CASE WHEN kind < 452 THEN 'dead' ELSE 'succeeded' END,
    'queue ' || i % 200, 'resize', '{{"image": "a.png"}}', tenant, '{{}}'
FROM numbered
WHERE kind >= 450
"""
FILL_HELD = f"""
INSERT INTO holdfast.jobs (
    id, name, queue, priority, arguments, max_attempts, run_at, held_run_at, breaker
)
SELECT
    ('f' || lpad(to_hex(i), 11, '0') || '-7000-8000-000000000000')::uuid, 'resize', 'queue 0', 0,
    '{{}}', 5, 'infinity', now() - interval '1 hour', 'gateway'
FROM generate_series(1, {HELD}) AS i
"""
FILL_KEYED = f"""
INSERT INTO holdfast.jobs (id, name, queue, priority, arguments, max_attempts, run_at, breaker)
SELECT
    ('e' || lpad(to_hex(i), 11, '0') || '-7000-8000-000000000000')::uuid, 'resize', 'with keys', 0,
    '{{}}', 5, now() - interval '1 minute', 'key ' || i
FROM generate_series(1, {KEYS}) AS i
"""
FILL_BREAKERS = f"""
INSERT INTO holdfast.breakers (key, window_seconds, probe_seconds, opened_at, next_probe_at)
SELECT
    'key ' || i, 30, 10, CASE WHEN i % 5 = 0 THEN now() END, CASE WHEN i % 5 = 0 THEN now() END
FROM generate_series(1, {KEYS}) AS i
UNION ALL
SELECT 'gateway', 30, 10, now(), now()
"""
ADD_DAYS = f"""
SELECT holdfast.add_history_day((now() AT TIME ZONE 'UTC')::date + number, 0, 1000000)
FROM generate_series(0, {DAYS - 2}) AS number
"""
ANALYZE = "ANALYZE holdfast.jobs, holdfast.history, holdfast.queues, holdfast.breakers"
NO_AUTOVACUUM = """
DO $$
DECLARE
    each regclass;
BEGIN
    FOR each IN
        SELECT oid FROM pg_class
        WHERE relnamespace = 'holdfast'::regnamespace AND relkind = 'r'
    LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = false)', each);
    END LOOP;
END
$$
"""


class Plan(NamedTuple):
    """What a statement read: of the live jobs, of the history, of queues and breakers; and on how
    many pages it found jobs in the order of their lanes."""

    rows: int
    history_rows: int
    queue_rows: int
    breaker_rows: int
    indexes: set[str]
    seq_scans: int
    pages: int

    @classmethod
    def read(cls, root: dict[str, Any]) -> Plan:
        nodes = [
            node
            for node in _nodes(root)
            if node["Node Type"].endswith("Scan") and node["Actual Loops"]
        ]
        of_jobs = [node for node in nodes if node.get("Relation Name") == "jobs"]
        of_history = [node for node in nodes if _is_history(node.get("Relation Name", ""))]
        of_queues = [node for node in nodes if node.get("Relation Name") == "queues"]
        of_breakers = [node for node in nodes if node.get("Relation Name") == "breakers"]
        return cls(
            rows=sum(map(_rows, of_jobs)),
            history_rows=sum(map(_rows, of_history)),
            queue_rows=sum(map(_rows, of_queues)),
            breaker_rows=sum(map(_rows, of_breakers)),
            indexes={_index(node) for node in nodes} & INDEXES,
            seq_scans=sum(node["Node Type"] == "Seq Scan" for node in of_jobs + of_history),
            pages=sum(map(_pages, (node for node in of_jobs if _index(node) == "jobs_ready"))),
        )

    @classmethod
    def of_statistics(cls, before: list[Any], after: list[Any]) -> Plan:
        known = {each["name"]: each for each in before}
        scans = {each["name"]: each["scans"] - known[each["name"]]["scans"] for each in after}
        rows = {
            each["name"]: each["rows"] - known[each["name"]]["rows"]
            for each in after
            if not each["is_index"]
        }
        of_history = list(filter(_is_history, rows))
        return cls(
            rows=rows["jobs"],
            history_rows=sum(rows[name] for name in of_history),
            queue_rows=rows["queues"],
            breaker_rows=rows["breakers"],
            indexes={_index({"Index Name": name}) for name, times in scans.items() if times}
            & INDEXES,
            seq_scans=sum(scans[name] for name in ("jobs", *of_history)),
            pages=0,
        )


INDEXES = {
    "jobs_pkey",
    "jobs_ready",
    "jobs_leases",
    "jobs_expiring",
    "jobs_suspects",
    "jobs_leftovers",
    "jobs_unsuccessful",
    "jobs_tenant",
    "jobs_correlation",
    "jobs_parent",
    "jobs_breaker",
    "jobs_parked",
    "breakers_pkey",
    "history_pkey",
    "history_unsuccessful",
    "history_tenant",
    "history_correlation",
    "history_parent",
    "history_kept_until",
}


def _is_history(name: str) -> bool:
    return re.fullmatch(r"history_(\d{8}|rest)", name) is not None


def _index(node: dict[str, Any]) -> str:
    """Name the index, for a partition by the name of the whole."""
    name = re.sub(r"^history_(\d{8}|rest)_", "history_", node.get("Index Name", ""))
    names = {
        "history_id_idx": "history_unsuccessful",
        "history_tenant_id_idx": "history_tenant",
        "history_correlation_id_id_idx": "history_correlation",
        "history_parent_id_id_idx": "history_parent",
    }
    return names.get(name, name)


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _rows(node: dict[str, Any]) -> int:
    removed = sum(node.get(f"Rows Removed by {cause}", 0) for cause in ("Filter", "Index Recheck"))
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])


def _pages(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def _literal(value: object) -> str:
    if isinstance(value, list):
        items = ["NULL" if item is None else json.dumps(str(item)) for item in value]
        value = "{" + ",".join(items) + "}"
    if value is None or isinstance(value, bool | int | float):
        return "NULL" if value is None else str(value)
    return "'" + str(value).replace("'", "''") + "'"


async def _fill(url: str) -> None:
    store = PostgresStore(url, Seam())
    await store.migrate()
    await store.close()
    connection = await asyncpg.connect(url, command_timeout=120)
    await connection.execute(ADD_DAYS)
    await connection.execute(NO_AUTOVACUUM)
    await connection.execute(ANALYZE)
    for step in (NUMBERED, FILL, FILL_HISTORY, FILL_HELD, FILL_KEYED, FILL_BREAKERS):
        await connection.execute(step)
    await connection.close()


async def _analyze(url: str) -> None:
    connection = await asyncpg.connect(url, command_timeout=120)
    await connection.execute(ANALYZE)
    await connection.close()


@pytest.fixture(
    scope="module",
    params=[(server, statistics) for server in SERVERS for statistics in ("stale", "fresh")],
    ids="-".join,
)
def many_jobs(
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
    stale, fresh = (folder / f"many jobs, {server}, {each}" for each in ("stale", "fresh"))
    name = _made_once(stale, lambda: _make_stale(databases))
    if statistics == "stale":
        return databases.url(name), stale
    return databases.url(_made_once(fresh, lambda: _make_fresh(databases, name, stale))), fresh


def _made_once(path: Path, make: Callable[[], str]) -> str:
    with locked(path) as note:
        note.seek(0)
        name = note.read()
        if not name:
            name = make()
            note.write(name)
    return name


def _make_stale(databases: Databases) -> str:
    name = databases.create()
    databases.run(_fill(databases.url(name)))
    return name


def _make_fresh(databases: Databases, stale: str, path: Path) -> str:
    # A database that is in use can't be copied.
    with locked(path):
        name = databases.create(stale)
    databases.run(_analyze(databases.url(name)))
    return name


@contextmanager
def locked(path: Path) -> Iterator[TextIO]:
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


GENERIC = "SET LOCAL plan_cache_mode = force_generic_plan"
CUSTOM = "SET LOCAL plan_cache_mode = force_custom_plan"  # as callers' connections may have it
JOBS_READ = """
SELECT seq_scan, idx_tup_fetch FROM pg_stat_xact_user_tables
WHERE relid = 'holdfast.jobs'::regclass
"""
# Of a table: scans of all of it, and the rows that these and its indexes found. Of an index: scans.
READ = """
SELECT
    relname::text AS name, relkind = 'i' AS is_index, pg_stat_get_xact_numscans(oid) AS scans,
    pg_stat_get_xact_tuples_returned(oid) + pg_stat_get_xact_tuples_fetched(oid) + (
        SELECT coalesce(sum(pg_stat_get_xact_tuples_fetched(indexrelid)), 0)::bigint
        FROM pg_index WHERE indrelid = pg_class.oid
    ) AS rows
FROM pg_class
WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'i')
"""


class Explainer:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def explain(self, name: str, /, **values: object) -> Plan:
        """Explain a statement with the generic plan that the store runs it with."""
        statement = SQL[name]
        arguments = ", ".join(_literal(value) for value in statement.arguments(values))
        await self._connection.execute(f"DEALLOCATE ALL; PREPARE {name} AS {statement.sql}")
        call = f"{name}({arguments})" if arguments else name
        return await self._explain(f"EXECUTE {call}")

    async def call(self, name: str, settings: str = GENERIC, /, **values: object) -> Plan:
        """Run a statement that calls a function, and tell what its statements read."""
        statement = SQL[name]
        arguments = ", ".join(_literal(value) for value in statement.arguments(values))
        await self._connection.execute(f"PREPARE {name} AS {statement.sql}")
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            await self._connection.execute(settings)
            before = await self._connection.fetch(READ)
            await self._connection.execute(f"EXECUTE {name}({arguments})")
            return Plan.of_statistics(before, await self._connection.fetch(READ))
        finally:
            await transaction.rollback()
            await self._connection.execute(f"DEALLOCATE {name}")

    async def explain_planned(self, name: str, settings: str, /, **values: object) -> Plan:
        """Explain a statement with a plan for these values."""
        statement = SQL[name]
        return await self._explain(statement.sql, *statement.arguments(values), settings=settings)

    async def jobs_read(self, call: str, before: str) -> tuple[int, int]:
        """How often the statements inside of a function scan all jobs, and how many jobs they find
        by an index. Not on how many pages: other tests roll back what they write, and a bitmap scan
        visits the pages of these dead rows each time."""
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            await self._connection.execute(f"{GENERIC}; {before}")
            scans, found = await self._connection.fetchrow(JOBS_READ)
            await self._connection.execute(f"SELECT {call}")
            scans_then, found_then = await self._connection.fetchrow(JOBS_READ)
        finally:
            await transaction.rollback()
        return scans_then - scans, found_then - found

    async def _explain(self, sql: str, *arguments: object, settings: str = GENERIC) -> Plan:
        return Plan.read(await self._explained(sql, *arguments, settings=settings))

    async def _explained(self, sql: str, *arguments: object, settings: str) -> dict[str, Any]:
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            await self._connection.execute(settings)
            answer = await self._connection.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *arguments
            )
        finally:
            await transaction.rollback()
        plan: dict[str, Any] = json.loads(answer)[0]["Plan"]
        return plan

    async def ids(self, state: str, count: int, table: str = "jobs") -> list[UUID]:
        rows = await self._connection.fetch(
            f"SELECT id FROM holdfast.{table} WHERE state = $1 ORDER BY id LIMIT $2", state, count
        )
        return [row["id"] for row in rows]

    async def mark(self) -> None:
        """As a block marks its transaction; by a session's setting, for all of its statements."""
        await self._connection.execute("SET holdfast.block = 'open'")

    async def last_in_line(self, queue: str) -> UUID:
        job_id: UUID = await self._connection.fetchval(
            "SELECT id FROM holdfast.jobs WHERE state = 'queued' AND queue = $1 AND NOT suspect"
            " ORDER BY priority DESC, run_at DESC, id DESC LIMIT 1",
            queue,
        )
        return job_id


@pytest.fixture
async def database(many_jobs: tuple[str, Path]) -> AsyncIterator[Explainer]:
    url, path = many_jobs
    with locked(path):
        connection = await asyncpg.connect(url, command_timeout=60)
        await connection.execute("SET jit = off")
        yield Explainer(connection)
        await connection.close()


def assert_bounded(plan: Plan, indexes: set[str], rows_max: int, history_rows_max: int = 0) -> None:
    assert plan.seq_scans == 0
    assert plan.indexes == indexes
    assert plan.rows <= rows_max
    assert plan.history_rows <= history_rows_max


RETENTION = retention_values(Retention(7 * 86400.0, parse_rules("*:dead=90d, images:*=1d")))
RECLAIM: dict[str, object] = {
    "dead_worker": None,
    "outcome": "lost",
    "error_code": "LEASE_LOST",
    "reason": "stopped renewing its lease",
    "crashes_in_company_max": 2,
    "back_seconds": None,
    **RETENTION,
}


CLAIMS = ["claim", "claim_with_caps", "claim_onwards", "claim_onwards_with_caps"]


@pytest.mark.parametrize("name", CLAIMS[:2])
@pytest.mark.parametrize("queues", [None, QUEUES[:10], QUEUES[:1]], ids=["any", "ten", "one"])
@pytest.mark.parametrize("limit", [1, 100, 500])
async def test_a_claim_reads_its_lanes_and_no_more_jobs_than_it_takes(
    database: Explainer, queues: list[str] | None, limit: int, name: str
) -> None:
    plan = await database.explain(
        name,
        queues=queues,
        except_queues=[],
        worker="worker",
        lease_seconds=30,
        alone=False,
        last_queue="",
        names=["resize"],
        tenant=None,
        limit=limit,
        shortest_lease_seconds=30,
        first_lease=None,
        looked_at=None,
        looked_seconds_before=0,
    )
    lanes = LANES if queues is None else 3 * len(queues)
    assert_bounded(plan, {"jobs_ready", "jobs_pkey"}, 2 * lanes + 2 * limit)


def claim_values(queue: str, limit: int = 100) -> dict[str, object]:
    """The values of every statement that claims."""
    return {
        "queues": [queue],
        "except_queues": [],
        "worker": "worker",
        "lease_seconds": 30,
        "alone": False,
        "last_queue": "",
        "names": ["resize"],
        "tenant": None,
        "limit": limit,
        "lane_queues": [queue],
        "lane_priorities": [0],
        "lane_run_at": ["2020-01-01T00:00:00Z"],
        "lane_ids": [UUID(int=0)],
        "looked_seconds_ago": [None],
        "shortest_lease_seconds": 30,
        "first_lease": None,
        "looked_at": None,
        "looked_seconds_before": 0,
    }


@pytest.mark.parametrize("name", ["claim_named", "claim_named_with_caps"])
async def test_a_claim_that_is_told_of_a_job_reads_that_one_only(
    database: Explainer, name: str
) -> None:
    (job_id,) = await database.ids("queued", 1)
    plan = await database.explain(name, **claim_values("queue 0"), job_id=job_id)
    assert_bounded(plan, {"jobs_pkey"}, 2)


@pytest.mark.parametrize("name", CLAIMS)
async def test_a_claim_does_not_read_over_what_a_breaker_holds(
    database: Explainer, name: str
) -> None:
    beside = await database.explain(name, **claim_values("queue 0"))
    alone = await database.explain(name, **claim_values("queue 2"))
    assert beside.rows <= alone.rows
    # What other tests have rolled back may lie between; to read over all would be thousands.
    assert 0 < beside.pages <= 2 * alone.pages


@pytest.mark.parametrize("name", CLAIMS)
async def test_a_claim_looks_for_no_breaker_of_jobs_that_have_none(
    database: Explainer, name: str
) -> None:
    plan = await database.explain(name, **claim_values("queue 2"))
    assert (plan.queue_rows, plan.breaker_rows) == (0, 0)
    assert "breakers_pkey" not in plan.indexes


@pytest.mark.parametrize("name", CLAIMS)
async def test_a_claim_looks_each_breaker_up_by_its_key(database: Explainer, name: str) -> None:
    plan = await database.explain(name, **claim_values("with keys"))
    # Every fifth is open.
    assert_bounded(plan, {"jobs_ready", "jobs_pkey", "breakers_pkey"}, 2 * 1 + 125 + 100)
    assert plan.breaker_rows <= 125


async def test_holding_jobs_reads_no_more_of_them_than_it_takes(database: Explainer) -> None:
    plan = await database.explain("park", limit=500)
    assert plan.seq_scans == 0
    assert plan.indexes >= {"jobs_breaker", "jobs_pkey"}
    assert plan.rows <= 3 * 500


async def test_letting_go_reads_no_more_jobs_than_it_takes(database: Explainer) -> None:
    plan = await database.explain("unpark", keys=["gateway"], limit=500)
    assert_bounded(plan, {"jobs_breaker", "jobs_pkey"}, 2 * 500)
    plan = await database.explain("end_unparking", keys=["gateway", "key 1"])
    assert plan.seq_scans == 0
    assert plan.rows <= 1


async def test_a_probe_is_found_among_many_held_jobs_by_reading_a_few(
    database: Explainer,
) -> None:
    plan = await database.explain(
        "claim_probes", **{**claim_values("queue 0"), "look_max": PROBE_LOOK_MAX}
    )
    assert plan.seq_scans == 0
    assert plan.indexes >= {"jobs_breaker", "jobs_parked", "jobs_pkey"}
    assert 0 < plan.rows <= 10


async def test_a_search_for_a_probe_in_vain_looks_at_a_bounded_number(
    database: Explainer,
) -> None:
    values = {**claim_values("queue 0"), "names": ["nobody's"], "look_max": 1000}
    plan = await database.explain("claim_probes", **values)
    assert plan.seq_scans == 0
    assert plan.rows <= 2 * 1000
    plan = await database.explain("pass_over", look_max=1000)
    assert plan.seq_scans == 0
    assert plan.rows <= 3 * 1000 + OPEN_KEYS


async def test_counting_what_runs_in_capped_queues_reads_only_the_leases(
    database: Explainer,
) -> None:
    read = await database.jobs_read(
        "holdfast.lock_caps(NULL, '{}', 30, NULL, NULL, 0)",
        "INSERT INTO holdfast.queues (name, running_max) VALUES ('queue 0', 9), ('queue 1', 9)",
    )
    assert read == (0, RUNNING)


async def test_a_list_of_breakers_counts_what_they_hold_up_to_a_limit(
    database: Explainer,
) -> None:
    plan = await database.explain("breakers", key=None, limit=1000, parked_max=PARKED_COUNTED_MAX)
    assert plan.seq_scans == 0
    assert plan.rows <= PARKED_COUNTED_MAX + 1000


@pytest.mark.parametrize("name", CLAIMS[2:])
async def test_a_claim_that_goes_on_reads_no_more_jobs_than_it_takes(
    database: Explainer, name: str
) -> None:
    plan = await database.explain(
        name,
        queues=None,
        except_queues=[],
        worker="worker",
        lease_seconds=30,
        alone=False,
        lane_queues=QUEUES,
        lane_priorities=[0] * len(QUEUES),
        lane_run_at=["2020-01-01T00:00:00Z"] * len(QUEUES),
        lane_ids=[UUID(int=0)] * len(QUEUES),
        looked_seconds_ago=[None] * len(QUEUES),
        shortest_lease_seconds=30,
        first_lease=None,
        looked_at=None,
        looked_seconds_before=0,
        names=["resize"],
        tenant=None,
        limit=100,
    )
    assert_bounded(plan, {"jobs_ready", "jobs_pkey"}, 2 * 100)


@pytest.mark.parametrize("limit", [100, 400])
async def test_the_jobs_ahead_of_another_are_read_up_to_a_limit(
    database: Explainer, limit: int
) -> None:
    last = await database.last_in_line(QUEUES[0])
    plan = await database.explain("surroundings", job_id=last, queues=QUEUES[:1], limit=limit)
    # Its queue has 3 lanes, of which the best is not due; a look passes over a few suspects.
    assert_bounded(plan, {"jobs_ready", "jobs_pkey"}, 2 * 3 + limit + 20)
    assert plan.rows > limit


async def test_a_scan_reads_a_few_jobs_of_each_lane(database: Explainer) -> None:
    plan = await database.call(
        "scan_lanes",
        names=["resize"],
        queues=None,
        except_queues=[],
        tenant=None,
        look_back_seconds=1.0,
        late_max=20,
    )
    # Of the lane with keys, every fifth has a breaker that is open.
    assert_bounded(plan, {"jobs_ready", "breakers_pkey"}, (2 + 20) * LANES + 5)


async def test_settling_successes_reads_only_their_rows(database: Explainer) -> None:
    ids = await database.ids("running", 500)
    plan = await database.call(
        "settle_succeeded",
        ids=ids,
        fences=[1] * len(ids),
        results=["null"] * len(ids),
        **RETENTION,
    )
    assert_bounded(plan, {"jobs_pkey"}, len(ids))


@pytest.mark.parametrize("state", ["queued", "dead"])
async def test_settling_failures_reads_only_their_rows(database: Explainer, state: str) -> None:
    ids = await database.ids("running", 500)
    zeros = [0] * len(ids)
    plan = await database.call(
        "settle",
        ids=ids,
        fences=[1] * len(ids),
        outcomes=["failed"] * len(ids),
        error_codes=["ERROR"] * len(ids),
        error_texts=["text"] * len(ids),
        failures=[None] * len(ids),
        states=[state] * len(ids),
        crashed=zeros,
        attempts_back=zeros,
        snoozed=zeros,
        released=zeros,
        delay_seconds=zeros,
        results=[None] * len(ids),
        **RETENTION,
    )
    assert_bounded(plan, {"jobs_pkey"}, 2 * len(ids))


async def test_renewing_reads_only_the_leases(database: Explainer) -> None:
    ids = await database.ids("running", 1000)
    plan = await database.explain("renew", ids=ids, fences=[1] * len(ids), lease_seconds=30)
    assert_bounded(plan, {"jobs_pkey"}, 2 * len(ids))


async def test_reclaiming_reads_no_more_jobs_than_it_takes(database: Explainer) -> None:
    plan = await database.call("reclaim", limit=100, **RECLAIM)
    # To lock them, to note their attempts, and to queue them again.
    assert_bounded(plan, {"jobs_leases", "jobs_pkey"}, 3 * 100)


async def test_reclaiming_looks_at_the_waiting_jobs_with_an_expiry_only(
    database: Explainer,
) -> None:
    plan = await database.call("reclaim", limit=5000, **RECLAIM)
    assert_bounded(plan, {"jobs_leases", "jobs_expiring", "jobs_pkey"}, 2 * 1000)


async def test_taking_back_what_a_dead_worker_held_reads_only_the_leases(
    database: Explainer,
) -> None:
    held = {**RECLAIM, "dead_worker": "worker"}
    plan = await database.call("reclaim_worker", limit=100, **held)
    assert_bounded(plan, {"jobs_leases", "jobs_pkey"}, 3 * 100)
    nothing = {**RECLAIM, "dead_worker": "nobody"}
    plan = await database.call("reclaim_worker", limit=100, **nothing)
    assert plan.seq_scans == 0
    assert plan.rows <= RUNNING


async def test_looking_for_strays_reads_only_the_leases(database: Explainer) -> None:
    known = await database.ids("running", 100)
    values = {"worker": "worker", "ids": known, "fences": [1] * len(known)}
    plan = await database.explain("release_strays", limit=100, **values)
    assert plan.seq_scans == 0
    assert plan.rows <= RUNNING + 100


@pytest.mark.parametrize("state", ["running", "queued"])
async def test_taking_back_one_job_reads_its_row(database: Explainer, state: str) -> None:
    [job_id] = await database.ids(state, 1)
    plan = await database.call("reclaim_one", job_id=job_id, **RECLAIM)
    assert_bounded(plan, {"jobs_pkey"}, 4)


async def test_a_claim_of_a_suspect_reads_suspects_only(database: Explainer) -> None:
    plan = await database.explain(
        "claim_suspect",
        worker="worker",
        lease_seconds=30,
        alone=True,
        names=["resize"],
        tenant=None,
        queues=None,
        except_queues=[],
    )
    assert_bounded(plan, {"jobs_suspects", "jobs_pkey"}, SUSPECTS + 1)


@pytest.mark.parametrize("queues", [None, QUEUES[:1]], ids=["any", "one"])
async def test_counting_suspects_reads_suspects_only(
    database: Explainer, queues: list[str] | None
) -> None:
    plan = await database.explain("suspects", names=["resize"], queues=queues, limit=100)
    assert_bounded(plan, {"jobs_suspects"}, SUSPECTS)


@pytest.mark.parametrize("settings", [GENERIC, CUSTOM], ids=["generic", "custom"])
async def test_canceling_reads_only_the_named_jobs(database: Explainer, settings: str) -> None:
    ids = await database.ids("queued", 100)
    plan = await database.call(
        "cancel", settings, ids=ids, waiting_only=False, reason=None, **RETENTION
    )
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


@pytest.mark.parametrize("name", ["claim_by_id", "progress", "standing"])
async def test_what_names_one_job_reads_one_row(database: Explainer, name: str) -> None:
    [job_id] = await database.ids("running" if name == "progress" else "queued", 1)
    plan = await database.explain(
        name,
        job_id=job_id,
        worker="worker",
        lease_seconds=30,
        alone=False,
        progress="{}",
        fence=1,
    )
    assert_bounded(plan, {"jobs_pkey"}, 1)


async def test_retrying_a_job_reads_one_row(database: Explainer) -> None:
    [job_id] = await database.ids("queued", 1)
    assert_bounded(await database.call("retry", job_id=job_id), {"jobs_pkey"}, 1)


@pytest.mark.parametrize("settings", [GENERIC, CUSTOM], ids=["generic", "custom"])
async def test_completing_a_job_reads_one_row(database: Explainer, settings: str) -> None:
    [job_id] = await database.ids("running", 1)
    await database.mark()
    plan = await database.call(
        "settle_completing",
        settings,
        job_id=job_id,
        fence=1,
        result="{}",
        commit_milliseconds="0",
        **RETENTION,
    )
    assert_bounded(plan, {"jobs_pkey"}, 1)


async def test_reading_a_job_live_or_ended_reads_one_row(database: Explainer) -> None:
    both = {"jobs_pkey", "history_pkey"}
    [live] = await database.ids("queued", 1)
    plan = await database.explain("get", job_id=live, tenant=None)
    assert_bounded(plan, both, 1)
    [ended] = await database.ids("succeeded", 1, "history")
    plan = await database.explain("get", job_id=ended, tenant=None)
    assert_bounded(plan, both, 0, 1)


async def test_requeuing_a_job_reads_its_row(database: Explainer) -> None:
    # Only what has ended in place can be requeued from there.
    both = {"jobs_leftovers", "history_pkey"}
    values = {"new_id": UUID(int=1), "arguments": None, "once": True, "longest_seconds": 60.0}
    [live] = await database.ids("queued", 1)
    assert_bounded(await database.call("requeue", job_id=live, **values), both, 1)
    [ended] = await database.ids("succeeded", 1, "history")
    assert_bounded(await database.call("requeue", job_id=ended, **values), both, 0, 1)


@pytest.mark.parametrize("name", ["ended_id", "fences"])
async def test_looking_for_ids_in_the_history_reads_only_their_rows(
    database: Explainer, name: str
) -> None:
    ids = await database.ids("succeeded", 100, "history")
    plan = await database.explain(name, ids=ids)
    assert plan.seq_scans == 0
    assert plan.history_rows <= len(ids)


async def test_watching_reads_the_live_jobs_and_looks_in_the_history_for_the_others(
    database: Explainer,
) -> None:
    live = await database.ids("queued", 50)
    ended = await database.ids("succeeded", 10, "history")
    ids = [*live, *ended]
    plan = await database.explain("changed", ids=ids, versions=[""] * len(ids), tenant=None)
    assert_bounded(plan, {"jobs_pkey", "history_pkey"}, len(live), len(ended))


NEWEST, MIDDLE = None, UUID("00000007-a120-7000-8000-000000000000")
FOLLOWING = 2 * (DAYS + 1)  # the first of each partition, and of each that a filter leaves out


@pytest.mark.parametrize(
    ("filter", "after", "indexes"),
    [
        (Filter(), NEWEST, {"jobs_pkey", "history_pkey"}),
        (Filter(), MIDDLE, {"jobs_pkey", "history_pkey"}),
        (
            Filter(states=(State.FAILED, State.DEAD)),
            NEWEST,
            {"jobs_unsuccessful", "history_unsuccessful"},
        ),
        (Filter(states=(State.DEAD,)), MIDDLE, {"jobs_unsuccessful", "history_unsuccessful"}),
        (Filter(states=(State.SUCCEEDED,)), MIDDLE, {"jobs_leftovers", "history_pkey"}),
        (Filter(states=(State.QUEUED,)), MIDDLE, {"jobs_pkey"}),
        (Filter(tenant="rare"), NEWEST, {"jobs_tenant", "history_tenant"}),
        (Filter(tenant="default"), MIDDLE, {"jobs_pkey", "history_pkey"}),
        (Filter(correlation_id="any"), NEWEST, {"jobs_correlation", "history_correlation"}),
        (Filter(parent_id=MIDDLE), NEWEST, {"jobs_parent", "history_parent"}),
    ],
    ids=[
        "all",
        "after",
        "unsuccessful",
        "dead",
        "succeeded",
        "queued",
        "tenant",
        "default",
        "correlation",
        "parent",
    ],
)
async def test_a_page_reads_hardly_more_jobs_than_it_shows(
    database: Explainer, filter: Filter, after: UUID | None, indexes: set[str]
) -> None:
    plan = await database.explain_planned("page", IN_ORDER, **page_values(filter, 50, after))
    assert_bounded(plan, indexes, 2 * 51, 2 * 51 + FOLLOWING)


async def test_a_list_of_the_running_reads_only_the_leases(database: Explainer) -> None:
    values = page_values(Filter(states=(State.RUNNING,)), 50, NEWEST)
    plan = await database.explain_planned("page", PLANNED, **values)
    assert_bounded(plan, {"jobs_leases"}, RUNNING)


@pytest.mark.parametrize(
    "filter",
    [
        Filter(queue="nobody's"),
        Filter(name="nobody's"),
        Filter(tag="rare"),
        Filter(error_code="NOBODYS", since=datetime(2026, 1, 1, tzinfo=UTC)),
        Filter(error_code="NOBODYS"),
        Filter(since=datetime(2999, 1, 1, tzinfo=UTC)),
        Filter(until=datetime(1999, 1, 1, tzinfo=UTC)),
        Filter(states=(State.DEAD, State.QUEUED), queue="nobody's"),
        Filter(states=(State.DEAD,), queue="nobody's"),
        Filter(states=(State.SUCCEEDED,), queue="nobody's"),
        Filter(states=(State.RUNNING,), queue="nobody's"),
        Filter(tenant="rare", queue="nobody's"),
    ],
    ids=str,
)
async def test_a_search_in_vain_looks_at_a_bounded_number_of_jobs(
    database: Explainer, filter: Filter
) -> None:
    settings = PLANNED if filter.states == (State.RUNNING,) else IN_ORDER
    values = page_values(filter, 50, NEWEST)
    plan = await database.explain_planned("page", settings, **values)
    assert plan.seq_scans == 0
    assert plan.rows + plan.history_rows <= PAGE_LOOK_MAX + FOLLOWING


@pytest.mark.parametrize("tenant", [None, "default"])
async def test_counts_read_nothing_of_the_history(database: Explainer, tenant: str | None) -> None:
    plan = await database.explain_planned("counts", PLANNED, tenant=tenant)
    assert plan.history_rows == 0


async def test_counts_of_a_tenant_read_only_its_jobs(database: Explainer) -> None:
    plan = await database.explain_planned("counts", PLANNED, tenant="rare")
    assert_bounded(plan, {"jobs_tenant"}, ROWS // 500)


async def test_attempts_of_a_job_read_only_its_rows(database: Explainer) -> None:
    (job_id,) = await database.ids("succeeded", 1, "history")
    plan = await database.explain("attempts", job_id=job_id)
    assert_bounded(plan, {"history_pkey"}, 0, 1)


async def test_moving_what_ended_in_place_reads_no_more_jobs_than_it_moves(
    database: Explainer,
) -> None:
    plan = await database.call("move_leftovers", limit=1000, **RETENTION)
    assert_bounded(plan, {"jobs_leftovers", "jobs_pkey"}, 2 * 1000)
    plan = await database.explain("leftovers", limit=1000)
    assert_bounded(plan, {"jobs_leftovers"}, 1000)


async def test_forgetting_history_reads_no_more_jobs_than_it_forgets(database: Explainer) -> None:
    plan = await database.call("forget_history", limit=1000)
    assert plan.seq_scans == 0
    assert plan.indexes == {"history_kept_until"}
    assert plan.history_rows <= 2 * 1000
