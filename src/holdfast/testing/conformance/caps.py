"""Caps: at most so many jobs of a queue run at a time, on all workers together."""

from __future__ import annotations

import asyncio

from holdfast.domain.states import State
from holdfast.stores.protocol import FullStore as Store
from holdfast.stores.protocol import QueueControl, Suspects
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Needs,
    Room,
    Suite,
    claim,
    claim_one,
    claim_suspect,
    enqueue,
    needs,
    new_job,
    new_suspect,
    queue_seen,
    release,
    success,
)


async def fill(store: Store, jobs: int, **changes: object) -> None:
    await store.enqueue([new_job(queue="q", **changes) for _ in range(jobs)])


class Capping(Suite):
    all_need: Needs = (QueueControl, Room.QUEUES)

    async def test_a_queue_runs_no_more_than_its_cap_over_all_workers(
        self, store: Store, harness: Harness
    ) -> None:
        await fill(store, 10)
        await store.cap("q", 3)
        assert len(await claim(store, 2)) == 2
        later = await harness.open_store()
        assert len(await claim(later, 100)) == 1
        assert await claim(store) == []
        assert await claim(later) == []
        await later.close()

    async def test_a_cap_that_another_has_set_is_kept_at_once(
        self, store: Store, other: Store
    ) -> None:
        await fill(store, 10)
        assert len(await claim(other, 2)) == 2
        await store.cap("q", 3)
        assert len(await claim(other, 100)) <= 1

    async def test_the_best_jobs_of_a_full_queue_come_first_whatever_their_lanes(
        self, store: Store
    ) -> None:
        jobs = [await enqueue(store, queue="q", priority=n) for n in (3, 1, 2, 1)]
        await store.cap("q", 3)
        assert [job.id for job in await claim(store)] == [jobs[1], jobs[3], jobs[2]]

    async def test_a_full_queue_leaves_its_place_in_the_claim_to_others(self, store: Store) -> None:
        await fill(store, 10, priority=-5)
        await store.enqueue([new_job(queue="other") for _ in range(10)])
        await store.cap("q", 2)
        queues = [job.queue for job in await claim(store, 8)]
        assert queues == ["q"] * 2 + ["other"] * 6
        assert [job.queue for job in await claim(store, 8)] == ["other"] * 4

    async def test_every_capped_queue_has_its_own_room(self, store: Store) -> None:
        await store.enqueue([new_job(queue=f"q{n % 3}", priority=n % 2) for n in range(30)])
        for number in range(3):
            await store.cap(f"q{number}", number)
        found = [job.queue for job in await claim(store)]
        assert [found.count(f"q{number}") for number in range(3)] == [0, 1, 2]

    async def test_the_end_of_a_job_makes_room_for_the_next_however_it_ends(
        self, store: Store, harness: Harness
    ) -> None:
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

    async def test_a_cap_of_none_lets_no_job_start_until_it_is_lifted(self, store: Store) -> None:
        await fill(store, 5)
        await store.cap("q", 0)
        assert await claim(store) == []
        assert not (await queue_seen(store, "q")).paused
        await store.cap("q", None)
        assert len(await claim(store)) == 5

    async def test_what_runs_above_a_new_cap_runs_on(self, store: Store) -> None:
        await fill(store, 6)
        jobs = await claim(store, 4)
        await store.cap("q", 2)
        assert await store.renew([job.lease for job in jobs], LEASE_SECONDS) == []
        for job in jobs[:2]:
            await store.settle([success(job)])
            assert await claim(store) == []
        await store.settle([success(jobs[2])])
        assert len(await claim(store)) == 1

    async def test_the_last_cap_counts_and_is_told(self, store: Store, other: Store) -> None:
        await fill(store, 9)
        await store.cap("q", 1)
        await other.cap("q", 4)
        await store.cap("q", 5)
        assert len(await claim(store)) == 5
        found = await queue_seen(other, "q")
        assert (found.running_max, found.running, found.ready) == (5, 5, 4)
        await store.cap("q", None)
        assert (await queue_seen(store, "q")).running_max is None

    async def test_a_claim_takes_no_more_than_its_limit_of_a_queue_with_room(
        self, store: Store
    ) -> None:
        await fill(store, 9)
        await store.cap("q", 7)
        assert [len(await claim(store, 3)) for _ in range(4)] == [3, 3, 1, 0]

    async def test_jobs_of_other_names_use_room_only_while_they_run(self, store: Store) -> None:
        await fill(store, 5, name="other", priority=-5)
        await fill(store, 5)
        await store.cap("q", 3)
        assert len(await claim(store, 1, names=("other",))) == 1
        assert [job.name for job in await claim(store)] == ["job"] * 2

    async def test_a_job_tells_whether_its_queue_has_a_cap(self, store: Store) -> None:
        await fill(store, 1)
        await enqueue(store, queue="other")
        await store.cap("q", 2)
        told = {job.queue: job.capped for job in await claim(store)}
        assert told == {"q": True, "other": False}

    async def test_a_job_that_is_claimed_by_its_id_waits_for_room(self, store: Store) -> None:
        first, second = [await enqueue(store, queue="q") for _ in range(2)]
        await store.cap("q", 1)
        claimed = await store.claim_by_id(first, "worker", LEASE_SECONDS)
        assert claimed is not None
        assert claimed.capped
        assert await store.claim_by_id(second, "worker", LEASE_SECONDS) is None

    @needs(Suspects)
    async def test_a_suspect_waits_for_room_and_takes_some(self, store: Store) -> None:
        suspect = await new_suspect(store, queue="q")
        running = await claim_one(store, queue="q")
        await enqueue(store, queue="q")
        await store.cap("q", 1)
        assert await claim_suspect(store) is None
        assert await store.suspects(["job"], None) == 0
        await store.settle([success(running)])
        assert await store.suspects(["job"], None) == 1
        claimed = await claim_suspect(store)
        assert claimed is not None
        assert claimed.id == suspect
        assert await claim(store) == []

    async def test_a_cap_holds_whoever_claims_and_settles_at_once(
        self, store: Store, harness: Harness
    ) -> None:
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
                await asyncio.gather(*(queue_seen(instance, "q") for _ in claimed))
                # No longer counted a little before it has ended: never more than really run.
                running -= len(claimed)
                ended += len(claimed)
                await instance.settle([success(job) for job in claimed])

        await asyncio.gather(*(work(instance) for instance in (store, *others)))
        for instance in others:
            await instance.close()
        assert 1 <= most <= 4
        assert [count.state for count in await store.counts()] == [State.SUCCEEDED]
