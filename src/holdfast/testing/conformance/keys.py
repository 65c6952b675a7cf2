"""Idempotency keys: the same key gives the same job; with another body, an error."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from holdfast.domain.errors import DuplicateJob, IdempotencyConflict
from holdfast.domain.job import NewJob, Receipt
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


def keyed(key: str = "key", body: bytes = b"body", **changes: Any) -> NewJob:
    # A store that keeps no hash of the body compares the arguments themselves.
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


class Keys(Suite):
    async def test_the_same_key_gives_the_same_job(self, store: Store, other: Store) -> None:
        (first,) = await store.enqueue([keyed()])
        (second,) = await other.enqueue([keyed()])
        assert first.created
        assert second == Receipt(first.id, False)
        assert (await recorded(store, first.id)).idempotency_key == "key"
        assert await jobs_in(store) == 1

    async def test_the_same_key_with_another_body_is_an_error_and_nothing_is_enqueued(
        self, store: Store
    ) -> None:
        (first,) = await store.enqueue([keyed()])
        with pytest.raises(IdempotencyConflict) as caught:
            await store.enqueue([new_job(), keyed(body=b"other"), keyed("fresh")])
        assert (caught.value.key, caught.value.job_id) == ("key", first.id)
        assert await jobs_in(store) == 1
        (fresh,) = await store.enqueue([keyed("fresh", b"any")])
        assert fresh.created

    @needs(Room.OPTIONS)
    async def test_keys_of_two_tenants_are_two_keys(self, store: Store) -> None:
        jobs = [keyed(), keyed(tenant="a", body=b"a"), keyed(tenant="b", body=b"b")]
        assert [receipt.created for receipt in await store.enqueue(jobs)] == [True, True, True]

    async def test_a_key_given_twice_in_one_batch_gives_one_job(self, store: Store) -> None:
        first, unkeyed, second = await store.enqueue([keyed(), new_job(), keyed()])
        assert [each.created for each in (first, unkeyed, second)] == [True, True, False]
        assert second.id == first.id != unkeyed.id
        assert await jobs_in(store) == 2

    async def test_a_key_given_twice_in_one_batch_with_two_bodies_is_an_error(
        self, store: Store
    ) -> None:
        with pytest.raises(IdempotencyConflict):
            await store.enqueue([keyed(), keyed(body=b"other")])
        assert await jobs_in(store) == 0

    async def test_a_key_outlives_the_end_of_its_job(self, store: Store) -> None:
        (first,) = await store.enqueue([keyed()])
        (job,) = await claim(store)
        await store.settle([success(job)])
        assert await store.enqueue([keyed()]) == [Receipt(first.id, False)]

    @needs(Room.KEY_TIMES)
    async def test_a_key_is_forgotten_after_the_time_that_it_is_kept(
        self, store: Store, harness: Harness
    ) -> None:
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
    async def test_pruning_forgets_only_old_keys_and_no_more_than_its_limit(
        self, store: Store, harness: Harness
    ) -> None:
        await store.enqueue([keyed(f"old {number}") for number in range(5)])
        await harness.advance(3601)
        await store.enqueue([keyed("young")])
        assert [await store.tidy(3) for _ in range(3)] == [3, 2, 0]
        assert [receipt.created for receipt in await store.enqueue([keyed("young")])] == [False]

    async def test_of_many_that_race_for_a_key_one_creates_the_job(
        self, store: Store, other: Store
    ) -> None:
        answers = await asyncio.gather(
            *(racer.enqueue([keyed(), new_job()]) for racer in (store, other) * 8)
        )
        receipts = [answer[0] for answer in answers]
        assert len({receipt.id for receipt in receipts}) == 1
        assert [receipt.created for receipt in receipts].count(True) == 1
        assert await jobs_in(store) == 1 + 16

    @needs(Room.CHOSEN_IDS)
    async def test_the_loser_of_a_race_whose_winner_rolls_back_creates_its_job(
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

    async def test_keys_that_cross_each_other_never_deadlock(
        self, store: Store, other: Store
    ) -> None:
        names = [f"key {number}" for number in range(20)]
        await asyncio.gather(
            store.enqueue([keyed(name) for name in names]),
            other.enqueue([keyed(name) for name in reversed(names)]),
        )
        assert await jobs_in(store) == 20

    @needs(Room.NEW_IDS)
    async def test_a_requeued_job_carries_no_key(self, store: Store) -> None:
        (first,) = await store.enqueue([keyed()])
        (job,) = await claim(store)
        await store.settle([success(job)])
        again = new_id()
        assert await store.requeue(first.id, again)
        assert (await recorded(store, again)).idempotency_key is None
        assert await store.enqueue([keyed()]) == [Receipt(first.id, False)]
