"""New records, reading them, and what happens when Salesforce can't or won't answer."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from holdfast import (
    Filter,
    Holdfast,
    IdempotencyConflict,
    NotInThisStore,
    PayloadTooLarge,
    State,
    StoreRefused,
    StoreUnavailable,
)
from holdfast.domain.job import Count
from holdfast.stores.protocol import CAPABILITIES, capability
from holdfast_systems.documents.salesforce.client import record_id_of
from tests.systems.documents.bench import (
    Bench,
    claim,
    claim_one,
    new_job,
    settlement,
    success,
)
from tests.systems.documents.organization import DOCUMENT, log_in, session_to

pytestmark = pytest.mark.heavy

PATCHES = {"method": "PATCH", "path": "composite/sobjects"}


async def test_an_enqueued_job_is_a_record(bench: Bench) -> None:
    store = await bench.store()
    job = new_job(priority=-4, correlation_id="order-7", delay_seconds=90.0)
    (receipt,) = await store.enqueue([job])
    assert receipt.created
    record = await bench.record(receipt.id)
    assert (record["Status__c"], record["Template__c"]) == ("QUEUED", "invoice")
    assert (record["Data__c"], record["Priority__c"]) == ('{"a":1}', 4)
    found = await store.get(receipt.id)
    assert found is not None
    assert (found.id, found.state, found.correlation_id) == (receipt.id, State.QUEUED, "order-7")
    assert found.arguments["data"] == {"a": 1}
    assert 88 <= (found.run_at - found.created_at).total_seconds() <= 95
    assert await claim(store) == []


async def test_the_same_key_gives_the_same_record(bench: Bench) -> None:
    store = await bench.store()
    keyed = {"idempotency_key": "it's \\ a key", "body_hash": b"1"}
    (first,) = await store.enqueue([new_job(**keyed)])
    (second, other) = await store.enqueue([new_job(**keyed), new_job()])
    assert (second.id, second.created, other.created) == (first.id, False, True)
    different = new_job(**keyed, arguments=b'{"template":"invoice","data":{"a":2}}')
    with pytest.raises(IdempotencyConflict):
        await store.enqueue([new_job(), different])
    assert await bench.customer.count(f"SELECT COUNT() FROM {DOCUMENT}") == 2


async def test_one_key_twice_in_a_call_is_one_record(bench: Bench) -> None:
    store = await bench.store()
    keyed = {"idempotency_key": "k", "body_hash": b"1"}
    first, second = await store.enqueue([new_job(**keyed), new_job(**keyed)])
    assert (first.id, first.created, second.created) == (second.id, True, False)
    with pytest.raises(IdempotencyConflict):
        await store.enqueue(
            [new_job(idempotency_key="l", body_hash=hashed) for hashed in (b"1", b"2")]
        )
    assert await bench.customer.count(f"SELECT COUNT() FROM {DOCUMENT}") == 1


async def test_one_key_at_the_same_moment_is_one_record(bench: Bench) -> None:
    stores = [await bench.store() for _ in range(3)]
    keyed = {"idempotency_key": "k", "body_hash": b"1"}
    await bench.fault(method="POST", path="composite/sobjects", hold=True, times=3)
    tasks = [asyncio.create_task(store.enqueue([new_job(), new_job(**keyed)])) for store in stores]
    await bench.held(3)  # None of them has found the key.
    await bench.switch("DELETE", "faults")
    receipts = [answer[1] for answer in await asyncio.gather(*tasks)]
    assert len({receipt.id for receipt in receipts}) == 1
    assert sorted(receipt.created for receipt in receipts) == [False, False, True]
    assert await bench.customer.count(f"SELECT COUNT() FROM {DOCUMENT}") == 4


async def test_any_key_is_found_again(bench: Bench) -> None:
    store = await bench.store()
    keys = [" order 7 ", " ", *(f"{number:05}{chr(39) * 250}" for number in range(30))]
    jobs = [new_job(idempotency_key=key, body_hash=b"1") for key in keys]
    first = await store.enqueue(jobs)
    again = await store.enqueue(jobs)
    assert [receipt.id for receipt in again] == [receipt.id for receipt in first]
    assert len({receipt.id for receipt in first}) == len(keys)
    assert not any(receipt.created for receipt in again)


async def test_all_are_enqueued_or_none(bench: Bench) -> None:
    store = await bench.store()
    too_long = b'{"template":"' + b"t" * 81 + b'","data":{}}'
    with pytest.raises(StoreRefused, match="STRING_TOO_LONG"):
        await store.enqueue([new_job(), new_job(arguments=too_long), new_job()])
    assert await bench.customer.count(f"SELECT COUNT() FROM {DOCUMENT}") == 0


async def test_hf_speaks_of_a_record_by_its_id(bench: Bench) -> None:
    async with Holdfast(bench.url, max_attempts=4) as hf:

        @hf.job(queue="documents")
        async def generate_document(template: str, data: dict[str, int]) -> None: ...

        job = await generate_document.enqueue("letter", {"a": 1})
        assert (await bench.record(job.id))["Template__c"] == "letter"
        assert (await hf.get(job.id)).state is State.QUEUED
        assert (await hf.jobs.cancel(job.id)).state is State.CANCELED
        before = await bench.record(job.id)
        again = await hf.jobs.requeue(job.id)
        assert (again.id, again.state, again.attempts) == (job.id, State.QUEUED, 0)
        with pytest.raises(NotInThisStore, match="the same record is queued again"):
            await hf.jobs.requeue(job.id, arguments={"template": "invoice", "data": {}})
        after = await bench.record(job.id)
        assert after["LockVersion__c"] == before["LockVersion__c"] + 1
        assert after["Fence__c"] > before["Fence__c"]
        with pytest.raises(PayloadTooLarge):
            await generate_document.enqueue("letter", {"x" * 140_000: 1})


async def test_a_page_starts_where_the_last_one_ended(bench: Bench) -> None:
    store = await bench.store()
    ids = [await bench.create() for _ in range(5)]
    await bench.create(CorrelationId__c="it's")
    first = await store.page(Filter(), 4)
    assert first.after is not None
    second = await store.page(Filter(), 4, first.after)
    listed = [job.id for job in [*first.jobs, *second.jobs]]
    assert (len(listed), len(set(listed)), second.after) == (6, 6, None)
    assert listed[1:] == ids[::-1]
    (found,) = (await store.page(Filter(correlation_id="it's"), 4)).jobs
    assert found.id == listed[0]
    assert (await store.page(Filter(tenant="t"), 4)).jobs == []
    assert len((await store.page(Filter(tenant="default"), 6)).jobs) == 6
    assert (await store.page(Filter(error_code="BROKEN"), 4)).jobs == []
    oldest = second.jobs[-1].created_at
    assert (await store.page(Filter(until=oldest), 4)).jobs == []
    assert len((await store.page(Filter(since=oldest), 6)).jobs) == 6
    assert (await store.page(Filter(states=(State.SUCCEEDED,)), 4)).jobs == []
    assert len((await store.page(Filter(states=(State.QUEUED,)), 4)).jobs) == 4


async def test_failed_and_dead_are_told_apart_by_their_errors(bench: Bench) -> None:
    store = await bench.store()
    jobs = [await claim_one(store, bench) for _ in range(2)]
    for job, state in zip(jobs, (State.FAILED, State.DEAD), strict=True):
        error = {"error_code": "BROKEN", "error_text": "it broke"}
        assert await store.settle([settlement(job, state, **error)]) == []
        found = await store.get(job.id)
        assert found is not None
        assert (found.state, found.error_code, found.error_text) == (state, "BROKEN", "it broke")
        assert (await bench.record(job.id))["Status__c"] == "FAILED"
    assert await store.counts() == [Count("documents", State.FAILED, 2)]
    (dead,) = (await store.page(Filter(states=(State.DEAD,)), 10)).jobs
    assert dead.id == jobs[1].id


async def test_an_outside_client_reads_what_the_store_wrote(bench: Bench) -> None:
    store = await bench.store()
    job = await claim_one(store, bench, Data__c='{"total": "12.50"}')
    await store.settle([success(job)])

    def read() -> dict[str, object]:
        with session_to(bench.address) as session:
            client = log_in(session, "admin")
            found = getattr(client, DOCUMENT).get(record_id_of(job.id))
            return dict(found)

    record = await asyncio.to_thread(read)
    assert (record["Status__c"], record["OutputFileId__c"]) == ("SUCCEEDED", "068000000000001AAA")
    assert (record["LockedUntil__c"], record["Error__c"], record["Attempts__c"]) == (None, None, 1)
    assert (record["LockVersion__c"], record["Fence__c"]) == (2, 2)


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503, "code": "SERVER_UNAVAILABLE"},
        {"status": 400, "code": "UNABLE_TO_LOCK_ROW"},
        {"status": 403, "code": "REQUEST_LIMIT_EXCEEDED"},
        {"status": 429, "code": "TOO_MANY"},
        {"status": 302, "code": "MOVED"},
        {"status": 401, "code": "INVALID_SESSION_ID", "times": 2},
    ],
)
async def test_what_passes_is_told_as_unavailable(bench: Bench, fault: dict[str, object]) -> None:
    store = await bench.store()
    await bench.fault(**fault)
    with pytest.raises(StoreUnavailable):
        await claim(store)
    assert await claim(store) == []


async def test_a_locked_row_holds_up_no_other(bench: Bench) -> None:
    store = await bench.store()
    jobs = [await claim_one(store, bench) for _ in range(3)]
    await bench.fault(rows=1, code="UNABLE_TO_LOCK_ROW")
    assert await store.settle([success(job) for job in jobs]) == []
    assert await store.counts() == [Count("documents", State.SUCCEEDED, 3)]


async def test_what_was_settled_before_a_refusal_is_not_told_as_lost(bench: Bench) -> None:
    store = await bench.store()
    jobs = [await claim_one(store, bench) for _ in range(2)]
    await bench.fault(rows=1, code="STRING_TOO_LONG")
    settlements = [success(job) for job in jobs]
    with pytest.raises(StoreRefused):
        await store.settle(settlements)
    assert await store.settle(settlements[:1]) == []
    assert await store.settle(settlements[1:]) == []
    assert await store.counts() == [Count("documents", State.SUCCEEDED, 2)]


async def test_a_rule_of_the_customers_own_is_no_race(bench: Bench) -> None:
    store = await bench.store()
    job = await claim_one(store, bench)
    await bench.fault(rows=9, code="FIELD_CUSTOM_VALIDATION_EXCEPTION")
    with pytest.raises(StoreRefused, match="FIELD_CUSTOM_VALIDATION_EXCEPTION"):
        await store.settle([success(job)])


async def test_what_a_store_lacks_is_told_in_one_sentence(bench: Bench) -> None:
    async with Holdfast(bench.url) as hf:
        for asked, told in (
            (hf.transaction().__aenter__(), "offer transactions"),
            (hf.queues.pause("documents"), "pause or cap queues"),
            (hf.queues.cap("documents", 1), "pause or cap queues"),
            (hf.breakers.open("storage"), "keep breakers"),
            (hf.breakers.list(), "keep breakers"),
            (hf.workers.list(), "list its workers"),
        ):
            with pytest.raises(NotInThisStore) as caught:
                await asked
            assert str(caught.value) == f"this store (SalesforceStore) can't {told}"


async def test_a_store_without_capabilities_has_none_of_their_verbs(bench: Bench) -> None:
    store = await bench.store()
    for kind in CAPABILITIES:
        assert capability(store, kind) is None
    assert await store.get(uuid4()) is None
    assert not await store.retry(uuid4())
    await bench.create()
    assert await store.awaited(["generate_document"], None, 0)
    assert not await store.awaited(["generate_document"], ["else"], 0)
