"""Messengers hear of jobs after the commit, and never of those that were rolled back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from holdfast import Context, Filter, Holdfast, State
from holdfast.job_function import JobFunction
from holdfast.messengers import Heard, Hint
from tests.support.messengers import Pigeon
from tests.support.running import QUICK, seen_events, working


class Oops(Exception):
    pass


class Shop:
    def __init__(self, url: str) -> None:
        self.pigeon = Pigeon()
        self.hf = Holdfast(url, messengers=[self.pigeon], **QUICK)

        @self.hf.job(queue="images")
        async def resize(image: int) -> None:
            if image < 0:
                raise ValueError("no such image")

        self.resize: JobFunction[[int], None] = resize

    @property
    def posted(self) -> list[UUID]:
        return [hint.job_id for hint in self.pigeon.posted]

    async def rolled_back(self, change: Callable[[Any], Awaitable[None]]) -> None:
        with suppress(Oops):
            async with self.hf.transaction() as connection:
                await change(connection)
                raise Oops

    async def waiting(self) -> list[UUID]:
        page = await self.hf.jobs.list(Filter(states=(State.QUEUED,)), 10)
        return [job.id for job in page.jobs]

    async def dead(self) -> UUID:
        job = await self.resize.options(max_attempts=1).enqueue(-1)
        await self.hf.run_due()
        assert (await self.hf.get(job.id)).state in (State.FAILED, State.DEAD)
        self.pigeon.posted.clear()
        return job.id


@pytest.fixture
async def shop(store_url: str) -> AsyncIterator[Shop]:
    made = Shop(store_url)
    async with made.hf:
        yield made


async def test_an_enqueued_job_is_posted_with_its_queue_and_delay(shop: Shop) -> None:
    now = await shop.resize.enqueue(1)
    later = await shop.resize.options(delay_seconds=60).enqueue(2)
    many = await shop.hf.enqueue_many([shop.resize.call(3), shop.resize.call(4)])
    assert shop.posted == [now.id, later.id, *(job.id for job in many)]
    assert {hint.queue for hint in shop.pigeon.posted} == {"images"}
    assert [hint.delay_seconds for hint in shop.pigeon.posted] == [0, 60, 0, 0]


async def test_a_known_key_is_not_posted_again(shop: Shop) -> None:
    for _ in range(2):
        await shop.resize.options(idempotency_key="one").enqueue(1)
    assert len(shop.posted) == 1


async def test_a_transaction_posts_after_its_commit(shop: Shop) -> None:
    async with shop.hf.transaction() as connection:
        job = await shop.resize.options(connection=connection).enqueue(1)
        many = await shop.hf.enqueue_many([shop.resize.call(2)], connection=connection)
        assert shop.posted == []
    assert sorted(shop.posted) == sorted([job.id, many[0].id])


async def test_a_transaction_that_is_rolled_back_posts_nothing(shop: Shop) -> None:

    async def enqueue(connection: Any) -> None:
        await shop.resize.options(connection=connection).enqueue(1)

    await shop.rolled_back(enqueue)
    assert shop.posted == []


@pytest.mark.parametrize("fails", [False, True])
async def test_completing_posts_after_its_commit(shop: Shop, fails: bool) -> None:
    inside: list[UUID] = []
    enqueued: list[UUID] = []

    @shop.hf.job(queue="orders", name="order")
    async def order(ctx: Context) -> None:
        async with ctx.completing() as connection:
            job = await shop.resize.options(connection=connection, delay_seconds=60).enqueue(1)
            enqueued.append(job.id)
            inside.extend(shop.posted)
            if fails:
                raise Oops

    job = await order.options(max_attempts=1).enqueue()
    shop.pigeon.posted.clear()
    await shop.hf.run_due()
    assert (await shop.hf.get(job.id)).state.ended
    assert len(enqueued) == 1
    assert inside == []
    assert shop.posted == ([] if fails else enqueued)


async def test_a_requeued_job_is_posted(shop: Shop) -> None:
    copy = await shop.hf.jobs.requeue(await shop.dead())
    assert shop.posted == [copy.id]


async def test_requeue_in_a_transaction_posts_after_its_commit(shop: Shop) -> None:
    dead = await shop.dead()

    async def requeue(connection: Any) -> None:
        await shop.hf.jobs.requeue(dead, connection=connection)

    await shop.rolled_back(requeue)
    assert shop.posted == []
    async with shop.hf.transaction() as connection:
        copy = await shop.hf.jobs.requeue(dead, connection=connection)
        assert shop.posted == []
    assert shop.posted == [copy.id]


async def test_many_requeued_jobs_are_posted(shop: Shop) -> None:
    await shop.dead()
    filter = Filter(states=(State.FAILED, State.DEAD))
    async for _ in shop.hf.jobs.requeue_many(filter):
        pass
    assert shop.posted == await shop.waiting()
    assert len(shop.posted) == 1


async def test_a_bulk_change_posts_what_it_requeues(shop: Shop) -> None:
    await shop.dead()
    await shop.hf.bulk.create("requeue", Filter(states=(State.FAILED, State.DEAD)), start=True)
    (lease,) = await shop.hf._bulk_runs.claim("here", 10)
    assert (await shop.hf._bulk_runs.step(lease)).jobs == 1
    assert shop.posted == await shop.waiting()
    assert len(shop.posted) == 1


async def test_in_a_transaction_of_the_caller_nothing_is_posted(shop: Shop, store_url: str) -> None:
    """Nobody here sees its commit: the database wakes the workers, or polling finds the job."""
    if store_url.startswith("sqlite:"):
        pytest.skip("PostgreSQL only: SQLite has one writer")
    connection = await asyncpg.connect(store_url)
    try:
        async with connection.transaction():
            await shop.resize.options(connection=connection).enqueue(1)
    finally:
        await connection.close()
    assert shop.posted == []


class Careless(Pigeon):
    """Somebody's messenger that raises where it must not."""

    name = "careless"

    def connect(self) -> None:
        raise Oops("amqp://app:hunter2@broker/ is away")

    def post(self, hints: Sequence[Hint]) -> None:
        self.connect()

    async def listen(self, heard: Heard) -> Pigeon:
        self.connect()
        return self

    async def close(self) -> None:
        self.connect()


async def test_a_messenger_that_raises_fails_no_enqueue_no_worker_and_no_other_messenger(
    store_url: str,
) -> None:
    pigeon = Pigeon()
    hf = Holdfast(store_url, messengers=[Careless(), pigeon], **QUICK)

    @hf.job
    async def double(number: int) -> int:
        return 2 * number

    async with seen_events() as seen, hf, working(hf):
        hf.messengers.connect()
        alone = await double.enqueue(1)
        (several,) = await hf.enqueue_many([double.call(2)])
        async with hf.transaction() as connection:
            inside = await double.options(connection=connection).enqueue(3)
        jobs = [alone, several, inside]
        assert [await hf.result(job.id, 60) for job in jobs] == [2, 4, 6]
    assert pigeon.connected
    assert [hint.job_id for hint in pigeon.posted] == [job.id for job in jobs]
    told = seen.named("messenger_failed")
    assert len(told) == 6  # connect, listen, three posts, close
    assert {event.fields["messenger"] for event in told} == {"careless"}
