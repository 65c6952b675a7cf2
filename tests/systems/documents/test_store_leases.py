"""A record has at most one lease, and only its worker changes it."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from holdfast import State
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import Lease, Lost
from holdfast.stores.protocol import Claim
from tests.systems.documents.bench import (
    ATTEMPTS_MAX,
    Bench,
    claim,
    claim_one,
    new_job,
    settlement,
    success,
)

pytestmark = pytest.mark.heavy

PATCHES = {"method": "PATCH", "path": "composite/sobjects"}


async def test_a_claim_locks_the_record(bench: Bench) -> None:
    store = await bench.store()
    job_id = await bench.create(Data__c='{"a": [1, 2]}', Priority__c=3)
    (job,) = await claim(store, worker="somebody")
    assert (job.id, job.attempt, job.max_attempts, job.priority) == (job_id, 1, ATTEMPTS_MAX, -3)
    record = await bench.record(job_id)
    assert record["Status__c"] == "PROCESSING"
    assert (record["LockedBy__c"], record["Attempts__c"]) == ("somebody", 1)
    assert record["Fence__c"] == record["LockVersion__c"] == job.fence
    assert record["CorrelationId__c"] == job.correlation_id == str(job_id)
    assert record["RequestHash__c"]
    assert await claim(store) == []


async def test_of_two_claimers_that_saw_the_same_records_each_gets_its_own(bench: Bench) -> None:
    ids = {await bench.create() for _ in range(6)}
    stores = [await bench.store() for _ in range(2)]
    await bench.fault(**PATCHES, hold=True, times=2)
    claims = [asyncio.create_task(claim(store, 6)) for store in stores]
    await bench.held(2)  # Both have read all six, and neither has written.
    await bench.switch("DELETE", "faults")
    first, second = await asyncio.gather(*claims)
    claimed = [job.id for job in [*first, *second]]
    assert len(claimed) == len(set(claimed))
    assert set(claimed) == ids
    records = [await bench.record(job_id) for job_id in ids]
    assert {record["Attempts__c"] for record in records} == {1}


async def test_many_claimers_share_the_records(bench: Bench) -> None:
    jobs = [new_job() for _ in range(60)]
    stores = [await bench.store() for _ in range(4)]
    await stores[0].enqueue(jobs)

    async def drain(number: int) -> list[str]:
        claimed: list[str] = []
        while jobs := await claim(stores[number], 5, f"worker-{number}"):
            claimed += [str(job.id) for job in jobs]
        return claimed

    shares = await asyncio.gather(*[drain(number) for number in range(4)])
    taken = Counter(job_id for share in shares for job_id in share)
    assert len(taken) == 60
    assert set(taken.values()) == {1}
    assert sum(bool(share) for share in shares) > 1


async def test_a_claim_that_lost_its_race_goes_on_to_the_next_records(bench: Bench) -> None:
    store, other = await bench.store(), await bench.store()
    for _ in range(4):
        await bench.create()
    await bench.fault(**PATCHES, hold=True)
    slow = asyncio.create_task(claim(store, 2))
    await bench.held(1)
    quick = await claim(other, 2)
    await bench.switch("DELETE", "faults")
    assert len(quick) == len(await slow) == 2
    assert not {job.id for job in quick} & {job.id for job in await slow}


async def test_two_claims_of_one_process_that_lose_a_race_set_nothing_aside(bench: Bench) -> None:
    store, other = await bench.store(), await bench.store()
    job_id = await bench.create()
    await bench.fault(**PATCHES, hold=True, times=2)
    claims = [asyncio.create_task(claim(store, 1)) for _ in range(2)]
    await bench.held(2)
    (quick,) = await claim(other, 1)
    await bench.switch("DELETE", "faults")
    assert await asyncio.gather(*claims) == [[], []]
    await other.settle([settlement(quick, State.QUEUED, attempt_back=True, released=True)])
    assert [job.id for job in await claim(store, 1)] == [job_id]


async def test_a_claim_that_failed_half_way_strays_and_costs_nothing(bench: Bench) -> None:
    store = await bench.store()
    jobs = [await bench.create() for _ in range(3)]
    await bench.fault(rows=1, code="UNABLE_TO_LOCK_ROW")
    await bench.fault(**PATCHES, delay_seconds=0.001)
    await bench.fault(**PATCHES)  # The second write fails, by which the claim would be complete.
    with pytest.raises(StoreUnavailable):
        await claim(store, 2)
    assert await store.release_strays("worker", [], 10) == 1
    for job_id in jobs:
        record = await bench.record(job_id)
        assert (record["Status__c"], record["Attempts__c"] or 0) == ("QUEUED", 0)


async def test_known_leases_are_no_strays(bench: Bench) -> None:
    store = await bench.store()
    for _ in range(4):
        await bench.create()
    known, *strays = await claim(store, 3)
    (others,) = await claim(store, 1, worker="other")
    assert [await store.release_strays("worker", [known.lease], 1) for _ in range(3)] == [1, 1, 0]
    statuses = [(await bench.record(job.id))["Status__c"] for job in (known, others, *strays)]
    assert statuses == ["PROCESSING", "PROCESSING", "QUEUED", "QUEUED"]


async def test_an_old_fence_changes_nothing(bench: Bench) -> None:
    store, other = await bench.store(), await bench.store()
    job_id = await bench.create()
    (late,) = await claim(store, worker="late", lease_seconds=-60)
    (taken,) = await other.reclaim(10)
    assert (taken.job_id, taken.state, taken.error_code) == (job_id, State.QUEUED, "LEASE_LOST")
    waiting = await bench.record(job_id)
    assert await store.settle([success(late)]) == [Lost(job_id, late.fence, State.QUEUED)]
    assert await store.renew([late.lease], 30) == [Lost(job_id, late.fence, State.QUEUED)]
    assert await bench.record(job_id) == waiting
    (again,) = await claim(other, worker="other")
    assert again.fence > late.fence
    held = await bench.record(job_id)
    assert await store.settle([success(late)]) == [Lost(job_id, late.fence, State.RUNNING)]
    assert await store.renew([late.lease], 30) == [Lost(job_id, late.fence, State.RUNNING)]
    assert await bench.record(job_id) == held
    assert await other.settle([success(again)]) == []
    ended = await bench.record(job_id)
    assert await store.settle([success(late)]) == [Lost(job_id, late.fence, State.SUCCEEDED)]
    assert await other.settle([success(again)]) == [Lost(job_id, again.fence, State.SUCCEEDED)]
    assert await bench.record(job_id) == ended


async def test_a_renewal_lengthens_the_lock_and_keeps_the_fence(bench: Bench) -> None:
    store = await bench.store()
    job = await claim_one(store, bench)
    before = await store.get(job.id)
    assert await store.renew([job.lease], 3600) == []
    after = await store.get(job.id)
    assert before is not None
    assert before.lease_expires_at is not None
    assert after is not None
    assert after.lease_expires_at is not None
    assert after.lease_expires_at - before.lease_expires_at > timedelta(minutes=50)
    assert after.fence == before.fence == job.fence
    assert await store.settle([success(job)]) == []


async def test_a_settlement_that_a_renewal_overtook_is_written_all_the_same(bench: Bench) -> None:
    store, keepers = await bench.store(), await bench.store()
    job = await claim_one(store, bench)
    await bench.fault(**PATCHES, hold=True)
    settling = asyncio.create_task(store.settle([success(job)]))
    await bench.held(1)
    assert await keepers.renew([job.lease], 30) == []
    await bench.switch("DELETE", "faults")
    assert await settling == []
    record = await bench.record(job.id)
    assert (record["Status__c"], record["LockedUntil__c"]) == ("SUCCEEDED", None)
    assert record["LockVersion__c"] == 3


async def test_a_renewal_that_a_settlement_overtook_changes_nothing(bench: Bench) -> None:
    store, keepers = await bench.store(), await bench.store()
    job = await claim_one(store, bench)
    await bench.fault(**PATCHES, hold=True)
    renewing = asyncio.create_task(keepers.renew([job.lease], 3600))
    await bench.held(1)
    assert await store.settle([success(job)]) == []
    ended = await bench.record(job.id)
    await bench.switch("DELETE", "faults")
    assert await renewing == [Lost(job.id, job.fence, State.SUCCEEDED)]
    assert await bench.record(job.id) == ended


async def test_a_customer_who_cancels_a_record_stops_its_holder(bench: Bench) -> None:
    store = await bench.store()
    job = await claim_one(store, bench)
    await bench.customer.update_each(
        "Generated_Document__c",
        [{"Id": (await bench.record(job.id))["Id"], "Status__c": "CANCELED"}],
    )
    assert await store.renew([job.lease], 30) == [Lost(job.id, job.fence, State.CANCELED)]
    assert await store.settle([success(job)]) == [Lost(job.id, job.fence, State.CANCELED)]


async def test_a_record_that_was_deleted_is_lost(bench: Bench) -> None:
    store = await bench.store()
    job = await claim_one(store, bench)
    await bench.customer.delete("Generated_Document__c", (await bench.record(job.id))["Id"])
    assert await store.settle([success(job)]) == [Lost(job.id, job.fence, None)]
    assert await store.get(job.id) is None


async def test_one_lost_lease_beside_others_is_told_alone(bench: Bench) -> None:
    store = await bench.store()
    jobs = [await claim_one(store, bench) for _ in range(3)]
    await store.cancel([jobs[1].id])
    stale = Lease(jobs[2].id, jobs[2].fence - 1)
    lost = await store.renew([*(job.lease for job in jobs), stale], 30)
    assert lost == [Lost(jobs[1].id, jobs[1].fence, State.CANCELED), Lost(*stale, State.RUNNING)]
    lost = await store.settle([success(job) for job in jobs])
    assert lost == [Lost(jobs[1].id, jobs[1].fence, State.CANCELED)]


async def test_a_retry_waits_and_is_not_claimed_before_its_time(bench: Bench) -> None:
    store = await bench.store()
    job = await claim_one(store, bench)
    failure = settlement(
        job, State.QUEUED, delay_seconds=60.0, error_code="BROKEN", error_text="it\nbroke"
    )
    assert await store.settle([failure]) == []
    waiting = await store.get(job.id)
    assert waiting is not None
    assert (waiting.state, waiting.attempts) == (State.QUEUED, 1)
    assert waiting.last_error == {"code": "BROKEN", "text": "it"}
    assert 58 <= (waiting.run_at - waiting.created_at).total_seconds() <= 65
    assert await claim(store) == []
    assert await store.claim_by_id(job.id, "worker", 30) is None
    assert await store.retry(job.id)
    (again,) = await claim(store)
    assert (again.id, again.attempt) == (job.id, 2)


async def test_a_release_gives_the_attempt_back(bench: Bench) -> None:
    store = await bench.store()
    job = await claim_one(store, bench)
    release = settlement(job, State.QUEUED, attempt_back=True, released=True)
    assert await store.settle([release]) == []
    (again,) = await claim(store)
    assert again.attempt == 1


async def test_a_lock_that_ran_out_for_the_last_time_fails_the_record(bench: Bench) -> None:
    store = await bench.store()
    job_id = await bench.create()
    states = []
    for _ in range(ATTEMPTS_MAX):
        await claim(store, lease_seconds=-60)
        states += [taken.state for taken in await store.reclaim(10)]
    assert states == [State.QUEUED] * (ATTEMPTS_MAX - 1) + [State.DEAD]
    assert await store.reclaim(10) == []
    record = await bench.record(job_id)
    assert record["Status__c"] == "FAILED"
    assert record["Error__c"].startswith("LEASE_LOST (attempts used up): the worker worker stopped")


async def test_a_lock_that_has_not_run_out_is_left_alone(bench: Bench) -> None:
    store = await bench.store()
    job = await claim_one(store, bench)
    assert await store.reclaim(10) == []
    (taken,) = await store.reclaim(10, dead_worker="worker", reason="was killed")
    assert (taken.job_id, taken.error_code) == (job.id, "CRASHED")


async def test_a_reclaim_that_a_renewal_overtook_takes_nothing_back(bench: Bench) -> None:
    store, keepers = await bench.store(), await bench.store()
    await bench.create()
    (job,) = await claim(store, lease_seconds=-60)
    await bench.fault(**PATCHES, hold=True)
    reclaiming = asyncio.create_task(store.reclaim(10))
    await bench.held(1)
    assert await keepers.renew([job.lease], 30) == []
    await bench.switch("DELETE", "faults")
    assert await reclaiming == []
    assert await keepers.renew([job.lease], 30) == []


async def test_higher_priority_comes_first_then_age(bench: Bench) -> None:
    store = await bench.store()
    priorities = [None, 1, 5, None, 5, -2]
    ids = [await bench.create(Priority__c=priority) for priority in priorities]
    order = [job.id for _ in range(6) for job in await claim(store, 1)]
    assert order == [ids[number] for number in (2, 4, 1, 5, 0, 3)]


async def test_nothing_is_claimed_for_other_names_or_queues(bench: Bench) -> None:
    store = await bench.store()
    await bench.create()
    request = Claim(worker="w", limit=5, lease_seconds=30, names=["generate_document"])
    assert await store.claim(request._replace(names=["else"])) == []
    assert await store.claim(request._replace(queues=["else"])) == []
    assert await store.claim(request._replace(except_queues=["documents"])) == []
    assert len(await store.claim(request._replace(queues=["documents"]))) == 1
