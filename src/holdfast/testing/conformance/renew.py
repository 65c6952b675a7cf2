"""Renew and progress: only with the exact fence of a running job."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.domain.errors import StoreRefused
from holdfast.domain.job import Claimed, Lease, Lost
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
    async def test_a_renewal_counts_from_now(self, store: Store, harness: Harness) -> None:
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

    async def test_an_expired_lease_is_valid_until_reclaimed(
        self, store: Store, harness: Harness
    ) -> None:
        renewing, settling = await claim_one(store), await claim_one(store)
        await harness.advance(LEASE_SECONDS + 5)
        assert await store.renew([renewing.lease], LEASE_SECONDS) == []
        assert await store.settle([success(settling)]) == []
        assert await store.reclaim(10) == []

    async def test_a_renewal_names_the_lost_leases(self, store: Store, harness: Harness) -> None:
        kept, canceled, settled = [await claim_one(store) for _ in range(3)]
        missing = new_id()
        await store.cancel([canceled.id])
        await store.settle([success(settled)])
        await harness.advance(20)
        leases = [canceled.lease, kept.lease, Lease(missing, 1), settled.lease]
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

    async def test_a_worker_that_lost_its_lease_can_write_nothing(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        late = await claim_one(store)
        await harness.advance(LEASE_SECONDS + 1)
        assert len(await other.reclaim(10)) == 1
        await _assert_locked_out(store, late, State.QUEUED)
        (new,) = await claim(other, worker="new")
        await _assert_locked_out(store, late, State.RUNNING)
        assert await other.settle([success(new)]) == []

    async def test_a_fence_that_was_never_issued_is_lost(self, store: Store) -> None:
        job_id = await enqueue(store)
        before = await recorded(store, job_id)
        for fence in (0, 1, 2**62):
            lease = Lease(job_id, fence)
            assert await store.renew([lease], 30.0) == [Lost(job_id, fence, State.QUEUED)]
            assert not await reports(store, lease)
        assert await recorded(store, job_id) == before

    @needs(ProgressNotes)
    async def test_progress_is_recorded_and_keeps_the_fence(self, store: Store) -> None:
        job = await claim_one(store)
        assert await store.progress(job.lease, b'{"percent": 40, "text": "halb\xc3\xa9"}')
        found = await recorded(store, job.id)
        assert found.progress == {"percent": 40, "text": "halbé"}
        assert (found.fence, found.state) == (job.fence, State.RUNNING)
        assert await store.progress(job.lease, b"50")
        assert (await recorded(store, job.id)).progress == 50

    @needs(ProgressNotes)
    async def test_progress_that_can_not_be_stored_is_rejected(self, store: Store) -> None:
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


async def _assert_locked_out(store: Store, late: Claimed, state: State) -> None:
    """Assert that this old lease can change nothing, and that the store says why."""
    before = await recorded(store, late.id)
    lost = [Lost(late.id, late.fence, state)]
    assert await store.renew([late.lease], LEASE_SECONDS) == lost
    assert await store.settle([success(late)]) == lost
    assert not await reports(store, late.lease)
    assert await recorded(store, late.id) == before
