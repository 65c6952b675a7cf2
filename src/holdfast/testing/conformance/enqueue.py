"""Enqueue: all or nothing, in order, as given."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from holdfast.domain.errors import DuplicateJob, StoreRefused
from holdfast.domain.job import Filter, Receipt
from holdfast.domain.states import State
from holdfast.stores.protocol import FullStore as Store
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


class Enqueueing(Suite):
    @needs(Room.QUEUES, Room.OPTIONS, Room.ANY_JSON)
    async def test_an_enqueued_job_is_recorded_as_it_was_given(self, store: Store) -> None:
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
        )
        job = await recorded(store, job_id)
        assert (job.name, job.queue, job.priority) == ("größe.ändern", "画像", -5)
        assert job.arguments == {"who": "Ærøskøbing \0 \U0001f980", "n": [1, 2.5, None]}
        assert (job.max_attempts, job.tenant, job.correlation_id) == (7, "Ĳssel", "søk-1")
        assert job.tags == ("blå", "", '"quoted"')
        assert (job.state, job.attempts, job.fence) == (State.QUEUED, 0, 0)
        assert job.run_at == job.created_at

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

    async def test_receipts_come_in_the_order_of_the_jobs(self, store: Store) -> None:
        jobs = [new_job(correlation_id=f"{n}") for n in range(min(1234, self.kind.many))]
        jobs.reverse()
        receipts = await store.enqueue(jobs)
        assert all(receipt.created for receipt in receipts)
        for place in (0, 1, len(jobs) - 1):
            found = await recorded(store, receipts[place].id)
            assert found.correlation_id == jobs[place].correlation_id
        assert sum(count.jobs for count in await store.counts()) == len(jobs)

    @needs(Room.CHOSEN_IDS)
    async def test_receipts_name_the_ids_that_were_given(self, store: Store) -> None:
        jobs = [new_job() for _ in range(1234)]
        jobs.reverse()
        assert await store.enqueue(jobs) == [Receipt(job.id, True) for job in jobs]

    async def test_enqueueing_nothing_is_fine(self, store: Store) -> None:
        assert await store.enqueue([]) == []

    @needs(Room.CHOSEN_IDS)
    async def test_an_id_that_exists_is_refused_and_nothing_is_enqueued(self, store: Store) -> None:
        existing = await enqueue(store, queue="first")
        fresh = [new_job() for _ in range(150)]
        with pytest.raises(DuplicateJob) as caught:
            await store.enqueue([*fresh, new_job(id=existing)])
        assert caught.value.job_id == existing
        assert (await recorded(store, existing)).queue == "first"
        assert len((await store.page(Filter(), 10)).jobs) == 1

    @needs(Room.CHOSEN_IDS)
    async def test_an_id_given_twice_is_refused_and_nothing_is_enqueued(self, store: Store) -> None:
        twice = new_id()
        with pytest.raises(DuplicateJob) as caught:
            await store.enqueue([new_job(id=twice), new_job(), new_job(id=twice)])
        assert caught.value.job_id == twice
        assert await store.counts() == []

    async def test_nothing_starts_before_its_delay_is_over(
        self, store: Store, harness: Harness
    ) -> None:
        job_id = await enqueue(store, delay_seconds=60.0)
        job = await recorded(store, job_id)
        waits = job.run_at - job.created_at
        assert timedelta(seconds=60) <= waits <= timedelta(seconds=62)
        await harness.advance(50)
        assert await claim(store) == []
        assert await store.claim_by_id(job_id, "worker", 30.0) is None
        await harness.advance(11)
        assert [job.id for job in await claim(store)] == [job_id]

    async def test_nothing_starts_before_its_time(self, store: Store, harness: Harness) -> None:
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
    async def test_one_bad_record_is_refused_and_nothing_beside_it_is_enqueued(
        self, store: Store
    ) -> None:
        for reason, bad in BAD_RECORDS.items():
            with pytest.raises(StoreRefused):
                await store.enqueue([new_job(), new_job(**bad)])
            assert await store.counts() == [], reason

    @needs(Room.QUEUES, Room.OPTIONS, Room.ANY_JSON)
    async def test_one_bad_record_harms_nobody_else(self, store: Store) -> None:
        good = [new_job(queue="good") for _ in BAD_RECORDS]
        bad = [new_job(**{"queue": "bad", **each}) for each in BAD_RECORDS.values()]
        mixed = [job for pair in zip(good, bad, strict=True) for job in pair]
        answers = await asyncio.gather(
            *(store.enqueue([job]) for job in mixed), return_exceptions=True
        )
        refused = [isinstance(answer, StoreRefused) for answer in answers]
        assert refused == [False, True] * len(good)
        assert [(count.queue, count.jobs) for count in await store.counts()] == [
            ("good", len(good))
        ]
