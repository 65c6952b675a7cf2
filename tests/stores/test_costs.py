"""What a job costs, in counts that do not depend on how fast the machine is.

Each limit names what was seen when it was set. It leaves room for how work falls into batches,
which is a matter of chance, and none for a statement, a row or an index more for each job.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.domain.job import Claimed
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.caps import LOOK_SECONDS
from holdfast.stores.postgres.rows import SQL
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.protocol import Claim, Store
from holdfast.testing.simulation import Simulation
from tests.support.around import Around
from tests.support.postgres import Databases, Server, start_all, system_binaries
from tests.support.processes import wait_until
from tests.support.seams import HandSeam
from tests.support.services import missing
from tests.support.wire import Wire

JOBS = 5000
CONCURRENCY = 100
IDLE_WORKERS = 50
SETTLING_SECONDS = 5  # a worker that found nothing looks again sooner at first
IDLE_SECONDS = 20
NAMES = {statement.sql: name for name, statement in SQL.items()}
BACKENDS = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name = 'holdfast' AND datname = current_database()
"""
ROWS = """
SELECT
    sum(n_tup_ins) FILTER (WHERE relname = 'jobs')::bigint AS jobs_added,
    sum(n_tup_upd) FILTER (WHERE relname = 'jobs')::bigint AS jobs_changed,
    sum(n_tup_del) FILTER (WHERE relname = 'jobs')::bigint AS jobs_removed,
    sum(n_tup_ins) FILTER (WHERE relname LIKE 'history\\_2%')::bigint AS history_added,
    sum(n_tup_upd + n_tup_del) FILTER (WHERE relname LIKE 'history\\_2%')::bigint
        AS history_changed,
    sum(n_tup_ins + n_tup_upd + n_tup_del)
        FILTER (WHERE relname <> 'jobs' AND relname NOT LIKE 'history\\_2%')::bigint AS others,
    sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint AS read
FROM pg_stat_user_tables
"""


class Rows(NamedTuple):
    jobs_added: int
    jobs_changed: int
    jobs_removed: int
    history_added: int
    history_changed: int
    others: int
    read: int


class Costs:
    """One database on a server of its own, and what goes to it and is written there."""

    def __init__(self, url: str, wire: Wire, connection: asyncpg.Connection) -> None:
        self.url = wire.url(urlsplit(url).path.removeprefix("/"))
        self.wire = wire
        self.connection = connection

    async def wal_bytes(self) -> int:
        return int(await self.connection.fetchval("SELECT pg_current_wal_insert_lsn() - '0/0'"))

    async def rows(self) -> Rows:
        """A server tells what a connection did when that has ended."""

        async def gone() -> bool:
            return not await self.connection.fetchval(BACKENDS)

        await wait_until(gone, "all connections of the engine ended")
        return Rows(*await self.connection.fetchrow(ROWS))

    def named(self) -> dict[str, int]:
        """How often each of the engine's statements was sent."""
        return {NAMES[sql]: times for sql, times in self.wire.statements.items() if sql in NAMES}


@pytest.fixture(scope="module")
def databases() -> Iterator[Databases]:
    """On a server where nobody else writes, and nothing is written by itself."""
    binaries = system_binaries() or missing("PostgreSQL is not installed")
    server = Server("costs", binaries, autovacuum="off", checkpoint_timeout="1h")
    try:
        start_all([server])
        databases = Databases(server.url(""), "costs")
        yield databases
        databases.close()
    finally:
        server.remove()


@pytest.fixture
def url(databases: Databases) -> str:
    return databases.url(databases.create())


@pytest.fixture
async def costs(url: str) -> AsyncIterator[Costs]:
    port = urlsplit(url).port
    assert port is not None
    connection = await asyncpg.connect(url)
    hf = Holdfast(url)
    await hf.migrate()
    await hf.close()
    with Wire(port) as wire:
        yield Costs(url, wire, connection)
    await connection.close()


async def nothing(number: int) -> None:
    return None


@pytest.mark.parametrize(
    ("options", "statement"),
    [({}, "enqueue_plain"), ({"tags": ["a"]}, "enqueue_one")],
)
async def test_a_job_is_enqueued_by_one_statement_in_one_round_trip(
    costs: Costs, options: dict[str, Any], statement: str
) -> None:
    async with Holdfast(costs.url) as hf:
        job = hf.job(nothing).options(**options)
        await job.enqueue(0)  # this one connects and prepares
        costs.wire.forget()
        before = await costs.wal_bytes()
        for number in range(100):
            await job.enqueue(number)
        wal_bytes = await costs.wal_bytes() - before
        assert costs.named() == {statement: 100}
        assert costs.wire.round_trips == 100
        # Seen: 403 a job. One more index on the hot table would be 64 more, at the least.
        assert wal_bytes <= 440 * 100


async def test_a_thousand_jobs_are_enqueued_in_five_round_trips(costs: Costs) -> None:
    async with Holdfast(costs.url) as hf:
        job = hf.job(nothing)
        await hf.enqueue_many([job.call(number) for number in range(1000)])
        costs.wire.forget()
        before = await costs.wal_bytes()
        await hf.enqueue_many([job.call(number) for number in range(1000)])
        wal_bytes = await costs.wal_bytes() - before
    # BEGIN, COPY with its data, the wake-up, COMMIT.
    assert sum(costs.wire.statements.values()) == 4
    assert costs.wire.round_trips == 5
    # Seen: 314 a job.
    assert wal_bytes <= 350 * 1000


async def test_a_job_that_is_found_waits_for_one_statement(costs: Costs) -> None:
    seam = HandSeam()
    store = PostgresStore(costs.url, seam)
    claim = Claim("worker", 1, 30.0, ["nothing"])
    async with Holdfast(costs.url) as hf:
        job = hf.job(nothing)
        await hf.enqueue_many([job.call(number) for number in range(4)])
        await store.claim(claim)
        costs.wire.forget()
        for _ in range(3):
            seam.seconds += LOOK_SECONDS
            assert len(await store.claim(claim)) == 1
        assert costs.named() == {"claim": 3}
    await store.close()


async def test_a_job_is_claimed_run_and_settled_within_limits(costs: Costs) -> None:
    async with Holdfast(costs.url) as hf:
        job = hf.job(nothing)
        await hf.enqueue_many([job.call(number) for number in range(JOBS)])
        await costs.connection.execute("ANALYZE")
        costs.wire.forget()
        before = await costs.wal_bytes()
        await hf.run_due(concurrency=CONCURRENCY)
        wal_bytes = await costs.wal_bytes() - before
    sent = costs.named()
    # Seen: 23 claims, 26 settlements and 3 looks at the lanes, for 20 times 250 jobs. On a busy
    # machine jobs take longer, and there are up to twice as many.
    claims = sent["claim"] + sent["claim_onwards"]
    assert claims <= 2.5 * JOBS / CONCURRENCY
    assert sent["settle_succeeded"] <= 2.5 * JOBS / CONCURRENCY
    assert sent["scan_lanes"] <= claims
    # Seen: 93, of which 44 come with a worker's start and end and do not grow with the jobs.
    assert costs.wire.round_trips <= 8 * JOBS / CONCURRENCY
    # Seen: 883 a job. One more index, on the hot table or on the history, would be 64 more.
    assert wal_bytes <= 910 * JOBS
    rows = await costs.rows()
    # Added, claimed, and moved to the history, where nothing changes: exactly once each.
    assert rows[:5] == (JOBS, JOBS, JOBS, JOBS, 0)
    # Seen: 61, nearly all of them counts of what has ended, one for each settlement.
    assert rows.others <= 4 * JOBS / CONCURRENCY
    # Seen: 3.05 a job: by the claim's choice, its update, and the settlement.
    assert rows.read <= 4 * JOBS


async def test_a_note_of_progress_touches_no_index(costs: Costs) -> None:
    notes = 100
    async with Holdfast(costs.url) as hf:
        await hf.job(nothing).enqueue(0)
    store = PostgresStore(costs.url, HandSeam())
    (job,) = await store.claim(Claim("worker", 1, 30.0, ["nothing"]))
    for number in range(notes):
        assert await store.progress(job.lease, b"%d" % number)
    await store.close()
    await costs.rows()  # until the server has counted
    changed, heap_only = await costs.connection.fetchrow(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'jobs'"
    )
    # The claim's can't be: it takes the job from one index to another.
    assert (changed, heap_only) == (notes + 1, notes)


class CountingStore(Around):
    def __init__(self, store: Store, looks: list[str]) -> None:
        super().__init__(store)
        self._looks = looks

    async def claim(self, request: Claim) -> Sequence[Claimed]:
        self._looks.append(request.worker)
        return await self.store.claim(request)  # type: ignore[no-any-return]


class Counting(Holdfast):
    """Counts how often its workers look for jobs."""

    def __init__(self, url: str, seam: Seam, looks: list[str]) -> None:
        self._looks = looks
        super().__init__(url, seam=seam)

    def _make_store(self) -> Store:
        return cast(Store, CountingStore(super()._make_store(), self._looks))


def test_fifty_idle_workers_look_for_jobs_less_than_eighty_times_a_second(local_url: str) -> None:
    looks: list[str] = []

    async def idle(simulation: Simulation) -> None:
        for number in range(IDLE_WORKERS):
            name = f"worker-{number}"
            app = Counting(local_url, simulation.seam(name), looks)
            app.job(nothing)
            simulation.start(name, app.run_worker)
        await simulation.pass_time(SETTLING_SECONDS)
        looks.clear()
        await simulation.pass_time(IDLE_SECONDS)

    with Simulation(seed=1) as simulation:
        simulation.run(idle(simulation))
    assert len(set(looks)) == IDLE_WORKERS
    # Seen: 66, as each polls after a second at most, and a quarter earlier on average.
    assert len(looks) <= 80 * IDLE_SECONDS
