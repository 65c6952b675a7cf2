"""What a claimer on PostgreSQL remembers of its lanes costs no job its turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from time import time_ns
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.ids import IdMaker
from holdfast.domain.job import Claimed, NewJob
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.caps import Caps
from holdfast.stores.postgres.claim import Claimer
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.lanes import FULL_CLAIMS_BEFORE_REMEMBERING, SCAN_SHARE
from holdfast.stores.protocol import Claim
from tests.support.processes import wait_until
from tests.support.seams import HandSeam

pytestmark = pytest.mark.both_postgres

A_FEW = 3
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SEAM = Seam()
IDS = IdMaker(SEAM.random)


def job(queue: str = "images", priority: int = 0, run_at: datetime | None = None) -> NewJob:
    return NewJob(
        id=IDS.make(time_ns() // 1_000_000),
        name="resize",
        arguments=b"{}",
        queue=queue,
        priority=priority,
        run_at=run_at,
    )


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_url, SEAM)
    await store.migrate()
    yield store
    await store.close()


@pytest.fixture
async def other(store: PostgresStore, postgres_url: str) -> AsyncIterator[PostgresStore]:
    other = PostgresStore(postgres_url, SEAM)
    yield other
    await other.close()


async def claim(store: PostgresStore, limit: int) -> list[Claimed]:
    return list(await store.claim(Claim("worker", limit, 30.0, ["resize"])))


async def make_it_remember(store: PostgresStore, left: int) -> list[UUID]:
    """Let the claimer take full batches until the next one goes on from where it was."""
    taken = FULL_CLAIMS_BEFORE_REMEMBERING + 1
    jobs = [job() for _ in range(taken + left)]
    await store.enqueue(jobs)
    for _ in range(taken):
        assert len(await claim(store, 1)) == 1
    await scanned(store)
    return [each.id for each in jobs[taken:]]


async def scanned(store: PostgresStore) -> None:
    """Wait for the scan that a claim has started: on a busy machine the claim does not."""
    await asyncio.gather(*store._claimer._scans)


async def test_a_claimer_that_goes_on_takes_the_rest_in_order(store: PostgresStore) -> None:
    rest = await make_it_remember(store, left=7)
    claimed = [each.id for _ in range(4) for each in await claim(store, 2)]
    assert claimed == rest


@pytest.mark.parametrize(
    ("queue", "priority", "run_at"),
    [("images", 5, None), ("images", -5, None), ("another", 0, None), ("images", 0, LONG_AGO)],
    ids=["worse priority", "better priority", "new queue", "due before"],
)
async def test_what_came_in_behind_a_claimer_is_found_by_its_next_looks(
    store: PostgresStore,
    other: PostgresStore,
    queue: str,
    priority: int,
    run_at: datetime | None,
) -> None:
    rest = await make_it_remember(store, left=3)
    late = job(queue, priority, run_at)
    await other.enqueue([late])
    found: set[UUID] = set()

    async def look() -> bool:
        found.update(each.id for each in await claim(store, 10))
        return late.id in found

    # At once where a look at all lanes is quick; on a busy machine that may wait a little.
    await wait_until(look, "the job that came in late")
    assert found == {*rest, late.id}


class Busy(Seam):
    """A machine on which everything takes a third of a second, by its own clock."""

    def __init__(self) -> None:
        super().__init__()
        self._seconds = 0.0

    def monotonic(self) -> float:
        self._seconds += 1 / 3
        return self._seconds


async def test_a_busy_machine_keeps_no_claim_from_finding_what_has_just_come(
    store: PostgresStore, postgres_url: str
) -> None:
    """Nobody would look again before the next poll: it is the answer to a wake-up."""
    busy = PostgresStore(postgres_url, Busy())
    for _ in range(5):
        assert await claim(busy, 10) == []
        jobs = [job(), job()]
        await store.enqueue(jobs)
        assert [each.id for each in await claim(busy, 10)] == [each.id for each in jobs]
    await busy.close()


class Watched(PostgresStore):
    """Whose looks at the front of every lane are counted, and can be held up or refused."""

    looks = 0
    go: asyncio.Event | None = None
    error: Exception | None = None

    async def _fetch_aside(self, name: str, /, **values: Any) -> Sequence[Any]:
        if name == "scan_lanes":
            self.looks += 1
            if self.go is not None:
                await self.go.wait()
            if self.error is not None:
                raise self.error
        return await super()._fetch_aside(name, **values)

    async def remember(self, left: int, *, go: asyncio.Event | None = None) -> list[UUID]:
        """Go on from where it was; the next look is due, and held up. Answer what is left."""
        rest = await make_it_remember(self, left)
        self.looks, self.go = 0, go
        return rest


@pytest.fixture
async def watched(store: PostgresStore, postgres_url: str) -> AsyncIterator[Watched]:
    watched = Watched(postgres_url, HandSeam())
    yield watched
    await watched.close()


async def test_a_look_in_front_that_takes_long_holds_up_no_claim(
    watched: Watched, other: PostgresStore
) -> None:
    go = asyncio.Event()
    rest = await watched.remember(left=3, go=go)
    earlier = job(run_at=LONG_AGO)
    await other.enqueue([earlier])
    for expected in rest[:2]:
        assert [each.id for each in await claim(watched, 1)] == [expected]
    assert watched.looks == 1
    (scan,) = watched._claimer._scans
    go.set()
    await scan
    assert [each.id for each in await claim(watched, 1)] == [earlier.id]


class LateCaps(Caps):
    """Makes claims, and delivers them when the test says so."""

    def __init__(self, connections: Connections) -> None:
        super().__init__(connections, SEAM)
        self.made, self.deliver = asyncio.Event(), asyncio.Event()
        self.deliver.set()

    async def claim(self, name: str, claim: Claim, **values: object) -> Sequence[Any]:
        rows = await super().claim(name, claim, **values)
        self.made.set()
        await self.deliver.wait()
        return rows


class LateClaims(Watched):
    def __init__(self, url: str) -> None:
        seam = HandSeam()
        super().__init__(url, seam)
        self.late = LateCaps(self._connections)
        self._claimer = Claimer(self._fetch, self._fetch_aside, self.late, seam)


async def test_a_claim_that_is_under_way_does_not_pass_over_what_was_found_in_front(
    other: PostgresStore, postgres_url: str
) -> None:
    watched, go = LateClaims(postgres_url), asyncio.Event()
    rest = await watched.remember(left=2, go=go)
    earlier = job(run_at=LONG_AGO)
    await other.enqueue([earlier])
    watched.late.made.clear()
    watched.late.deliver.clear()
    under_way = asyncio.create_task(claim(watched, 1))
    await watched.late.made.wait()
    (scan,) = watched._claimer._scans
    go.set()
    await scan
    watched.late.deliver.set()
    assert [each.id for each in await under_way] == [rest[0]]
    assert [each.id for each in await claim(watched, 1)] == [earlier.id]
    await watched.close()


async def test_a_look_in_front_that_failed_keeps_no_claim_from_going_on(
    store: PostgresStore, postgres_url: str
) -> None:
    seam = HandSeam()
    watched = Watched(postgres_url, seam)
    rest = await watched.remember(left=3)
    watched.error, seam.step_seconds = StoreUnavailable("it took too long"), 1.0
    for expected in rest:
        assert [each.id for each in await claim(watched, 1)] == [expected]
    assert watched.looks == 1
    seam.seconds += 2 * SCAN_SHARE
    assert await claim(watched, 1) == []
    assert watched.looks == 2
    await watched.close()


async def test_a_store_that_is_closed_ends_a_look_in_front(watched: Watched) -> None:
    await watched.remember(left=1, go=asyncio.Event())
    assert len(await claim(watched, 1)) == 1
    (scan,) = watched._claimer._scans
    await watched.close()
    assert scan.cancelled()


async def told(store: PostgresStore, job_id: UUID) -> list[UUID]:
    request = Claim("worker", 10, 30.0, ["resize"], job_id=job_id)
    return [each.id for each in await store.claim(request)]


async def test_a_claim_that_is_told_of_a_job_takes_that_one_only(store: PostgresStore) -> None:
    jobs = [job(), job(), job()]
    await store.enqueue(jobs)
    assert await told(store, jobs[1].id) == [jobs[1].id]
    assert await told(store, jobs[1].id) == []
    assert [each.id for each in await claim(store, 10)] == [jobs[0].id, jobs[2].id]


async def test_a_claim_that_is_told_of_a_job_takes_nothing_that_may_not_run(
    store: PostgresStore, postgres_url: str
) -> None:
    late, unknown, paused = job(run_at=datetime(2999, 1, 1, tzinfo=UTC)), job(), job("paused")
    held, suspect, locked = job(), job(), job()
    unknown, held = replace(unknown, name="unknown"), replace(held, breaker="gateway")
    jobs = [late, unknown, paused, held, suspect, locked]
    await store.enqueue(jobs)
    await store.pause("paused", None, None)
    await store.open_breaker("gateway", None, None)
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(
        "UPDATE holdfast.jobs SET suspect = true, crashes = 1 WHERE id = $1", suspect.id
    )
    async with connection.transaction():
        await connection.execute("SELECT FROM holdfast.jobs WHERE id = $1 FOR UPDATE", locked.id)
        assert [await told(store, each.id) for each in jobs] == [[]] * len(jobs)
    await connection.close()
    assert await told(store, locked.id) == [locked.id]


async def test_a_claim_that_is_told_of_a_job_keeps_within_the_cap_of_its_queue(
    store: PostgresStore,
) -> None:
    jobs = [job(), job()]
    await store.enqueue(jobs)
    await store.cap("images", 1)
    assert await told(store, jobs[1].id) == [jobs[1].id]
    assert await told(store, jobs[0].id) == []


async def test_queues_of_equal_priority_take_turns(store: PostgresStore) -> None:
    queues = ["a", "b", "c"]
    await store.enqueue([job(queue) for queue in queues for _ in range(20)])
    served = [(await claim(store, 4))[0].queue for _ in range(15)]
    assert served == queues * 5


async def test_a_better_priority_goes_first_whatever_the_turn(store: PostgresStore) -> None:
    await store.enqueue([job("a"), job("b", priority=1), job("c", priority=-1), job("a")])
    claimed = [(await claim(store, 1))[0] for _ in range(4)]
    assert [each.priority for each in claimed] == [-1, 0, 0, 1]


async def test_a_store_works_again_after_its_connections_were_ended(
    store: PostgresStore, postgres_url: str
) -> None:
    await store.enqueue([job()])
    administrator = await asyncpg.connect(postgres_url)
    await administrator.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'holdfast' AND datname = current_database()"
    )
    await administrator.close()
    try:
        claimed = await claim(store, 1)
    except StoreUnavailable:
        claimed = await claim(store, 1)
    assert len(claimed) == 1
