"""Enqueue: all or nothing, in order, as given; the same idempotency key gives the same job."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from holdfast.domain.errors import DuplicateJob, IdempotencyConflict, StoreRefused
from holdfast.domain.job import DEFAULT_TENANT, Count, Filter, NewJob, Receipt
from holdfast.domain.states import State
from holdfast.stores.protocol import FullStore as Store
from holdfast.stores.protocol import History
from holdfast.testing.conformance.harness import (
    Harness,
    Room,
    Suite,
    claim,
    enqueue,
    needs,
    new_id,
    new_job,
    recorded,
    success,
)

BAD_RECORDS: dict[str, dict[str, Any]] = {
    "a NUL in the name": {"name": "jo\0b"},
    "a NUL in the queue": {"queue": "\0"},
    "a NUL in the tenant": {"tenant": "a\0"},
    "a NUL in the correlation id": {"correlation_id": "\0a"},
    "a NUL in a tag": {"tags": ("good", "b\0d")},
    "a NUL in the key": {"idempotency_key": "\0", "key_kept_seconds": 60.0},
    "a lone surrogate in the name": {"name": "\ud800"},
    "a lone surrogate in a tag": {"tags": ("\udfff",)},
    "arguments that are not JSON": {"arguments": b"{"},
    "arguments that end in a NUL": {"arguments": b"{}\0"},
    "arguments that are not UTF-8": {"arguments": b'"\xff"'},
    "a priority that is too high": {"priority": 32768},
    "a priority beyond 64 bits": {"priority": 2**63},
    "no attempt at all": {"max_attempts": 0},
    "an endless delay": {"delay_seconds": float("inf")},
    "a delay that is no number": {"delay_seconds": float("nan")},
}


def keyed(key: str = "key", body: bytes = b"body", **changes: Any) -> NewJob:
    # A store without a hash of the body compares the arguments.
    arguments = msgspec.json.encode({"template": "t", "data": body.decode()})
    return new_job(
        idempotency_key=key,
        body_hash=body,
        arguments=arguments,
        key_kept_seconds=3600.0,
        **changes,
    )


async def jobs_in(store: Store) -> int:
    return sum(count.jobs for count in await store.counts())


class Enqueueing(Suite):
    @needs(Room.QUEUES, Room.OPTIONS, Room.ANY_JSON)
    async def test_an_enqueued_job_is_recorded_as_given(self, store: Store) -> None:
        job_id = await enqueue(
            store,
            name="größe.ändern",
            queue="画像",
            priority=-5,
            arguments='{"who": "Ærøskøbing \\u0000 \U0001f980", "n": [1, 2.5, null]}'.encode(),
            max_attempts=7,
            tenant="Ĳssel",
            correlation_id="søk-1",
            tags=("blå", "", '"quoted"'),
            parent_id=(parent_id := new_id()),
        )
        job = await recorded(store, job_id)
        assert (job.name, job.queue, job.priority) == ("größe.ändern", "画像", -5)
        assert job.arguments == {"who": "Ærøskøbing \0 \U0001f980", "n": [1, 2.5, None]}
        assert (job.max_attempts, job.tenant, job.correlation_id) == (7, "Ĳssel", "søk-1")
        assert job.tags == ("blå", "", '"quoted"')
        assert job.parent_id == parent_id
        assert (job.state, job.attempts, job.fence) == (State.QUEUED, 0, 0)
        assert job.run_at == job.created_at

    async def test_a_job_without_a_tenant_is_the_default_tenants(self, store: Store) -> None:
        job_id = await enqueue(store)
        assert (await recorded(store, job_id)).tenant == DEFAULT_TENANT
        (claimed,) = await claim(store)
        assert claimed.tenant == DEFAULT_TENANT
        (reclaimed,) = await store.reclaim(10, "worker", "died")
        assert reclaimed.tenant == DEFAULT_TENANT
        await store.cancel([job_id])
        assert (await recorded(store, job_id)).tenant == DEFAULT_TENANT

    @needs(Room.ANY_JSON)
    async def test_arguments_reach_the_worker_unchanged(self, store: Store) -> None:
        arguments = '{"a":"\\ud83e\\udd80 \\u0000 é","deep":[[[{"b":-0.0}]]]}'.encode()
        await enqueue(store, arguments=arguments)
        (job,) = await claim(store)
        assert job.arguments == arguments

    @pytest.mark.parametrize(
        "job_id",
        [UUID(int=0), UUID(int=2**128 - 1), UUID("a3bb189e-8bf9-4c5e-9d2f-0123456789ab")],
        ids=str,
    )
    @needs(Room.CHOSEN_IDS)
    async def test_any_uuid_is_an_id(self, store: Store, job_id: UUID) -> None:
        assert await store.enqueue([new_job(id=job_id)]) == [Receipt(job_id, True)]
        (job,) = await claim(store)
        assert job.id == job_id
        assert (await recorded(store, job_id)).id == job_id

    async def test_receipts_follow_the_order_of_the_jobs(self, store: Store) -> None:
        jobs = [new_job(correlation_id=f"{n}") for n in range(min(1234, self.kind.many))]
        jobs.reverse()
        receipts = await store.enqueue(jobs)
        assert all(receipt.created for receipt in receipts)
        for place in (0, 1, len(jobs) - 1):
            found = await recorded(store, receipts[place].id)
            assert found.correlation_id == jobs[place].correlation_id
        assert sum(count.jobs for count in await store.counts()) == len(jobs)

    @needs(Room.CHOSEN_IDS)
    async def test_receipts_name_the_given_ids(self, store: Store) -> None:
        jobs = [new_job() for _ in range(1234)]
        jobs.reverse()
        assert await store.enqueue(jobs) == [Receipt(job.id, True) for job in jobs]

    async def test_enqueueing_nothing_is_fine(self, store: Store) -> None:
        assert await store.enqueue([]) == []

    @needs(Room.CHOSEN_IDS)
    async def test_an_existing_id_is_rejected_and_nothing_is_enqueued(self, store: Store) -> None:
        existing = await enqueue(store, queue="first")
        fresh = [new_job() for _ in range(150)]
        with pytest.raises(DuplicateJob) as caught:
            await store.enqueue([*fresh, new_job(id=existing)])
        assert caught.value.job_id == existing
        assert (await recorded(store, existing)).queue == "first"
        assert len((await store.page(Filter(), 10)).jobs) == 1

    @needs(Room.CHOSEN_IDS)
    async def test_a_repeated_id_is_rejected_and_nothing_is_enqueued(self, store: Store) -> None:
        twice = new_id()
        with pytest.raises(DuplicateJob) as caught:
            await store.enqueue([new_job(id=twice), new_job(), new_job(id=twice)])
        assert caught.value.job_id == twice
        assert await store.counts() == []

    async def test_no_job_starts_before_its_delay(self, store: Store, harness: Harness) -> None:
        job_id = await enqueue(store, delay_seconds=60.0)
        job = await recorded(store, job_id)
        waits = job.run_at - job.created_at
        assert timedelta(seconds=60) <= waits <= timedelta(seconds=62)
        await harness.advance(50)
        assert await claim(store) == []
        assert await store.claim_by_id(job_id, "worker", 30.0) is None
        await harness.advance(11)
        assert [job.id for job in await claim(store)] == [job_id]

    async def test_no_job_starts_before_its_time(self, store: Store, harness: Harness) -> None:
        now = (await recorded(store, await enqueue(store, delay_seconds=7200.0))).created_at
        late = await enqueue(store, run_at=now + timedelta(seconds=3600))
        past = await enqueue(store, run_at=now - timedelta(days=400))
        assert [job.id for job in await claim(store)] == [past]
        await harness.advance(3601)
        assert [job.id for job in await claim(store)] == [late]

    @needs(Room.OPTIONS)
    async def test_an_expiry_counts_from_the_enqueue(self, store: Store) -> None:
        job = await recorded(store, await enqueue(store, expires_in_seconds=90.0))
        assert job.expires_at == job.created_at + timedelta(seconds=90)

    @needs(Room.QUEUES, Room.OPTIONS, Room.ANY_JSON)
    async def test_a_bad_record_is_rejected_with_its_batch(self, store: Store) -> None:
        for reason, bad in BAD_RECORDS.items():
            with pytest.raises(StoreRefused):
                await store.enqueue([new_job(), new_job(**bad)])
            assert await store.counts() == [], reason

    @needs(Room.QUEUES, Room.OPTIONS, Room.ANY_JSON)
    async def test_a_bad_record_harms_no_other_enqueue(self, store: Store) -> None:
        good = [new_job(queue="good") for _ in BAD_RECORDS]
        bad = [new_job(**{"queue": "bad", **each}) for each in BAD_RECORDS.values()]
        mixed = [job for pair in zip(good, bad, strict=True) for job in pair]
        answers = await asyncio.gather(
            *(store.enqueue([job]) for job in mixed), return_exceptions=True
        )
        refused = [isinstance(answer, StoreRefused) for answer in answers]
        assert refused == [False, True] * len(good)
        assert await store.counts() == [Count("good", State.QUEUED, len(good))]


class Keys(Suite):
    async def test_the_same_key_gives_the_same_job(self, store: Store, other: Store) -> None:
        (first,) = await store.enqueue([keyed()])
        (second,) = await other.enqueue([keyed()])
        assert first.created
        assert second == Receipt(first.id, False)
        assert (await recorded(store, first.id)).idempotency_key == "key"
        assert await jobs_in(store) == 1

    async def test_the_same_key_with_another_body_is_a_conflict(self, store: Store) -> None:
        (first,) = await store.enqueue([keyed()])
        with pytest.raises(IdempotencyConflict) as caught:
            await store.enqueue([new_job(), keyed(body=b"other"), keyed("fresh")])
        assert (caught.value.key, caught.value.job_id) == ("key", first.id)
        assert await jobs_in(store) == 1
        (fresh,) = await store.enqueue([keyed("fresh", b"any")])
        assert fresh.created

    @needs(Room.OPTIONS)
    async def test_tenants_do_not_share_keys(self, store: Store) -> None:
        jobs = [keyed(), keyed(tenant="a", body=b"a"), keyed(tenant="b", body=b"b")]
        assert [receipt.created for receipt in await store.enqueue(jobs)] == [True, True, True]
        again = [keyed(tenant="b", body=b"b"), keyed(tenant=DEFAULT_TENANT)]
        assert await store.enqueue(again) == [(jobs[2].id, False), (jobs[0].id, False)]

    async def test_a_key_repeated_in_a_batch_gives_one_job(self, store: Store) -> None:
        first, unkeyed, second = await store.enqueue([keyed(), new_job(), keyed()])
        assert [each.created for each in (first, unkeyed, second)] == [True, True, False]
        assert second.id == first.id != unkeyed.id
        assert await jobs_in(store) == 2

    async def test_a_key_repeated_with_two_bodies_is_a_conflict(self, store: Store) -> None:
        with pytest.raises(IdempotencyConflict):
            await store.enqueue([keyed(), keyed(body=b"other")])
        assert await jobs_in(store) == 0

    async def test_a_key_outlives_the_end_of_its_job(self, store: Store) -> None:
        (first,) = await store.enqueue([keyed()])
        (job,) = await claim(store)
        await store.settle([success(job)])
        assert await store.enqueue([keyed()]) == [Receipt(first.id, False)]

    @needs(Room.KEY_TIMES)
    async def test_a_key_expires_after_its_retention(self, store: Store, harness: Harness) -> None:
        await store.enqueue([keyed()])
        await harness.advance(3500)
        assert [receipt.created for receipt in await store.enqueue([keyed()])] == [False]
        await harness.advance(101)
        assert [receipt.created for receipt in await store.enqueue([keyed(body=b"new")])] == [True]
        with pytest.raises(IdempotencyConflict):
            await store.enqueue([keyed()])

    @needs(Room.CHOSEN_IDS)
    async def test_a_key_whose_enqueue_failed_is_still_free(self, store: Store) -> None:
        existing = await enqueue(store)
        with pytest.raises(DuplicateJob):
            await store.enqueue([keyed(), new_job(id=existing)])
        assert [receipt.created for receipt in await store.enqueue([keyed(body=b"new")])] == [True]

    @needs(History, Room.KEY_TIMES)
    async def test_upkeep_deletes_expired_keys(self, store: Store, harness: Harness) -> None:
        await store.enqueue([keyed(f"old {number}") for number in range(5)])
        await harness.advance(3601)
        await store.enqueue([keyed("young")])
        assert [await store.tidy(3) for _ in range(3)] == [3, 2, 0]
        assert [receipt.created for receipt in await store.enqueue([keyed("young")])] == [False]

    async def test_racers_for_a_key_create_one_job(self, store: Store, other: Store) -> None:
        answers = await asyncio.gather(
            *(racer.enqueue([keyed(), new_job()]) for racer in (store, other) * 8)
        )
        receipts = [answer[0] for answer in answers]
        assert len({receipt.id for receipt in receipts}) == 1
        assert [receipt.created for receipt in receipts].count(True) == 1
        assert await jobs_in(store) == 1 + 16

    @needs(Room.CHOSEN_IDS)
    async def test_the_loser_enqueues_if_the_winner_rolls_back(
        self, store: Store, other: Store
    ) -> None:
        existing = await enqueue(store)
        doomed = [keyed(), *(new_job() for _ in range(300)), new_job(id=existing)]
        answers = await asyncio.gather(
            store.enqueue(doomed), other.enqueue([keyed()]), return_exceptions=True
        )
        assert isinstance(answers[0], DuplicateJob)
        assert not isinstance(answers[1], BaseException)
        assert answers[1][0].created
        assert (await recorded(store, answers[1][0].id)).state is State.QUEUED
        assert await jobs_in(store) == 2

    async def test_crossing_keys_never_deadlock(self, store: Store, other: Store) -> None:
        names = [f"key {number}" for number in range(20)]
        await asyncio.gather(
            store.enqueue([keyed(name) for name in names]),
            other.enqueue([keyed(name) for name in reversed(names)]),
        )
        assert await jobs_in(store) == 20

    @needs(Room.NEW_IDS)
    async def test_a_requeued_job_has_no_key(self, store: Store) -> None:
        (first,) = await store.enqueue([keyed()])
        (job,) = await claim(store)
        await store.settle([success(job)])
        again = new_id()
        assert await store.requeue(first.id, again)
        assert (await recorded(store, again)).idempotency_key is None
        assert await store.enqueue([keyed()]) == [Receipt(first.id, False)]
