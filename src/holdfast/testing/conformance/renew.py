"""Renew and progress: with the exact fence of a running job, or not at all."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.errors import StoreRefused
from holdfast.domain.job import Lease, Lost
from holdfast.domain.states import State
from holdfast.stores.protocol import FullStore as Store
from holdfast.stores.protocol import ProgressNotes
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Room,
    Suite,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    needs,
    new_id,
    recorded,
    reports,
    success,
)


class Renewing(Suite):
    async def test_a_renewed_lease_is_not_reclaimed(self, store: Store, harness: Harness) -> None:
        job = await claim_one(store)
        for _ in range(3):
            await harness.advance(20)
            assert await store.renew([job.lease], LEASE_SECONDS) == []
        await harness.advance(20)
        assert await store.reclaim(10) == []
        assert (await recorded(store, job.id)).fence == job.fence

    @needs(Room.TIMES)
    async def test_a_renewal_lasts_from_now_for_as_long_as_it_says(
        self, store: Store, harness: Harness
    ) -> None:
        job = await claim_one(store)
        await harness.advance(20)
        await store.renew([job.lease], 100.0)
        renewed = await recorded(store, job.id)
        assert renewed.started_at is not None
        assert renewed.lease_expires_at is not None
        length = renewed.lease_expires_at - renewed.started_at
        assert timedelta(seconds=119) < length < timedelta(seconds=125)

    async def test_renewing_nothing_is_fine(self, store: Store) -> None:
        assert await store.renew([], LEASE_SECONDS) == []

    async def test_a_lease_that_ran_out_unnoticed_is_still_held(
        self, store: Store, harness: Harness
    ) -> None:
        renewing, settling = await claim_one(store), await claim_one(store)
        await harness.advance(LEASE_SECONDS + 5)
        assert await store.renew([renewing.lease], LEASE_SECONDS) == []
        assert await store.settle([success(settling)]) == []
        assert await store.reclaim(10) == []

    async def test_renewal_tells_which_leases_are_lost_and_keeps_the_others(
        self, store: Store, harness: Harness
    ) -> None:
        held, canceled, settled = [await claim_one(store) for _ in range(3)]
        missing = new_id()
        await store.cancel([canceled.id])
        await store.settle([success(settled)])
        await harness.advance(20)
        leases = [canceled.lease, held.lease, Lease(missing, 1), settled.lease]
        lost = await store.renew(leases, LEASE_SECONDS)
        assert sorted(lost) == sorted(
            [
                Lost(canceled.id, canceled.fence, State.CANCELED),
                Lost(missing, 1, None),
                Lost(settled.id, settled.fence, State.SUCCEEDED),
            ]
        )
        await harness.advance(20)
        assert await store.reclaim(10) == []

    async def test_a_ghost_can_neither_renew_nor_report_nor_settle(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        ghost = await claim_one(store)
        await harness.advance(LEASE_SECONDS + 1)
        assert len(await other.reclaim(10)) == 1
        waiting = await recorded(store, ghost.id)
        lost = [Lost(ghost.id, ghost.fence, State.QUEUED)]
        assert await store.renew([ghost.lease], LEASE_SECONDS) == lost
        assert await store.settle([success(ghost)]) == lost
        assert not await reports(store, ghost.lease)
        assert await recorded(store, ghost.id) == waiting

        (heir,) = await claim(other, worker="heir")
        running = await recorded(store, ghost.id)
        lost = [Lost(ghost.id, ghost.fence, State.RUNNING)]
        assert await store.renew([ghost.lease], LEASE_SECONDS) == lost
        assert await store.settle([success(ghost)]) == lost
        assert not await reports(store, ghost.lease)
        assert await recorded(store, ghost.id) == running
        assert await other.settle([success(heir)]) == []

    async def test_a_fence_that_was_never_given_out_holds_nothing(self, store: Store) -> None:
        job_id = await enqueue(store)
        before = await recorded(store, job_id)
        for fence in (0, 1, 2**62):
            lease = Lease(job_id, fence)
            assert await store.renew([lease], 30.0) == [Lost(job_id, fence, State.QUEUED)]
            assert not await reports(store, lease)
        assert await recorded(store, job_id) == before

    @needs(ProgressNotes)
    async def test_progress_is_recorded_and_leaves_the_fence(self, store: Store) -> None:
        job = await claim_one(store)
        assert await store.progress(job.lease, b'{"percent": 40, "text": "halb\xc3\xa9"}')
        found = await recorded(store, job.id)
        assert found.progress == {"percent": 40, "text": "halbé"}
        assert (found.fence, found.state) == (job.fence, State.RUNNING)
        assert await store.progress(job.lease, b"50")
        assert (await recorded(store, job.id)).progress == 50

    @needs(ProgressNotes)
    async def test_progress_that_can_not_be_stored_is_refused(self, store: Store) -> None:
        job = await claim_one(store)
        with pytest.raises(StoreRefused):
            await store.progress(job.lease, b"{")
        assert await store.settle([success(job)]) == []

    async def test_many_leases_are_renewed_at_once(self, store: Store, harness: Harness) -> None:
        ids = await enqueue_many(store, 700)
        leases = [job.lease for job in await claim(store, 700)]
        assert len(leases) == len(ids)
        await harness.advance(20)
        assert await store.renew(leases, LEASE_SECONDS) == []
        await harness.advance(20)
        assert await store.reclaim(10) == []
