"""Workers: their presence, and the circumstances of a waiting job."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from holdfast.domain.limits import AHEAD_COUNTED_MAX, WORKER_KEPT_LEASES, WORKER_LOST_LEASES
from holdfast.domain.messengers import MessengerStatus
from holdfast.domain.workers import Load, NewWorker
from holdfast.stores.protocol import Diagnosis, History, WorkerPresence
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Suite,
    circumstances,
    claim,
    claim_one,
    enqueue,
    failure,
    make_suspect,
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
    app_version="2026-11-18",
    queues={"mail": None, "images": 4},
    names=("resize", "send"),
    concurrency=100,
    suspects_only=False,
    lease_seconds=LEASE_SECONDS,
    up_seconds=60.0,
)
LIVE = MessengerStatus(
    name="rabbitmq",
    address="amqp://app:***@broker/",
    live=True,
    since_seconds=3.5,
    heard_seconds=0.5,
    heard=7,
    sent=3,
)
AWAY = MessengerStatus(
    name="other", live=False, since_seconds=60.0, because="refused: \u00fc '\"", dropped=2
)


def worker(**changes: Any) -> NewWorker:
    return msgspec.structs.replace(WORKER, **changes)


async def ids(store: Store) -> list[str]:
    return sorted(each.id for each in await store.workers())


async def ahead_of(store: Store, job_id: UUID) -> int:
    return (await circumstances(store, job_id)).ahead


@needs(WorkerPresence, Diagnosis)
class Presence(Suite):
    async def test_a_registered_worker_is_listed(self, store: Store, other: Store) -> None:
        assert await other.workers() == []
        await store.register(WORKER, Load(2, ("images",)))
        (seen,) = await other.workers()
        given = msgspec.structs.asdict(WORKER)
        up_seconds = given.pop("up_seconds")
        assert {name: getattr(seen, name) for name in given} == given
        assert (seen.running, seen.full_queues, seen.lost) == (2, ("images",), False)
        assert (seen.seen_at - seen.started_at).total_seconds() == up_seconds
        assert 0 <= seen.unseen_seconds < LEASE_SECONDS

    async def test_a_worker_can_serve_all_queues_or_suspects(self, store: Store) -> None:
        await store.register(worker(queues=None, suspects_only=True), Load())
        (seen,) = await store.workers()
        assert (seen.queues, seen.suspects_only) == (None, True)

    async def test_a_heartbeat_updates_the_load(self, store: Store, harness: Harness) -> None:
        await store.register(WORKER, Load())
        (before,) = await store.workers()
        await harness.advance(10)
        assert await store.heartbeat(WORKER.id, Load(7, ("mail",)))
        (after,) = await store.workers()
        assert (after.running, after.full_queues) == (7, ("mail",))
        assert (after.seen_at - after.started_at).total_seconds() >= 69
        assert (before.seen_at - before.started_at).total_seconds() == 60

    async def test_a_heartbeat_updates_the_messengers(self, store: Store) -> None:
        await store.register(WORKER, Load())
        assert [each.messengers for each in await store.workers()] == [()]
        for reported in ((LIVE, AWAY), (AWAY,), ()):
            assert await store.heartbeat(WORKER.id, Load(messengers=reported))
            assert [each.messengers for each in await store.workers()] == [reported]
        await store.register(WORKER, Load(messengers=(LIVE,)))
        assert [each.messengers for each in await store.workers()] == [(LIVE,)]

    async def test_each_boot_is_a_worker_of_its_own(self, store: Store, other: Store) -> None:
        await store.register(WORKER, Load())
        await other.register(worker(id="host:7:b"), Load())
        assert await ids(store) == ["host:7:a", "host:7:b"]
        await store.deregister(WORKER.id)
        assert await ids(store) == ["host:7:b"]

    async def test_a_heartbeat_of_an_unknown_worker_says_so(self, store: Store) -> None:
        assert not await store.heartbeat(WORKER.id, Load())
        await store.deregister(WORKER.id)
        assert await store.workers() == []
        await store.register(WORKER, Load())
        await store.register(WORKER, Load(3))
        assert [each.running for each in await store.workers()] == [3]

    async def test_a_silent_worker_is_lost(self, store: Store, harness: Harness) -> None:
        await store.register(WORKER, Load())
        await harness.advance(WORKER_LOST_LEASES * LEASE_SECONDS - 5)
        assert [each.lost for each in await store.workers()] == [False]
        await harness.advance(6)
        assert [each.lost for each in await store.workers()] == [True]
        assert await store.heartbeat(WORKER.id, Load())
        assert [each.lost for each in await store.workers()] == [False]

    @needs(History)
    async def test_upkeep_deletes_long_lost_workers(self, store: Store, harness: Harness) -> None:
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

    async def test_circumstances_include_the_job_and_the_workers(self, store: Store) -> None:
        await store.register(WORKER, Load(1))
        job = await claim_one(store)
        found = await circumstances(store, job.id)
        assert (found.job, found.ahead, found.suspect) == (await recorded(store, job.id), 0, False)
        assert [each.id for each in found.workers] == [WORKER.id]
        await store.settle([success(job)])
        assert (await circumstances(store, job.id)).job == await recorded(store, job.id)

    async def test_circumstances_include_the_last_failed_attempt(self, store: Store) -> None:
        job = await claim_one(store)
        assert (await circumstances(store, job.id)).last_attempt is None
        await store.settle([failure(job, delay_seconds=60)])
        failed = await circumstances(store, job.id)
        assert failed.last_attempt is not None
        assert failed.last_attempt.error_code == "BROKEN"
        # The fence tells a retry from a snooze.
        assert failed.last_attempt.fence == failed.job.fence - 1
        await store.retry(job.id)
        (again,) = await claim(store)
        await store.settle([snooze(again, 60)])
        snoozed = await circumstances(store, job.id)
        assert snoozed.last_attempt == failed.last_attempt
        assert snoozed.last_attempt.fence < snoozed.job.fence - 1

    async def test_jobs_ahead_are_those_claimed_before(self, store: Store) -> None:
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

    async def test_jobs_ahead_are_counted_up_to_a_limit(self, store: Store) -> None:
        await store.enqueue([new_job(priority=1) for _ in range(AHEAD_COUNTED_MAX - 1)])
        await store.enqueue([new_job(priority=2) for _ in range(3)])
        last = await enqueue(store, priority=3)
        assert await ahead_of(store, last) == AHEAD_COUNTED_MAX + 1

    async def test_a_suspect_is_marked_and_is_ahead_of_no_job(self, store: Store) -> None:
        suspect = await make_suspect(store)
        other = await enqueue(store)
        assert (await circumstances(store, suspect)).suspect
        found = await circumstances(store, other)
        assert (found.suspect, found.ahead) == (False, 0)
