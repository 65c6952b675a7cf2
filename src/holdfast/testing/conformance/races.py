"""Races between two stores: one wins, and both get the right answer."""

from __future__ import annotations

import asyncio
from collections import Counter
from uuid import UUID

from holdfast.domain.states import State
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Room,
    Suite,
    claim,
    enqueue,
    enqueue_many,
    failure,
    new_job,
    recorded,
    release,
    success,
)


class Races(Suite):
    async def test_concurrent_claims_lease_a_job_once(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        third = await harness.open_store()
        spread = Room.QUEUES not in self.kind.lacks
        receipts = await store.enqueue(
            [
                new_job(queue=f"q{n % 3}" if spread else self.kind.queue, priority=n % 2)
                for n in range(min(300, self.kind.many))
            ]
        )

        async def take_all(instance: Store) -> list[UUID]:
            taken: list[UUID] = []
            while claimed := await claim(instance, 7):
                taken += [job.id for job in claimed]
            return taken

        racers = [store, other, third] * 2
        taken = Counter(
            job_id
            for each in await asyncio.gather(*(take_all(racer) for racer in racers))
            for job_id in each
        )
        # A claim may skip jobs that another has locked at that moment, so some may be left.
        taken.update(await take_all(store))
        await third.close()
        assert taken == Counter(receipt.id for receipt in receipts)

    async def test_concurrent_claims_by_id_lease_once(self, store: Store, other: Store) -> None:
        job_id = await enqueue(store)
        answers = await asyncio.gather(
            *(
                instance.claim_by_id(job_id, "worker", LEASE_SECONDS)
                for instance in (store, other) * 5
            )
        )
        assert len([answer for answer in answers if answer is not None]) == 1

    async def test_either_a_cancel_or_a_settle_wins(self, store: Store, other: Store) -> None:
        await store.enqueue([new_job() for _ in range(20)])
        for job in await claim(store):
            canceled, lost = await asyncio.gather(
                other.cancel([job.id]), store.settle([success(job)])
            )
            found = await recorded(store, job.id)
            assert found.fence == job.fence + 1
            if canceled:
                assert [one.job_id for one in lost] == [job.id]
                assert found.state is State.CANCELED
            else:
                assert lost == []
                assert found.state is State.SUCCEEDED

    async def test_either_a_reclaim_or_a_settle_wins(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        await store.enqueue([new_job() for _ in range(40)])
        jobs = await claim(store)
        await harness.advance(LEASE_SECONDS + 1)
        lost, reclaimed = await asyncio.gather(
            store.settle([success(job) for job in jobs]), other.reclaim(20)
        )
        assert {one.job_id for one in lost} == {one.job_id for one in reclaimed}
        for job in jobs:
            found = await recorded(store, job.id)
            assert found.fence == job.fence + 1
            taken = job.id in {one.job_id for one in reclaimed}
            assert found.state is (State.QUEUED if taken else State.SUCCEEDED)

    async def test_concurrent_reclaims_take_a_job_once(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        await store.enqueue([new_job() for _ in range(100)])
        jobs = await claim(store, 100)
        await harness.advance(LEASE_SECONDS + 1)
        answers = await asyncio.gather(*(instance.reclaim(60) for instance in (store, other) * 2))
        rest = await store.reclaim(100)
        taken = [one.job_id for answer in (*answers, rest) for one in answer]
        assert sorted(taken) == sorted(job.id for job in jobs)
        for job in jobs:
            assert (await recorded(store, job.id)).fence == job.fence + 1

    async def test_concurrent_cancels_end_a_job_once(self, store: Store, other: Store) -> None:
        ids = await enqueue_many(store, 50)
        answers = await asyncio.gather(
            store.cancel(ids), other.cancel(ids[::-1]), store.cancel(ids[::2])
        )
        assert sorted(one.job_id for answer in answers for one in answer) == sorted(ids)

    async def test_crossing_verbs_never_deadlock(self, store: Store, other: Store) -> None:
        ids = await enqueue_many(store, 60)
        claimed = list(await claim(store))
        leases = [job.lease for job in claimed]
        await asyncio.gather(
            store.settle([success(job) for job in claimed[:30]]),
            other.settle([failure(job) for job in reversed(claimed)]),
            other.cancel(ids[20:50]),
            store.cancel(ids[::-3]),
            store.renew(leases[::-1], LEASE_SECONDS),
            other.renew(leases, LEASE_SECONDS),
            other.settle([release(job) for job in claimed[10:40]]),
            store.reclaim(10),
        )
        for job in claimed:
            assert (await recorded(store, job.id)).fence >= job.fence + 1
