"""A transaction that is held open keeps vacuum from clearing what claimed jobs leave behind. What a
worker's statements read does not grow with that, and no job is overlooked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from time import time_ns
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.ids import IdMaker
from holdfast.domain.job import Claimed, NewJob, Settlement
from holdfast.domain.states import State
from holdfast.stores.postgres import PostgresStore
from holdfast.stores.postgres.caps import BUSY_LOOK_SECONDS
from holdfast.stores.postgres.lanes import LATE_MAX, SCAN_SECONDS, SCAN_SHARE
from holdfast.stores.protocol import Claim
from tests.support.locks import waits_for_a_lock
from tests.support.processes import wait_until
from tests.support.seams import MeteredSeam

pytestmark = pytest.mark.both_postgres

DEAD = 20_000
FEW = 30  # entries: of a few jobs, in a few indexes
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
A_DAY = timedelta(days=1)
SLOW_SCAN_SECONDS = 1.0
IDS = IdMaker(MeteredSeam().random)
# Jobs that were claimed and ended an hour ago.
PAST = f"""
INSERT INTO holdfast.jobs (id, name, queue, priority, arguments, max_attempts, run_at)
SELECT gen_random_uuid(), 'resize', $1, 0, '{{}}', 5, now() - interval '1 hour'
FROM generate_series(1, {DEAD})
"""
CLAIMED = """
UPDATE holdfast.jobs
SET state = 'running', attempt = 1, fence = 1, lease_owner = 'gone', started_at = now(),
    lease_expires_at = now() - interval '1 hour'
WHERE queue = $1
"""
ENDED = "DELETE FROM holdfast.jobs WHERE queue = $1"
# Jobs that were just claimed, and have ended.
JUST_CLAIMED = """
UPDATE holdfast.jobs
SET state = 'running', attempt = 1, fence = 1, lease_owner = 'quick', started_at = now(),
    lease_expires_at = now() + interval '20 seconds'
WHERE queue = $1
"""
LOCK_CAPS = "SELECT queues FROM holdfast.lock_caps(NULL, '{}', 30, NULL, NULL, 0)"
# The look was a second ago, but the database's clock was set back by five since.
LOCK_CAPS_SET_BACK = """
SELECT queues FROM holdfast.lock_caps(
    NULL, '{}', 30, NULL, clock_timestamp() + interval '4 seconds', 1
)
"""
LOOK_SET_BACK = """
SELECT first_lease < clock_timestamp() + interval '31 seconds'
FROM holdfast.look_for_first_lease(
    clock_timestamp() + interval '40 seconds', clock_timestamp() + interval '37 seconds', 3, 0
)
"""


def job(queue: str = "images", run_at: datetime | None = None, priority: int = 0) -> NewJob:
    return NewJob(
        id=IDS.make(time_ns() // 1_000_000),
        name="resize",
        arguments=b"{}",
        queue=queue,
        priority=priority,
        run_at=run_at,
    )


class Worker(PostgresStore):
    """Its scans take as long as the test says, by its own clock, and fail if the test says so."""

    scan_seconds = 0.0
    scans_fail: Exception | None = None

    def __init__(self, url: str) -> None:
        self.seam = MeteredSeam()
        super().__init__(url, self.seam)

    async def _fetch_aside(self, name: str, /, **values: Any) -> Sequence[Any]:
        if name == "scan_lanes":
            self.pass_time(self.scan_seconds)
            if self.scans_fail is not None:
                raise self.scans_fail
        return await super()._fetch_aside(name, **values)

    async def take(
        self, limit: int = 10, queues: Sequence[str] | None = None, lease_seconds: float = 30.0
    ) -> list[Claimed]:
        """Claim, and wait for the scan that this may have started."""
        claim = Claim("worker", limit, lease_seconds, ["resize"], queues=queues)
        claimed = await self.claim(claim)
        await asyncio.gather(*self._claimer._scans)
        return list(claimed)

    async def handle(self, limit: int = 10, queues: Sequence[str] | None = None) -> list[UUID]:
        claimed = await self.take(limit, queues)
        await self.settle(
            [
                Settlement(job_id=each.id, fence=each.fence, state=State.SUCCEEDED, result=b"null")
                for each in claimed
            ]
        )
        return [each.id for each in claimed]

    async def find_fronts_far(self) -> None:
        """Handle a job and scan twice, and then no more until the test lets time pass."""
        await self.enqueue([job()])
        await self.handle()
        self.scan_seconds = SLOW_SCAN_SECONDS
        self.pass_time(SCAN_SECONDS)
        await self.handle()
        self.pass_time_until_a_scan()
        await self.handle()
        self.seam.entries.clear()

    @property
    def first_lease_looked_at(self) -> datetime:
        looked_at = self._caps._first_lease.looked_at
        assert looked_at is not None
        return looked_at

    def pass_time(self, seconds: float) -> None:
        """On the worker's clock. The database's does not move; so that it doesn't look set back,
        the worker's last look moves with its clock."""
        self.seam.passed_seconds += seconds
        known = self._caps._first_lease
        self._caps._first_lease = known._replace(known_at=known.known_at + seconds)

    def pass_time_until_a_scan(self) -> None:
        self.pass_time(2 * SCAN_SHARE * SLOW_SCAN_SECONDS)

    def most(self, *statements: str) -> int:
        """The most entries that one of these statements read since the last call. Without names,
        of all but scans."""
        counts = [
            read
            for name, reads in self.seam.entries.items()
            for read in reads
            if name in statements or (not statements and name != "scan_lanes")
        ]
        self.seam.entries.clear()
        return max(counts)


class Past:
    """Adds what is dead, and keeps it."""

    def __init__(self, connection: asyncpg.Connection, old: asyncpg.Connection) -> None:
        self._connection = connection
        self._old = old

    async def add(self, queue: str = "images", claimed: str = CLAIMED) -> None:
        for statement in (PAST, claimed, ENDED):
            await self._connection.execute(statement, queue)

    async def fetchval(self, statement: str) -> Any:
        return await self._connection.fetchval(statement)

    async def let_minutes_pass_for_caps(self, minutes: int = 3) -> None:
        await self._connection.execute(
            "UPDATE holdfast.queues SET shortest_since = shortest_since - $1 * interval '1 minute',"
            " shortest_seen_at = shortest_seen_at - $1 * interval '1 minute'",
            minutes,
        )

    async def release(self) -> None:
        """End the transaction, and vacuum."""
        await self._old.execute("ROLLBACK")
        await self._connection.execute("VACUUM holdfast.jobs")


@pytest.fixture
async def worker(postgres_url: str) -> AsyncIterator[Worker]:
    worker = Worker(postgres_url)
    await worker.migrate()
    yield worker
    await worker.close()


@pytest.fixture
async def other(worker: Worker, postgres_url: str) -> AsyncIterator[Worker]:
    other = Worker(postgres_url)
    yield other
    await other.close()


@pytest.fixture
async def past(worker: Worker, postgres_url: str) -> AsyncIterator[Past]:
    connection, old = await asyncpg.connect(postgres_url), await asyncpg.connect(postgres_url)
    await old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await old.fetch("SELECT FROM holdfast.attempts")
    past = Past(connection, old)
    await past.add()
    yield past
    await connection.close()
    await old.close()


async def test_a_worker_that_has_scanned_reads_nothing_that_is_dead(
    worker: Worker, past: Past
) -> None:
    assert await worker.handle() == []
    assert worker.most() >= DEAD  # that is what the next claims would read, again and again
    await worker.find_fronts_far()
    for _ in range(3):
        jobs = [job(), job()]
        await worker.enqueue(jobs)
        assert await worker.handle() == [each.id for each in jobs]
    assert worker.most() <= FEW


async def test_an_idle_worker_reads_nothing_that_is_dead(worker: Worker, past: Past) -> None:
    await worker.find_fronts_far()
    for _ in range(3):
        assert await worker.handle() == []
    assert worker.most() <= FEW
    await past.add()  # by others, while it waited for its next poll
    worker.pass_time(60.0)
    await worker.handle()
    worker.seam.entries.clear()
    await worker.handle()
    assert worker.most() <= FEW


async def test_a_new_worker_begins_where_others_are(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.find_fronts_far()
    added = job()
    await other.enqueue([added])
    assert await other.handle() == [added.id]
    assert other.most() <= FEW


async def test_a_worker_with_a_group_of_queues_reads_nothing_that_is_dead(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.find_fronts_far()
    await other.enqueue([job(), job("others")])
    assert len(await other.handle(queues=["images"])) == 1
    assert other.most() <= FEW


async def test_caps_are_counted_without_what_is_dead(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.cap("images", 2)
    await worker.find_fronts_far()
    jobs = [job() for _ in range(4)]
    await other.enqueue(jobs)
    assert len(await worker.take()) == 2
    assert await worker.take() == []
    assert await other.handle(queues=["others"]) == []
    assert other.most("claim_with_caps") <= FEW  # it serves no queue with a cap
    assert worker.most("claim_onwards_with_caps") <= FEW
    worker.pass_time(BUSY_LOOK_SECONDS)  # then it looks at the caps again
    assert await worker.take() == []
    assert worker.most() <= FEW


async def test_a_cap_counts_a_lease_that_has_expired_among_what_is_dead(
    worker: Worker, other: Worker, past: Past, postgres_url: str
) -> None:
    await other.enqueue([job(), job()])
    assert len(await other.take(1)) == 1
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(
        "UPDATE holdfast.jobs SET lease_expires_at = now() - interval '10 minutes'"
        " WHERE state = 'running'"
    )
    await connection.close()
    await other.cap("images", 1)
    assert await worker.take() == []
    worker.pass_time_until_a_scan()
    for _ in range(2):  # the second one counts from where the scan says
        assert await worker.take() == []


async def test_counts_for_caps_skip_the_leases_of_jobs_that_just_ended(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.cap("images", 2)
    await worker.find_fronts_far()
    await past.let_minutes_pass_for_caps()
    await past.add(claimed=JUST_CLAIMED)
    worker.pass_time_until_a_scan()
    await worker.take()
    worker.seam.entries.clear()
    await other.enqueue([job() for _ in range(4)])
    assert len(await worker.take()) == 2
    assert await worker.take() == []
    assert worker.most("claim_onwards_with_caps") <= FEW


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_cap_counts_leases_that_are_shorter_than_earlier_ones(
    worker: Worker, other: Worker, past: Past, is_known: bool
) -> None:
    """Others take leases that end before the first one that this worker knows of, and before the
    bound that it would use if all were as long."""
    await worker.cap("images", 1)
    await worker.find_fronts_far()
    if is_known:
        await other.enqueue([job()])
        assert len(await other.handle()) == 1
        await past.let_minutes_pass_for_caps()
    worker.pass_time_until_a_scan()
    assert await worker.take() == []
    await other.enqueue([job(), job()])
    assert len(await other.take(lease_seconds=3.0)) == 1
    for _ in range(2):
        assert await worker.take() == []
        worker.pass_time_until_a_scan()


async def test_a_restored_cap_counts_what_was_claimed_while_it_was_lifted(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.cap("images", 1)
    await worker.find_fronts_far()
    await past.let_minutes_pass_for_caps()
    await other.cap("images", None)
    await other.enqueue([job(), job()])
    worker.pass_time_until_a_scan()
    assert await worker.take(queues=["others"]) == []  # looks up the first lease
    assert len(await other.take(1, lease_seconds=3.0)) == 1
    await other.cap("images", 1)
    assert await worker.take() == []


async def test_a_longer_lease_is_the_shortest_after_ten_minutes_without_a_shorter_one(
    worker: Worker, past: Past
) -> None:
    await worker.cap("images", 1)
    noted = "SELECT shortest_lease_seconds FROM holdfast.queues"
    await worker.enqueue([job(), job()])
    await worker.take(lease_seconds=3.0)
    await worker.take()
    assert await past.fetchval(noted) == 3.0
    await past.let_minutes_pass_for_caps(11)
    await worker.take()
    assert await past.fetchval(noted) == 30.0


async def test_a_look_that_a_claim_delays_leaves_the_last_one_in_use(
    worker: Worker, past: Past, postgres_url: str
) -> None:
    await worker.cap("images", 1)
    await worker.find_fronts_far()
    before = worker.first_lease_looked_at
    connection = await asyncpg.connect(postgres_url)
    async with connection.transaction():
        assert await connection.fetchval(LOCK_CAPS) == ["images"]
        worker.pass_time_until_a_scan()
        await worker.take()
        assert worker.first_lease_looked_at == before
    worker.pass_time_until_a_scan()
    await worker.take()
    assert worker.first_lease_looked_at > before
    await connection.close()


async def test_caps_ignore_a_look_from_before_the_clock_was_set_back(
    worker: Worker, past: Past
) -> None:
    await worker.cap("images", 1)
    await worker.enqueue([job()])
    assert len(await worker.take()) == 1
    await past.let_minutes_pass_for_caps()
    assert await past.fetchval(LOCK_CAPS_SET_BACK) == []


async def test_a_look_ignores_the_one_from_before_the_clock_was_set_back(
    worker: Worker, past: Past
) -> None:
    await worker.cap("images", 1)
    await worker.enqueue([job()])
    assert len(await worker.take()) == 1
    assert await past.fetchval(LOOK_SET_BACK)


async def test_a_lease_begins_when_caps_have_been_counted_however_late_that_is(
    worker: Worker, past: Past, postgres_url: str
) -> None:
    await worker.cap("images", 1)
    await worker.take()  # looks up the caps, too
    await worker.enqueue([job()])
    connection = await asyncpg.connect(postgres_url)
    async with connection.transaction():
        await connection.execute("LOCK TABLE holdfast.queues IN ACCESS EXCLUSIVE MODE")
        claiming = asyncio.create_task(worker.take())
        await wait_until(lambda: waits_for_a_lock(connection), "a claim that waits for the lock")
        counted_at = await connection.fetchval("SELECT clock_timestamp()")
    assert len(await claiming) == 1
    ends_at = await connection.fetchval("SELECT min(lease_expires_at) FROM holdfast.jobs")
    assert ends_at >= counted_at + timedelta(seconds=30)
    await connection.close()


async def test_a_cap_that_is_set_again_to_any_number_keeps_the_shortest_lease(
    worker: Worker, past: Past
) -> None:
    await worker.cap("images", 1)
    await worker.enqueue([job()])
    await worker.take()
    noted = "SELECT shortest_lease_seconds FROM holdfast.queues"
    for cap in (1, 2):
        await worker.cap("images", cap)
        assert await past.fetchval(noted) == 30.0


async def test_what_came_in_behind_is_found_by_the_next_scan(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.find_fronts_far()
    jobs = [job(run_at=LONG_AGO), job("another"), job(priority=-5), job(priority=5)]
    await other.enqueue(jobs)
    assert await worker.handle() == []
    worker.pass_time_until_a_scan()
    found = [each for _ in range(3) for each in await worker.handle()]
    assert set(found) == {each.id for each in jobs}
    assert worker.most() <= FEW


async def test_a_few_jobs_behind_are_claimed_without_a_walk_over_what_is_dead(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.find_fronts_far()
    behind = [job(run_at=LONG_AGO + number * A_DAY) for number in range(LATE_MAX - 1)]
    await other.enqueue(behind)
    worker.pass_time_until_a_scan()
    # The first claim may be over before the scan is.
    found = [each for _ in range(3) for each in await worker.handle(5)]
    after = job()
    await other.enqueue([after])
    found += await worker.handle(100)
    assert found == [each.id for each in (*behind, after)]
    assert worker.most() <= FEW


async def test_many_jobs_behind_are_walked_in_order(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.find_fronts_far()
    behind = [job(run_at=LONG_AGO + number * A_DAY) for number in range(2 * LATE_MAX)]
    await other.enqueue(behind)
    worker.pass_time_until_a_scan()
    found = [each for _ in range(6) for each in await worker.handle(LATE_MAX // 2)]
    assert found == [each.id for each in behind]


async def test_jobs_behind_in_many_lanes_are_not_claimed_one_by_one(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.find_fronts_far()
    behind = [job(f"queue-{number}", LONG_AGO) for number in range(2 * LATE_MAX)]
    await other.enqueue(behind)
    worker.pass_time_until_a_scan()
    found = [each for _ in range(2) for each in await worker.handle(100)]
    assert set(found) == {each.id for each in behind}
    assert "claim_named" not in worker.seam.entries


async def test_a_worker_that_may_not_scan_finds_what_came_in_behind(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.find_fronts_far()
    worker.scans_fail = ConfigurationError("this login may not call scan_lanes")
    worker.pass_time_until_a_scan()
    assert await worker.handle() == []
    before = job(run_at=LONG_AGO)
    await other.enqueue([before])
    assert await worker.handle() == [before.id]


async def test_a_job_that_was_committed_a_moment_late_needs_no_scan(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.find_fronts_far()
    jobs = [job(), job()]
    late = job(run_at=datetime.now(UTC))
    await other.enqueue(jobs)
    assert await worker.handle() == [each.id for each in jobs]
    await other.enqueue([late])
    assert await worker.handle() == [late.id]


async def test_a_job_before_a_stale_note_is_found_by_the_first_scan(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.find_fronts_far()
    before = job(run_at=LONG_AGO)
    await worker.enqueue([before])
    found = [each for _ in range(2) for each in await other.handle()]
    assert found == [before.id]


async def test_jobs_of_a_queue_that_was_paused_are_found_when_it_resumes(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.find_fronts_far()
    await other.pause("images", None, None)
    worker.pass_time(BUSY_LOOK_SECONDS)
    jobs = [job() for _ in range(2)]
    await other.enqueue(jobs)
    for _ in range(3):
        assert await worker.handle() == []
        worker.pass_time(1.0)
    await other.resume("images")
    assert await worker.handle() == [each.id for each in jobs]


async def test_jobs_that_a_cap_holds_back_follow_when_others_end(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.cap("images", 1)
    await worker.find_fronts_far()
    jobs = [job() for _ in range(3)]
    await other.enqueue(jobs)
    assert [each for _ in jobs for each in await worker.handle()] == [each.id for each in jobs]


async def test_a_worker_walks_from_the_front_again_when_that_is_near(
    worker: Worker, other: Worker, past: Past
) -> None:
    await worker.find_fronts_far()
    await past.release()
    worker.pass_time_until_a_scan()
    await worker.handle()
    before = job(run_at=LONG_AGO)
    await other.enqueue([before])
    assert await worker.handle() == [before.id]
    assert "claim" in worker.seam.entries
