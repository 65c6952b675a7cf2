"""Strays: what a worker does not know to have is released, and has lost nothing."""

from __future__ import annotations

from holdfast.domain.job import Lease
from holdfast.domain.states import State
from holdfast.stores.protocol import FullStore as Store
from holdfast.stores.protocol import Suspects
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Room,
    Suite,
    claim,
    claim_one,
    claim_suspect,
    enqueue,
    kept_attempts,
    needs,
    new_job,
    new_suspect,
    recorded,
    success,
)


class Straying(Suite):
    async def test_a_stray_is_due_again_and_keeps_its_attempts(
        self, store: Store, other: Store
    ) -> None:
        stray = await claim_one(store)
        assert await store.release_strays("worker", [], 10) == 1
        found = await recorded(store, stray.id)
        assert (found.state, found.attempts, found.fence) == (State.QUEUED, 0, stray.fence + 1)
        assert (found.releases, found.snoozes, found.crashes) == (0, 0, 0)
        assert (found.lease_owner, found.lease_expires_at) == (None, None)
        assert await kept_attempts(store, stray.id) == []
        (again,) = await claim(other, worker="other")
        assert (again.id, again.attempt, again.fence) == (stray.id, 1, stray.fence + 2)

    async def test_a_stray_that_is_released_is_no_longer_its_workers(self, store: Store) -> None:
        stray = await claim_one(store)
        await store.release_strays("worker", [], 10)
        assert len(await store.renew([stray.lease], LEASE_SECONDS)) == 1
        assert len(await store.settle([success(stray)])) == 1
        assert (await recorded(store, stray.id)).state is State.QUEUED

    async def test_known_leases_and_those_of_others_stay(self, store: Store, other: Store) -> None:
        known = await claim_one(store)
        await enqueue(store)
        (others,) = await claim(other, worker="other")
        stray = await claim_one(store)
        assert await store.release_strays("worker", [known.lease], 10) == 1
        states = [(await recorded(store, job.id)).state for job in (known, others, stray)]
        assert states == [State.RUNNING, State.RUNNING, State.QUEUED]
        assert await store.settle([success(known), success(others)]) == []

    async def test_a_lease_is_known_by_its_fence(self, store: Store) -> None:
        """A worker may have lost a job, and have claimed it again without knowing."""
        stray = await claim_one(store)
        before = Lease(stray.id, stray.fence - 1)
        assert await store.release_strays("worker", [before], 10) == 1

    async def test_strays_are_released_in_bounded_steps(self, store: Store) -> None:
        await store.enqueue([new_job() for _ in range(5)])
        known, *_ = await claim(store)
        steps = [await store.release_strays("worker", [known.lease], 3) for _ in range(3)]
        assert steps == [3, 1, 0]

    @needs(Room.OPTIONS)
    async def test_the_last_attempt_of_a_stray_is_given_back_any_number_of_times(
        self, store: Store, harness: Harness
    ) -> None:
        job_id = await enqueue(store, max_attempts=1)
        for _ in range(3):
            (stray,) = await claim(store, alone=True)
            assert stray.attempt == 1
            assert await store.release_strays("worker", [], 10) == 1
            await harness.advance(LEASE_SECONDS + 1)
            assert await store.reclaim(10) == []
        found = await recorded(store, job_id)
        assert (found.state, found.attempts, found.crashes) == (State.QUEUED, 0, 0)

    @needs(Suspects)
    async def test_a_suspect_that_strays_stays_a_suspect(self, store: Store) -> None:
        job_id = await new_suspect(store)
        before = await recorded(store, job_id)
        assert await claim_suspect(store) is not None
        assert await store.release_strays("worker", [], 10) == 1
        found = await recorded(store, job_id)
        assert (found.attempts, found.crashes) == (before.attempts, before.crashes)
        assert await claim(store) == []
        again = await claim_suspect(store)
        assert again is not None
        assert again.id == job_id
