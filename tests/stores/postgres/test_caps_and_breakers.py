"""Caps and breakers hold whoever comes at the same moment, each on a connection of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from time import time_ns
from typing import Any

import asyncpg
import pytest

from holdfast.domain.breakers import Strike
from holdfast.domain.ids import IdMaker
from holdfast.domain.job import Claimed, NewJob, Settlement
from holdfast.domain.limits import PROBE_LOOK_MAX
from holdfast.domain.states import State
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.caps import BUSY_LOOK_SECONDS, LOOK_SECONDS
from holdfast.stores.postgres.rows import SQL
from holdfast.stores.protocol import Claim
from tests.support.locks import waits_for_a_lock
from tests.support.processes import wait_until
from tests.support.seams import HandSeam

pytestmark = pytest.mark.both_postgres

SEAM = Seam()
IDS = IdMaker(SEAM.random)
STORES = 4
ROUNDS = 12
FAILURES_MAX = 5
# The last one is for those who know the name.
HOLD_MANY = """
INSERT INTO holdfast.jobs (
    id, name, queue, priority, arguments, max_attempts, run_at, held_run_at, breaker
)
SELECT
    (lpad(to_hex(i), 12, '0') || '-7000-8000-000000000000')::uuid,
    CASE WHEN i = $1 THEN 'resize' ELSE 'other' END, 'q', 0, '{}', 5, 'infinity', now(), 'gateway'
FROM generate_series(1, $1::integer) AS i
"""


def job(queue: str = "q", priority: int = 0, **changes: Any) -> NewJob:
    return NewJob(
        id=IDS.make(time_ns() // 1_000_000),
        name=changes.pop("name", "resize"),
        arguments=b"{}",
        queue=queue,
        priority=priority,
        **changes,
    )


def strike(key: str = "gateway", failures_max: int = FAILURES_MAX) -> Strike:
    return Strike(key, failures_max, window_seconds=600.0, probe_seconds=600.0, because="no answer")


def request(limit: int, names: Sequence[str] = ("resize",)) -> Claim:
    return Claim("worker", limit, 30.0, names)


@pytest.fixture
async def stores(postgres_url: str) -> AsyncIterator[list[PostgresStore]]:
    """Some that share nothing but the database."""
    async with AsyncExitStack() as stack:
        stores = [PostgresStore(postgres_url, SEAM) for _ in range(STORES)]
        for store in stores:
            stack.push_async_callback(store.close)
        await stores[0].migrate()
        yield stores


@pytest.fixture
def store(stores: list[PostgresStore]) -> PostgresStore:
    return stores[0]


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(postgres_url)
    yield connection
    await connection.close()


@asynccontextmanager
async def begun(connection: asyncpg.Connection, name: str, **values: Any) -> AsyncIterator[None]:
    """Run a statement in a transaction that is committed at the end of the block."""
    statement = SQL[name]
    async with connection.transaction():
        await connection.fetch(statement.sql, *statement.arguments(values))
        yield


async def settle(store: PostgresStore, claimed: Sequence[Claimed]) -> None:
    done = [
        Settlement(job_id=each.id, fence=each.fence, state=State.SUCCEEDED, result=b"null")
        for each in claimed
    ]
    assert await store.settle(done) == []


async def open_by_failures(store: PostgresStore, *keys: str) -> None:
    for key in keys or ("gateway",):
        await store.strike([strike(key)] * FAILURES_MAX)


async def hold_all(store: PostgresStore) -> int:
    moved = 0
    while step := (await store.park(100)).moved:
        moved += step
    return moved


async def make_probes_due(connection: asyncpg.Connection) -> None:
    await connection.execute("UPDATE holdfast.breakers SET next_probe_at = now()")


async def test_a_cap_is_never_exceeded_however_many_claim_at_once(
    stores: list[PostgresStore],
) -> None:
    jobs = [job(queue, priority) for queue in ("q", "r") for priority in (0, 1) for _ in range(30)]
    await stores[0].enqueue([*jobs, *(job("free") for _ in range(20))])
    await stores[0].cap("q", 3)
    await stores[0].cap("r", 1)
    running: list[Claimed] = []
    ended: Counter[str] = Counter()
    for number in range(ROUNDS * 6):
        answers = await asyncio.gather(
            *(each.claim(request(limit)) for limit, each in enumerate(stores, 1)),
            *(each.claim(request(2)) for each in stores),
        )
        running += [each for answer in answers for each in answer]
        at_once = Counter(each.queue for each in running)
        assert at_once["q"] <= 3
        assert at_once["r"] <= 1
        # Some of them, so that there is room now and then, in one queue or the other.
        leaving, running = running[number % 3 :], running[: number % 3]
        ended.update(each.queue for each in leaving)
        await settle(stores[0], leaving)
    assert ended["free"] == 20
    assert ended["q"] >= 50
    assert ended["r"] >= 20


async def test_what_one_claim_has_locked_is_left_to_it(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    await store.enqueue([job("q"), job("free")])
    await store.cap("q", 5)
    async with connection.transaction():
        await connection.execute("SELECT holdfast.lock_caps(NULL, '{}', 30, NULL, NULL, 0)")
        assert [each.queue for each in await store.claim(request(10))] == ["free"]
    assert [each.queue for each in await store.claim(request(10))] == ["q"]


async def test_suspects_and_probes_keep_within_a_cap_together_with_claims(
    stores: list[PostgresStore], connection: asyncpg.Connection
) -> None:
    keys = [f"key {number}" for number in range(6)]
    await stores[0].enqueue([job(breaker=key) for key in keys])
    await open_by_failures(stores[0], *keys)
    assert await hold_all(stores[0]) == len(keys)
    await stores[0].enqueue([job() for _ in range(20)])
    await connection.execute(
        "UPDATE holdfast.jobs SET suspect = true WHERE id IN"
        " (SELECT id FROM holdfast.jobs WHERE run_at < 'infinity' LIMIT 10)"
    )
    await stores[0].cap("q", 2)
    seen: set[str] = set()
    for number in range(ROUNDS):
        await make_probes_due(connection)
        # In another order each time, so that each is the first now and then.
        calls = [stores[1].claim_probes(request(9)), stores[2].claim(request(9))]
        answers = await asyncio.gather(*calls[:: 1 if number % 2 else -1])
        suspect = await stores[3].claim_suspect(request(1))
        running = [*answers[0], *answers[1], *([suspect] if suspect else [])]
        assert len(running) <= 2
        seen.update("probe" if each.probe else "suspect" for each in running)
        await settle(stores[0], running)
    assert seen == {"probe", "suspect"}


async def test_not_to_know_of_a_cap_costs_time_and_never_the_cap(
    store: PostgresStore, postgres_url: str
) -> None:
    seam = HandSeam()
    unaware = PostgresStore(postgres_url, seam)
    await store.enqueue([job() for _ in range(10)])
    assert len(await unaware.claim(request(1))) == 1
    await store.cap("q", 3)
    assert await unaware.claim(request(9)) == []
    seam.seconds += LOOK_SECONDS
    assert len(await unaware.claim(request(9))) == 2
    # The other way round: that there is none any longer.
    await store.cap("q", None)
    assert len(await unaware.claim(request(9))) == 7
    await unaware.close()


async def test_one_that_always_finds_jobs_gets_to_know_of_a_cap_as_well(
    store: PostgresStore, postgres_url: str
) -> None:
    seam = HandSeam()
    busy = PostgresStore(postgres_url, seam)
    await store.enqueue([job() for _ in range(9)])
    assert [each.queue for each in await busy.claim(request(1))] == ["q"]
    await store.cap("capped", 3)
    await store.enqueue([job("capped", priority=-1) for _ in range(5)])
    seam.seconds += LOOK_SECONDS
    assert [each.queue for each in await busy.claim(request(1))] == ["q"]
    seam.seconds += BUSY_LOOK_SECONDS
    assert [each.queue for each in await busy.claim(request(4))] == ["capped"] * 3 + ["q"]
    await busy.close()


async def test_of_failures_at_the_same_moment_exactly_so_many_cost_an_attempt(
    stores: list[PostgresStore],
) -> None:
    for number in range(ROUNDS):
        keys = [f"{number} a", f"{number} b"]
        answers = await asyncio.gather(
            # In both orders: nobody may wait for one who waits for him.
            *(each.strike([strike(key) for key in keys]) for each in stores * 2),
            *(each.strike([strike(key) for key in reversed(keys)]) for each in stores * 2),
        )
        assert sum(answer.count(False) for answer in answers) == 2 * FAILURES_MAX
    assert {seen.times_opened for seen in await stores[0].breakers()} == {1}


async def test_a_breaker_closes_when_those_who_hold_its_jobs_are_done(
    stores: list[PostgresStore], connection: asyncpg.Connection, postgres_url: str
) -> None:
    await stores[0].enqueue([job(breaker="gateway") for _ in range(3)])
    await open_by_failures(stores[0])
    watching = await asyncpg.connect(postgres_url)
    async with begun(connection, "park", limit=100):
        closing = asyncio.create_task(stores[1].close_breaker("gateway"))
        await wait_until(
            lambda: closing.done() or waits_for_a_lock(watching), "the close that waits"
        )
        # Whoever lets go at this moment must not take the jobs for gone.
        await stores[2].park(100)
    await watching.close()
    assert await closing
    await hold_all(stores[2])
    assert len(await stores[3].claim(request(9))) == 3


async def test_no_job_is_held_by_a_breaker_that_is_about_to_close(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    await store.enqueue([job(breaker="gateway")])
    await open_by_failures(store)
    async with begun(connection, "close_breaker", key="gateway", by_hand=True):
        assert (await store.park(100)).moved == 0
    assert await hold_all(store) == 0
    assert len(await store.claim(request(9))) == 1


async def test_a_breaker_opens_again_after_the_step_that_lets_its_jobs_go(
    store: PostgresStore, connection: asyncpg.Connection, postgres_url: str
) -> None:
    """Or that step would take for let go what was held behind its back."""
    await store.enqueue([job(breaker="gateway")])
    await open_by_failures(store)
    await hold_all(store)
    await store.close_breaker("gateway")
    watching = await asyncpg.connect(postgres_url)
    async with begun(connection, "lock_unparking", limit=100):
        opening = asyncio.create_task(store.open_breaker("gateway", None, None))
        await wait_until(
            lambda: opening.done() or waits_for_a_lock(watching), "the opening that waits"
        )
        assert not opening.done()
    await watching.close()
    await opening
    assert await store.claim(request(9)) == []


async def test_a_breaker_is_not_forgotten_while_another_has_it_hold_jobs(
    stores: list[PostgresStore], connection: asyncpg.Connection, postgres_url: str
) -> None:
    await stores[0].enqueue([job(breaker="gateway") for _ in range(3)])
    await open_by_failures(stores[0])
    watching = await asyncpg.connect(postgres_url)
    async with begun(connection, "park", limit=100):
        forgetting = asyncio.create_task(stores[1].close_breaker("gateway", forget=True))
        await wait_until(
            lambda: forgetting.done() or waits_for_a_lock(watching), "the forgetting that waits"
        )
    await watching.close()
    assert await forgetting
    assert await hold_all(stores[2]) == 3
    assert await stores[2].breakers() == []
    assert len(await stores[3].claim(request(9))) == 3


async def test_jobs_that_are_held_and_let_go_by_many_at_once_all_run_in_the_end(
    stores: list[PostgresStore], connection: asyncpg.Connection
) -> None:
    keys = ["a", "b", "c"]
    await stores[0].enqueue([job(breaker=key) for key in keys for _ in range(20)])
    for number in range(ROUNDS):
        await open_by_failures(stores[0], *keys)
        await asyncio.gather(
            *(each.park(7 + number % 5) for each in stores * 2),
            *(stores[number % STORES].close_breaker(key) for key in keys),
            *(each.park(100) for each in stores),
        )
    for key in keys:
        await stores[0].close_breaker(key)
    await hold_all(stores[0])
    assert not await connection.fetchval(
        "SELECT EXISTS (SELECT FROM holdfast.jobs WHERE run_at = 'infinity'"
        " OR held_run_at IS NOT NULL)"
    )
    assert len(await stores[0].claim(request(100))) == 60


async def test_of_all_who_want_a_probe_at_the_same_moment_one_gets_it(
    stores: list[PostgresStore], connection: asyncpg.Connection
) -> None:
    """Though the jobs that they could send ahead are not the same."""
    keys, names = ["a", "b"], ["resize", "scan", "print"]
    await stores[0].enqueue(
        [job(breaker=key, name=name) for key in keys for name in names for _ in range(ROUNDS)]
    )
    await open_by_failures(stores[0], *keys)
    await hold_all(stores[0])
    for _ in range(ROUNDS):
        await make_probes_due(connection)
        answers = await asyncio.gather(
            *(each.claim_probes(request(9, [name])) for name in names for each in stores)
        )
        probes = [each for answer in answers for each in answer]
        assert sorted(str(each.breaker) for each in probes) == keys


async def test_a_probe_is_found_behind_many_jobs_that_are_for_others(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    """One look reads a bounded number of them, and the next one goes on behind."""
    await open_by_failures(store)
    await connection.execute(HOLD_MANY, PROBE_LOOK_MAX * 5 // 2)
    await make_probes_due(connection)
    looks = [len(await store.claim_probes(request(9))) for _ in range(4)]
    assert looks == [0, 0, 1, 0]


async def test_a_worker_of_the_version_before_opens_a_breaker_as_it_did(
    store: PostgresStore, connection: asyncpg.Connection
) -> None:
    told = strike()._replace(failed_seconds_ago=2.0, worked_seconds_ago=1.0)
    await store.strike([told] * FAILURES_MAX)
    before = "SELECT holdfast.strike('gateway', '{5}', '{600}', '{600}', '{no answer}', 0.5)"
    answers = [await connection.fetchval(before) for _ in range(FAILURES_MAX + 1)]
    assert answers == [[False]] * FAILURES_MAX + [[True]]
