"""Paused queues: none of their jobs starts, whoever asks, until they are resumed."""

from __future__ import annotations

from holdfast.domain.queues import QueueStatus
from holdfast.domain.states import State
from holdfast.stores.protocol import Breakers, Diagnosis, ProgressNotes, QueueControl, Suspects
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Needs,
    Room,
    Suite,
    claim,
    claim_one,
    claim_suspect,
    enqueue,
    job_in,
    needs,
    new_suspect,
    queue_seen,
    recorded,
    success,
)


class Pausing(Suite):
    all_need: Needs = (QueueControl, Room.QUEUES)

    async def test_no_job_of_a_paused_queue_is_claimed_by_anybody(
        self, store: Store, other: Store
    ) -> None:
        waiting = await enqueue(store, queue="paused", priority=-5)
        going = await enqueue(store, queue="going")
        assert await store.pause("paused", "ann", "a look")
        assert [job.id for job in await claim(other)] == [going]
        assert await claim(other, queues=["paused"]) == []
        assert await other.claim_by_id(waiting, "worker", LEASE_SECONDS) is None
        found = await recorded(store, waiting)
        assert (found.state, found.fence, found.attempts) == (State.QUEUED, 0, 0)

    @needs(Suspects)
    async def test_a_suspect_of_a_paused_queue_waits_and_others_do_not(self, store: Store) -> None:
        paused = await new_suspect(store, queue="paused", priority=-5)
        going = await new_suspect(store, queue="going")
        await store.pause("paused", None, None)
        assert await store.suspects(["job"], None) == 1
        first = await claim_suspect(store)
        assert first is not None
        assert first.id == going
        assert await claim_suspect(store) is None
        await store.resume("paused")
        second = await claim_suspect(store)
        assert second is not None
        assert second.id == paused

    @needs(ProgressNotes)
    async def test_what_runs_in_a_paused_queue_goes_on_to_its_end(self, store: Store) -> None:
        job = await claim_one(store, queue="q")
        await store.pause("q", None, None)
        assert await store.renew([job.lease], LEASE_SECONDS) == []
        assert await store.progress(job.lease, b"1")
        assert await store.settle([success(job)]) == []
        assert (await recorded(store, job.id)).state is State.SUCCEEDED

    @needs(Breakers)
    async def test_a_job_that_waits_in_a_queue_that_is_shut_is_not_awaited(
        self, store: Store
    ) -> None:
        await enqueue(store, queue="q")
        await enqueue(store, queue="q", breaker="gateway")
        await store.open_breaker("gateway", None, None)
        await store.park(10)
        await store.close_breaker("gateway")
        await store.pause("q", None, None)
        assert not await store.awaited(["job"], None, 60)
        await store.resume("q")
        assert await store.awaited(["job"], None, 60)
        await store.cap("q", 0)
        assert not await store.awaited(["job"], ["q"], 60)
        await store.cap("q", 1)
        assert await store.awaited(["job"], ["q"], 60)

    async def test_a_job_that_runs_in_a_paused_queue_is_awaited(self, store: Store) -> None:
        await claim_one(store, queue="q")
        await store.pause("q", None, None)
        assert await store.awaited(["job"], None, 0)

    async def test_a_queue_may_be_paused_before_it_has_jobs(self, store: Store) -> None:
        await store.pause("new", None, None)
        await enqueue(store, queue="new")
        assert await claim(store) == []

    async def test_a_resumed_queue_goes_on_in_its_order(self, store: Store, other: Store) -> None:
        jobs = [await enqueue(store, queue="q", priority=priority) for priority in (2, 1, 1)]
        await store.pause("q", None, None)
        assert await claim(other) == []
        assert await store.resume("q")
        assert [job.id for job in await claim(other)] == [jobs[1], jobs[2], jobs[0]]

    async def test_the_first_pause_stands(self, store: Store, other: Store) -> None:
        assert await store.pause("q", "ann", "the disk is full")
        first = await queue_seen(store, "q")
        assert not await other.pause("q", "bob", "no reason")
        assert await queue_seen(other, "q") == first
        assert first.paused
        assert (first.paused_by, first.paused_because) == ("ann", "the disk is full")

    async def test_only_a_paused_queue_is_resumed(self, store: Store, other: Store) -> None:
        assert not await store.resume("q")
        await store.pause("q", None, None)
        assert await other.resume("q")
        assert not await store.resume("q")
        assert await store.pause("q", "bob", None)
        assert (await queue_seen(store, "q")).paused_by == "bob"

    async def test_a_resumed_queue_keeps_its_cap_and_a_paused_one_takes_a_new_one(
        self, store: Store
    ) -> None:
        await store.cap("q", 3)
        await store.pause("q", None, None)
        assert (await queue_seen(store, "q")).running_max == 3
        await store.cap("q", 2)
        assert (await queue_seen(store, "q")).paused
        await store.resume("q")
        found = await queue_seen(store, "q")
        assert (found.paused, found.running_max) == (False, 2)

    async def test_a_paused_queue_stays_paused_when_its_cap_is_lifted(self, store: Store) -> None:
        await store.pause("q", "ann", None)
        await store.cap("q", 3)
        await store.cap("q", None)
        found = await queue_seen(store, "q")
        assert (found.paused_by, found.running_max) == ("ann", None)

    async def test_a_queue_of_which_nothing_is_said_any_more_is_not_listed(
        self, store: Store
    ) -> None:
        await store.pause("resumed", None, None)
        await store.resume("resumed")
        await store.cap("lifted", 3)
        await store.cap("lifted", None)
        assert await store.queues() == []

    async def test_queues_are_listed_by_name_with_what_is_in_them(
        self, store: Store, harness: Harness
    ) -> None:
        await job_in(store, State.SUCCEEDED)
        assert await store.queues() == []
        await enqueue(store, queue="b")
        await harness.advance(20)
        await enqueue(store, queue="b")
        await enqueue(store, queue="b", delay_seconds=60.0)
        await claim_one(store, queue="a")
        await store.pause("c", "ann", None)
        a, b, c = await store.queues()
        assert a == QueueStatus(name="a", running=1)
        assert (b.name, b.ready, b.scheduled, b.parked, b.running) == ("b", 2, 1, 0, 0)
        assert b.oldest_ready_seconds is not None
        assert 20 <= b.oldest_ready_seconds < 50
        assert (c.name, c.waiting, c.running, c.paused_by) == ("c", 0, 0, "ann")

    @needs(Diagnosis)
    async def test_the_circumstances_of_a_job_tell_of_its_queue(self, store: Store) -> None:
        job_id = await enqueue(store, queue="q")
        await store.pause("q", "ann", "a look")
        await store.cap("q", 4)
        found = await store.circumstances(job_id)
        assert found is not None
        assert found.queue is not None
        assert (found.queue.paused_by, found.queue.paused_because) == ("ann", "a look")
        assert (found.queue.running_max, found.queue.running) == (4, 0)
        assert found.queue.paused_at == (await queue_seen(store, "q")).paused_at
