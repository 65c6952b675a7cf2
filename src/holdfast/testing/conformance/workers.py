"""Workers that are seen, and the surroundings of a job that waits."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from holdfast.domain.limits import AHEAD_COUNTED_MAX, WORKER_KEPT_LEASES, WORKER_LOST_LEASES
from holdfast.domain.why import Circumstances
from holdfast.domain.workers import Load, NewWorker
from holdfast.stores.protocol import Diagnosis, History, WorkerPresence
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Needs,
    Suite,
    claim,
    claim_one,
    enqueue,
    failure,
    needs,
    new_id,
    new_job,
    recorded,
    snooze,
    success,
)

WORKER = NewWorker(
    id="host:7:a",
    host="host",
    pid=7,
    version="1.2.3",
    queues={"mail": None, "images": 4},
    names=("resize", "send"),
    concurrency=100,
    suspects_only=False,
    lease_seconds=LEASE_SECONDS,
    up_seconds=60.0,
)


def worker(**changes: Any) -> NewWorker:
    return msgspec.structs.replace(WORKER, **changes)


async def ids(store: Store) -> list[str]:
    return sorted(each.id for each in await store.workers())


async def around(store: Store, job_id: UUID) -> Circumstances:
    found = await store.circumstances(job_id)
    assert found is not None
    return found


async def ahead_of(store: Store, job_id: UUID) -> int:
    return (await around(store, job_id)).ahead


class Presence(Suite):
    all_need: Needs = (WorkerPresence, Diagnosis)

    async def test_a_worker_that_came_is_seen_by_all_as_it_told(
        self, store: Store, other: Store
    ) -> None:
        assert await other.workers() == []
        await store.register(WORKER, Load(2, ("images",)))
        (seen,) = await other.workers()
        told = msgspec.structs.asdict(WORKER)
        up_seconds = told.pop("up_seconds")
        assert {name: getattr(seen, name) for name in told} == told
        assert (seen.running, seen.full_queues, seen.lost) == (2, ("images",), False)
        assert (seen.seen_at - seen.started_at).total_seconds() == up_seconds
        assert 0 <= seen.unseen_seconds < LEASE_SECONDS

    async def test_a_worker_of_all_queues_and_one_for_suspects_are_told_apart(
        self, store: Store
    ) -> None:
        await store.register(worker(queues=None, suspects_only=True), Load())
        (seen,) = await store.workers()
        assert (seen.queues, seen.suspects_only) == (None, True)

    async def test_a_worker_tells_its_load_again_and_again(
        self, store: Store, harness: Harness
    ) -> None:
        await store.register(WORKER, Load())
        (before,) = await store.workers()
        await harness.advance(10)
        assert await store.heartbeat(WORKER.id, Load(7, ("mail",)))
        (after,) = await store.workers()
        assert (after.running, after.full_queues) == (7, ("mail",))
        assert (after.seen_at - after.started_at).total_seconds() >= 69
        assert (before.seen_at - before.started_at).total_seconds() == 60

    async def test_two_boots_of_one_name_are_two_workers(self, store: Store, other: Store) -> None:
        await store.register(WORKER, Load())
        await other.register(worker(id="host:7:b"), Load())
        assert await ids(store) == ["host:7:a", "host:7:b"]
        await store.deregister(WORKER.id)
        assert await ids(store) == ["host:7:b"]

    async def test_who_is_not_known_is_told_so(self, store: Store) -> None:
        assert not await store.heartbeat(WORKER.id, Load())
        await store.deregister(WORKER.id)
        assert await store.workers() == []
        await store.register(WORKER, Load())
        await store.register(WORKER, Load(3))
        assert [each.running for each in await store.workers()] == [3]

    async def test_who_is_not_seen_for_some_leases_is_lost_until_it_is_seen_again(
        self, store: Store, harness: Harness
    ) -> None:
        await store.register(WORKER, Load())
        await harness.advance(WORKER_LOST_LEASES * LEASE_SECONDS - 5)
        assert [each.lost for each in await store.workers()] == [False]
        await harness.advance(6)
        assert [each.lost for each in await store.workers()] == [True]
        assert await store.heartbeat(WORKER.id, Load())
        assert [each.lost for each in await store.workers()] == [False]

    @needs(History)
    async def test_upkeep_forgets_who_was_lost_long_ago_in_bounded_steps(
        self, store: Store, harness: Harness
    ) -> None:
        for number in range(3):
            await store.register(worker(id=f"old {number}"), Load())
        await harness.advance(WORKER_KEPT_LEASES * LEASE_SECONDS - 5)
        await store.register(WORKER, Load())
        assert await store.tidy(100) == 0
        await harness.advance(6)
        assert await store.tidy(2) == 2
        assert await store.tidy(2) == 1
        assert await ids(store) == [WORKER.id]

    async def test_a_job_that_does_not_exist_has_no_circumstances(self, store: Store) -> None:
        assert await store.circumstances(new_id()) is None

    async def test_the_circumstances_hold_the_job_and_the_workers(self, store: Store) -> None:
        await store.register(WORKER, Load(1))
        job = await claim_one(store)
        held = await around(store, job.id)
        assert (held.job, held.ahead, held.suspect) == (await recorded(store, job.id), 0, False)
        assert [each.id for each in held.workers] == [WORKER.id]
        await store.settle([success(job)])
        assert (await around(store, job.id)).job == await recorded(store, job.id)

    async def test_the_last_attempt_that_failed_is_told(self, store: Store) -> None:
        job = await claim_one(store)
        assert (await around(store, job.id)).last_attempt is None
        await store.settle([failure(job, delay_seconds=60)])
        failed = await around(store, job.id)
        assert failed.last_attempt is not None
        assert failed.last_attempt.error_code == "BROKEN"
        # By this the answer tells a retry from a snooze.
        assert failed.last_attempt.fence == failed.job.fence - 1
        await store.retry(job.id)
        (again,) = await claim(store)
        await store.settle([snooze(again, 60)])
        snoozed = await around(store, job.id)
        assert snoozed.last_attempt == failed.last_attempt
        assert snoozed.last_attempt.fence < snoozed.job.fence - 1

    async def test_ahead_are_the_due_jobs_of_the_queue_that_are_claimed_before(
        self, store: Store
    ) -> None:
        first = await enqueue(store, queue="q", priority=5)
        second = await enqueue(store, queue="q", priority=5)
        await enqueue(store, queue="q", priority=6)
        await enqueue(store, queue="other", priority=1)
        await enqueue(store, queue="q", priority=1, delay_seconds=60.0)
        assert [await ahead_of(store, job_id) for job_id in (first, second)] == [0, 1]
        await enqueue(store, queue="q", priority=1)
        assert [await ahead_of(store, job_id) for job_id in (first, second)] == [1, 2]
        await claim(store, 2, queues=["q"])
        assert [await ahead_of(store, job_id) for job_id in (first, second)] == [0, 0]

    async def test_jobs_ahead_are_counted_to_a_limit(self, store: Store) -> None:
        await store.enqueue([new_job(priority=1) for _ in range(AHEAD_COUNTED_MAX - 1)])
        await store.enqueue([new_job(priority=2) for _ in range(3)])
        last = await enqueue(store, priority=3)
        assert await ahead_of(store, last) == AHEAD_COUNTED_MAX + 1

    async def test_a_suspect_is_told_and_is_ahead_of_nobody(self, store: Store) -> None:
        suspect = await enqueue(store)
        for _ in range(2):
            assert [await claim(store), await store.reclaim(10, "worker", "died")]
        other = await enqueue(store)
        assert (await around(store, suspect)).suspect
        found = await around(store, other)
        assert (found.suspect, found.ahead) == (False, 0)
