"""Eight workers after the same records: the documented algorithm loses, ours wins. And who crashes
takes no innocent record along."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import State
from holdfast.domain.limits import CRASHES_IN_COMPANY_MAX, RELEASES_MAX, SNOOZES_MAX
from holdfast_systems.documents.salesforce.client import Salesforce
from tests.systems.documents.bench import Bench, claim, claim_one, settlement
from tests.systems.documents.organization import DOCUMENT

pytestmark = pytest.mark.heavy

WORKERS = 8
RECORDS = 20


async def lock_as_documented(salesforce: Salesforce, barrier: asyncio.Barrier) -> list[str]:
    """Select what is queued, then set it to PROCESSING: the last writer wins as well."""
    found = await salesforce.query(f"SELECT Id FROM {DOCUMENT} WHERE Status__c = 'QUEUED' LIMIT 50")
    await barrier.wait()
    until = (datetime.now(UTC) + timedelta(minutes=2)).isoformat(timespec="seconds")
    lock = {"Status__c": "PROCESSING", "LockedUntil__c": until}
    written = await salesforce.update_each(DOCUMENT, [{"Id": each["Id"], **lock} for each in found])
    return [each.id for each in written if each.refusal is None and each.id]


async def test_eight_workers_the_documented_lock_gives_every_record_to_all(bench: Bench) -> None:
    for _ in range(RECORDS):
        await bench.create()
    barrier = asyncio.Barrier(WORKERS)
    # As the customer's user: without the rule on LockVersion__c, as the document has it.
    taken = await asyncio.gather(
        *[lock_as_documented(bench.customer, barrier) for _ in range(WORKERS)]
    )
    times = Counter(record_id for worker in taken for record_id in worker)
    assert set(times.values()) == {WORKERS}


async def test_eight_workers_ours_gives_every_record_to_one(bench: Bench) -> None:
    stores = [await bench.store() for _ in range(WORKERS)]
    for _ in range(RECORDS):
        await bench.create()
    taken = await asyncio.gather(
        *[claim(store, RECORDS, worker=str(number)) for number, store in enumerate(stores)]
    )
    rest = await claim(stores[0], RECORDS)
    times = Counter(job.id for worker in (*taken, rest) for job in worker)
    assert len(times) == RECORDS
    assert set(times.values()) == {1}


async def test_one_poisonous_record_takes_no_innocent_one_along(bench: Bench) -> None:
    """Its worker dies each time, with an innocent record at its last attempt beside it."""
    poisonous = await bench.create(Priority__c=9)
    innocent = await bench.create(Attempts__c=3)
    ends: dict[object, State] = {}
    for _ in range(20):
        worker = await bench.store()  # a new process
        jobs = await claim(worker, 8, lease_seconds=-60)
        if not jobs:
            break
        if all(job.id == innocent for job in jobs):
            assert await worker.settle([settlement(job, State.SUCCEEDED) for job in jobs]) == []
            ends[innocent] = State.SUCCEEDED
            continue
        for taken in await worker.reclaim(8):
            if taken.state.ended:
                ends[taken.job_id] = taken.state
    assert ends == {innocent: State.SUCCEEDED, poisonous: State.DEAD}
    record = await bench.record(poisonous)
    assert record["Error__c"].startswith("LEASE_LOST (attempts used up)")


async def test_a_suspect_runs_alone(bench: Bench) -> None:
    store = await bench.store()
    suspect = await bench.create(Crashes__c=CRASHES_IN_COMPANY_MAX, Priority__c=9)
    others = {await bench.create() for _ in range(3)}
    (first,) = await claim(store, 8)
    assert first.id == suspect
    assert await claim(store, 8) == []
    await store.settle([settlement(first, State.QUEUED, delay_seconds=0)])
    company = await claim(store, 8)
    assert {job.id for job in company} == others
    assert await claim(store, 8) == []  # waits until the others have ended
    await store.settle([settlement(job, State.SUCCEEDED) for job in company])
    (again,) = await claim(store, 8)
    assert again.id == suspect


async def test_releases_and_snoozes_are_counted_and_so_bounded(bench: Bench) -> None:
    store = await bench.store()
    job = await claim_one(store, bench)
    back = {"attempt_back": True, "delay_seconds": 0}
    await store.settle([settlement(job, State.QUEUED, released=True, **back)])
    (job,) = await claim(store)
    await store.settle([settlement(job, State.QUEUED, snoozed=True, **back)])
    (job,) = await claim(store)
    assert (job.attempt, job.releases, job.snoozes) == (1, 1, 1)
    found = await store.get(job.id)
    assert found is not None
    assert (found.releases, found.snoozes, found.crashes) == (1, 1, 0)
    full = await claim_one(store, bench, Releases__c=RELEASES_MAX, Snoozes__c=SNOOZES_MAX)
    assert (full.releases, full.snoozes) == (RELEASES_MAX, SNOOZES_MAX)
