"""Wake-ups, for stores that have them: which changes wake whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from holdfast.domain.states import State
from holdfast.stores.protocol import Breakers, Listening, QueueControl
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Room,
    Suite,
    claim,
    claim_one,
    enqueue,
    failure,
    job_in,
    needs,
    new_id,
    new_job,
    release,
    snooze,
)
from holdfast.wakeups.protocol import Wakeup

PATIENCE_SECONDS = 10.0


class Ear:
    """Collects wake-ups."""

    def __init__(self) -> None:
        self.heard: list[Wakeup] = []
        self._more = asyncio.Event()

    def __call__(self, wakeup: Wakeup) -> None:
        # Naming the job is optional.
        self.heard.append(wakeup._replace(job_id=None))
        self._more.set()

    async def until(self, wakeup: Wakeup) -> list[Wakeup]:
        """Wait for this wake-up; return what came before it."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while wakeup not in self.heard:
                self._more.clear()
                await self._more.wait()
        before = self.heard[: self.heard.index(wakeup)]
        self.heard.clear()
        return before


@needs(Listening, Room.QUEUES)
class Waking(Suite):
    @pytest_asyncio.fixture
    async def ear(self, other: Store) -> AsyncIterator[Ear]:
        ear = Ear()
        listener = await other.listen(ear)
        if listener is None:
            pytest.skip("this store has no wake-ups here")
        yield ear
        await listener.close()

    async def heard(self, store: Store, ear: Ear) -> list[Wakeup]:
        """Return what was heard so far. Wake-ups of one sender arrive in order."""
        await enqueue(store, queue="the end", name="none")
        return await ear.until(Wakeup(queue="the end"))

    async def test_an_enqueue_wakes_each_queue_once(self, store: Store, ear: Ear) -> None:
        await store.enqueue([new_job(queue=queue) for queue in ("a", "b", "a", "ü", "a")])
        heard = await self.heard(store, ear)
        assert sorted(heard) == [Wakeup(queue="a"), Wakeup(queue="b"), Wakeup(queue="ü")]

    async def test_a_queue_is_woken_on_request(self, store: Store, ear: Ear) -> None:
        await store.wake("q")
        assert await self.heard(store, ear) == [Wakeup(queue="q")]

    async def test_jobs_that_are_not_due_wake_nobody(self, store: Store, ear: Ear) -> None:
        await enqueue(store, queue="late", delay_seconds=60.0)
        assert await self.heard(store, ear) == []

    async def test_a_cancel_notifies_the_worker(self, store: Store, ear: Ear) -> None:
        job, waiting = await claim_one(store, queue="q"), await enqueue(store, queue="q")
        await self.heard(store, ear)
        await store.cancel([job.id, waiting, new_id()])
        assert await self.heard(store, ear) == [Wakeup(canceled=job.id)]

    async def test_jobs_due_again_wake_their_queue(self, store: Store, ear: Ear) -> None:
        jobs = [await claim_one(store, queue=queue) for queue in ("released", "retried", "snoozed")]
        await self.heard(store, ear)
        await store.settle([release(jobs[0]), failure(jobs[1], delay_seconds=9)])
        await store.settle([snooze(jobs[2], 9)])
        assert await self.heard(store, ear) == [Wakeup(queue="released")]
        assert await store.retry(jobs[1].id)
        assert await self.heard(store, ear) == [Wakeup(queue="retried")]

    async def test_a_requeue_wakes_its_queue(self, store: Store, ear: Ear) -> None:
        ended = await job_in(store, State.DEAD)
        await self.heard(store, ear)
        await store.requeue(ended, new_id())
        assert await self.heard(store, ear) == [Wakeup(queue="default")]

    async def test_a_reclaim_wakes_the_queues_of_its_jobs(
        self, store: Store, ear: Ear, harness: Harness
    ) -> None:
        await store.enqueue([new_job(queue="again"), new_job(queue="dead", max_attempts=1)])
        assert len(await claim(store, alone=True)) == 2
        await self.heard(store, ear)
        await harness.advance(LEASE_SECONDS + 1)
        assert len(await store.reclaim(10)) == 2
        assert await self.heard(store, ear) == [Wakeup(queue="again")]

    async def test_released_strays_wake_their_queues(self, store: Store, ear: Ear) -> None:
        await claim_one(store, queue="stray")
        await self.heard(store, ear)
        await store.release_strays("worker", [], 10)
        assert await self.heard(store, ear) == [Wakeup(queue="stray")]

    @needs(QueueControl)
    async def test_a_resumed_queue_is_woken(self, store: Store, ear: Ear) -> None:
        await store.pause("q", None, None)
        assert await self.heard(store, ear) == []
        await store.resume("q")
        assert await self.heard(store, ear) == [Wakeup(queue="q")]

    @needs(Breakers)
    async def test_unparked_jobs_wake_their_queues(self, store: Store, ear: Ear) -> None:
        jobs = [new_job(queue=queue, breaker="gateway") for queue in ("a", "b", "a")]
        await store.enqueue(jobs)
        await store.open_breaker("gateway", None, None)
        await self.heard(store, ear)
        assert (await store.park(10)).moved == 3
        assert await self.heard(store, ear) == []
        await store.close_breaker("gateway")
        assert (await store.park(10)).moved == 3
        assert sorted(await self.heard(store, ear)) == [Wakeup(queue="a"), Wakeup(queue="b")]

    async def test_a_closed_listener_hears_nothing(self, store: Store, other: Store) -> None:
        closed, open_ear = Ear(), Ear()
        first, second = await other.listen(closed), await other.listen(open_ear)
        if first is None or second is None:
            pytest.skip("this store has no wake-ups here")
        await first.close()
        await enqueue(store)
        await open_ear.until(Wakeup(queue="default"))
        await second.close()
        assert closed.heard == []
