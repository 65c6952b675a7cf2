"""Queues: paused ones start no job, capped ones run at most that many at once."""

from __future__ import annotations

import asyncio

from holdfast.domain.queues import QueueStatus
from holdfast.domain.states import State
from holdfast.stores.protocol import Breakers, Diagnosis, ProgressNotes, QueueControl, Suspects
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Room,
    Suite,
    circumstances,
    claim,
    claim_alone,
    claim_one,
    claim_suspect,
    enqueue,
    job_in,
    make_suspect,
    needs,
    new_job,
    queue_status,
    recorded,
    release,
    success,
)


async def fill(store: Store, jobs: int, **changes: object) -> None:
    await store.enqueue([new_job(queue="q", **changes) for _ in range(jobs)])


@needs(QueueControl, Room.QUEUES)
class Pausing(Suite):
    async def test_no_worker_claims_from_a_paused_queue(self, store: Store, other: Store) -> None:
        waiting = await enqueue(store, queue="paused", priority=-5)
        going = await enqueue(store, queue="going")
        assert await store.pause("paused", "ann", "a look")
        assert await other.is_paused("paused")
        assert not await other.is_paused("going")
        assert [job.id for job in await claim(other)] == [going]
        assert await claim(other, queues=["paused"]) == []
        assert await other.claim_by_id(waiting, "worker", LEASE_SECONDS) is None
        found = await recorded(store, waiting)
        assert (found.state, found.fence, found.attempts) == (State.QUEUED, 0, 0)

    @needs(Suspects)
    async def test_a_pause_stops_the_suspects_of_its_queue_only(self, store: Store) -> None:
        paused = await make_suspect(store, queue="paused", priority=-5)
        going = await make_suspect(store, queue="going")
        await store.pause("paused", None, None)
        assert await store.suspects(["job"], None) == 1
        claimed = [await claim_suspect(store), await claim_suspect(store)]
        await store.resume("paused")
        claimed.append(await claim_suspect(store))
        assert [job and job.id for job in claimed] == [going, None, paused]

    @needs(ProgressNotes)
    async def test_running_jobs_of_a_paused_queue_finish(self, store: Store) -> None:
        job = await claim_one(store, queue="q")
        await store.pause("q", None, None)
        assert await store.renew([job.lease], LEASE_SECONDS) == []
        assert await store.progress(job.lease, b"1")
        assert await store.settle([success(job)]) == []
        assert (await recorded(store, job.id)).state is State.SUCCEEDED

    @needs(Breakers)
    async def test_waiting_jobs_of_a_stopped_queue_are_not_awaited(self, store: Store) -> None:
        await enqueue(store, queue="q")
        await enqueue(store, queue="q", breaker="gateway")
        await store.open_breaker("gateway", None, None)
        await store.park(10)
        await store.close_breaker("gateway")
        await store.pause("q", None, None)
        assert not await store.awaited(["job"], None, 60)
        await store.resume("q")
        assert await store.awaited(["job"], None, 60)
        await store.cap("q", 0)
        assert not await store.awaited(["job"], ["q"], 60)
        await store.cap("q", 1)
        assert await store.awaited(["job"], ["q"], 60)

    async def test_running_jobs_of_a_paused_queue_are_awaited(self, store: Store) -> None:
        await claim_one(store, queue="q")
        await store.pause("q", None, None)
        assert await store.awaited(["job"], None, 0)

    async def test_a_queue_can_be_paused_before_it_has_jobs(self, store: Store) -> None:
        await store.pause("new", None, None)
        await enqueue(store, queue="new")
        assert await claim(store) == []

    async def test_a_resumed_queue_keeps_its_order(self, store: Store, other: Store) -> None:
        jobs = [await enqueue(store, queue="q", priority=priority) for priority in (2, 1, 1)]
        await store.pause("q", None, None)
        assert await claim(other) == []
        assert await store.resume("q")
        assert [job.id for job in await claim(other)] == [jobs[1], jobs[2], jobs[0]]

    async def test_the_first_pause_stands(self, store: Store, other: Store) -> None:
        assert await store.pause("q", "ann", "the disk is full")
        first = await queue_status(store, "q")
        assert not await other.pause("q", "bob", "no reason")
        assert await queue_status(other, "q") == first
        assert first.paused
        assert (first.paused_by, first.paused_because) == ("ann", "the disk is full")

    async def test_only_a_paused_queue_can_be_resumed(self, store: Store, other: Store) -> None:
        assert not await store.resume("q")
        await store.pause("q", None, None)
        assert await other.resume("q")
        assert not await store.resume("q")
        assert await store.pause("q", "bob", None)
        assert (await queue_status(store, "q")).paused_by == "bob"

    async def test_pause_and_cap_are_independent(self, store: Store) -> None:
        await store.cap("q", 3)
        await store.pause("q", None, None)
        assert (await queue_status(store, "q")).running_max == 3
        await store.cap("q", 2)
        assert (await queue_status(store, "q")).paused
        await store.resume("q")
        found = await queue_status(store, "q")
        assert (found.paused, found.running_max) == (False, 2)

    async def test_a_paused_queue_stays_paused_when_its_cap_is_removed(self, store: Store) -> None:
        await store.pause("q", "ann", None)
        await store.cap("q", 3)
        await store.cap("q", None)
        found = await queue_status(store, "q")
        assert (found.paused_by, found.running_max) == ("ann", None)

    async def test_an_empty_queue_without_pause_or_cap_is_not_listed(self, store: Store) -> None:
        await store.pause("resumed", None, None)
        await store.resume("resumed")
        await store.cap("lifted", 3)
        await store.cap("lifted", None)
        assert await store.queues() == []

    async def test_queues_are_listed_with_their_jobs(self, store: Store, harness: Harness) -> None:
        await job_in(store, State.SUCCEEDED)
        assert await store.queues() == []
        await enqueue(store, queue="b")
        await harness.advance(20)
        await enqueue(store, queue="b")
        await enqueue(store, queue="b", delay_seconds=60.0)
        await claim_one(store, queue="a")
        await store.pause("c", "ann", None)
        a, b, c = await store.queues()
        assert a == QueueStatus(name="a", running=1)
        assert (b.name, b.ready, b.scheduled, b.parked, b.running) == ("b", 2, 1, 0, 0)
        assert b.oldest_ready_seconds is not None
        assert 20 <= b.oldest_ready_seconds < 50
        assert (c.name, c.waiting, c.running, c.paused_by) == ("c", 0, 0, "ann")

    @needs(Diagnosis)
    async def test_the_circumstances_of_a_job_include_its_queue(self, store: Store) -> None:
        job_id = await enqueue(store, queue="q")
        await store.pause("q", "ann", "a look")
        await store.cap("q", 4)
        found = await circumstances(store, job_id)
        assert found.queue is not None
        assert (found.queue.paused_by, found.queue.paused_because) == ("ann", "a look")
        assert (found.queue.running_max, found.queue.running) == (4, 0)
        assert found.queue.paused_at == (await queue_status(store, "q")).paused_at


@needs(QueueControl, Room.QUEUES)
class Capping(Suite):
    async def test_a_cap_counts_jobs_of_all_workers(self, store: Store, harness: Harness) -> None:
        await fill(store, 10)
        await store.cap("q", 3)
        assert len(await claim(store, 2)) == 2
        later = await harness.open_store()
        assert len(await claim(later, 100)) == 1
        assert await claim(store) == []
        assert await claim(later) == []
        await later.close()

    async def test_a_cap_that_another_set_applies_at_once(self, store: Store, other: Store) -> None:
        await fill(store, 10)
        assert len(await claim(other, 2)) == 2
        await store.cap("q", 3)
        assert len(await claim(other, 100)) <= 1

    async def test_a_cap_admits_the_best_jobs_of_all_lanes(self, store: Store) -> None:
        jobs = [await enqueue(store, queue="q", priority=n) for n in (3, 1, 2, 1)]
        await store.cap("q", 3)
        assert [job.id for job in await claim(store)] == [jobs[1], jobs[3], jobs[2]]

    async def test_a_full_queue_leaves_the_rest_of_a_claim_to_others(self, store: Store) -> None:
        await fill(store, 10, priority=-5)
        await store.enqueue([new_job(queue="other") for _ in range(10)])
        await store.cap("q", 2)
        queues = [job.queue for job in await claim(store, 8)]
        assert queues == ["q"] * 2 + ["other"] * 6
        assert [job.queue for job in await claim(store, 8)] == ["other"] * 4

    async def test_every_queue_has_its_own_cap(self, store: Store) -> None:
        await store.enqueue([new_job(queue=f"q{n % 3}", priority=n % 2) for n in range(30)])
        for number in range(3):
            await store.cap(f"q{number}", number)
        found = [job.queue for job in await claim(store)]
        assert [found.count(f"q{number}") for number in range(3)] == [0, 1, 2]

    async def test_any_end_of_a_job_frees_its_place(self, store: Store, harness: Harness) -> None:
        await fill(store, 10, max_attempts=9)
        await store.cap("q", 1)
        (first,) = await claim(store)
        await store.settle([success(first)])
        (second,) = await claim(store)
        await store.settle([release(second)])
        (third,) = await claim(store)
        assert await claim(store) == []
        await store.cancel([third.id])
        assert len(await claim(store)) == 1
        await harness.advance(LEASE_SECONDS + 1)
        assert await claim(store) == []
        await store.reclaim(10)
        assert len(await claim(store)) == 1

    async def test_a_cap_of_zero_starts_no_job_until_it_is_removed(self, store: Store) -> None:
        await fill(store, 5)
        await store.cap("q", 0)
        assert await claim(store) == []
        assert not (await queue_status(store, "q")).paused
        await store.cap("q", None)
        assert len(await claim(store)) == 5

    async def test_jobs_running_above_a_new_cap_continue(self, store: Store) -> None:
        await fill(store, 6)
        jobs = await claim(store, 4)
        await store.cap("q", 2)
        assert await store.renew([job.lease for job in jobs], LEASE_SECONDS) == []
        for job in jobs[:2]:
            await store.settle([success(job)])
            assert await claim(store) == []
        await store.settle([success(jobs[2])])
        assert len(await claim(store)) == 1

    async def test_the_last_cap_applies_and_is_listed(self, store: Store, other: Store) -> None:
        await fill(store, 9)
        await store.cap("q", 1)
        await other.cap("q", 4)
        await store.cap("q", 5)
        assert len(await claim(store)) == 5
        found = await queue_status(other, "q")
        assert (found.running_max, found.running, found.ready) == (5, 5, 4)
        await store.cap("q", None)
        assert (await queue_status(store, "q")).running_max is None

    async def test_a_cap_does_not_raise_the_limit_of_a_claim(self, store: Store) -> None:
        await fill(store, 9)
        await store.cap("q", 7)
        assert [len(await claim(store, 3)) for _ in range(4)] == [3, 3, 1, 0]

    async def test_jobs_of_other_names_count_only_while_they_run(self, store: Store) -> None:
        await fill(store, 5, name="other", priority=-5)
        await fill(store, 5)
        await store.cap("q", 3)
        assert len(await claim(store, 1, names=("other",))) == 1
        assert [job.name for job in await claim(store)] == ["job"] * 2

    async def test_a_claimed_job_says_whether_its_queue_is_capped(self, store: Store) -> None:
        await fill(store, 1)
        await enqueue(store, queue="other")
        await store.cap("q", 2)
        capped = {job.queue: job.capped for job in await claim(store)}
        assert capped == {"q": True, "other": False}

    async def test_a_claim_by_id_respects_the_cap(self, store: Store) -> None:
        first, second = [await enqueue(store, queue="q") for _ in range(2)]
        await store.cap("q", 1)
        claimed = await store.claim_by_id(first, "worker", LEASE_SECONDS)
        assert claimed is not None
        assert claimed.capped
        assert await store.claim_by_id(second, "worker", LEASE_SECONDS) is None

    @needs(Suspects)
    async def test_suspects_respect_the_cap_and_count(self, store: Store) -> None:
        suspect = await make_suspect(store, queue="q")
        running = await claim_one(store, queue="q")
        await enqueue(store, queue="q")
        await store.cap("q", 1)
        assert await claim_suspect(store) is None
        assert await store.suspects(["job"], None) == 0
        await store.settle([success(running)])
        assert await store.suspects(["job"], None) == 1
        assert (await claim_alone(store)).id == suspect
        assert await claim(store) == []

    async def test_a_cap_holds_under_concurrency(self, store: Store, harness: Harness) -> None:
        jobs = 60
        await fill(store, jobs)
        await store.cap("q", 4)
        others = [await harness.open_store() for _ in range(2)]
        running = ended = most = 0

        async def work(instance: Store) -> None:
            nonlocal running, ended, most
            while ended < jobs:
                claimed = await claim(instance, 3)
                running += len(claimed)
                most = max(most, running)
                await asyncio.gather(*(queue_status(instance, "q") for _ in claimed))
                # Counted down just before they end, so that `most` never exceeds the truth.
                running -= len(claimed)
                ended += len(claimed)
                await instance.settle([success(job) for job in claimed])

        await asyncio.gather(*(work(instance) for instance in (store, *others)))
        for instance in others:
            await instance.close()
        assert 1 <= most <= 4
        assert [count.state for count in await store.counts()] == [State.SUCCEEDED]
