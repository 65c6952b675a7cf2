"""Reads: pages, counts, and what a worker asks before it exits."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from holdfast.domain.job import DEFAULT_TENANT, CappedCount, CappedCounts, Count, Filter
from holdfast.domain.states import State
from holdfast.stores.protocol import CountsUpTo, Diagnosis
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Room,
    Suite,
    claim,
    claim_one,
    enqueue,
    enqueue_many,
    job_in,
    needs,
    new_id,
    new_job,
    recorded,
    success,
)


async def ids_of(store: Store, filter: Filter, limit: int = 100) -> list[UUID]:
    return [job.id for job in (await store.page(filter, limit)).jobs]


class Reading(Suite):
    async def test_reads_of_an_empty_store_find_nothing(self, store: Store) -> None:
        assert await store.get(new_id()) is None
        assert await store.page(Filter(), 10) == ([], None)
        assert await store.counts() == []

    async def test_all_instances_see_the_same_jobs(self, store: Store, other: Store) -> None:
        job = await claim_one(store)
        assert await other.get(job.id) == await store.get(job.id)
        await other.settle([success(job)])
        assert (await recorded(store, job.id)).state is State.SUCCEEDED

    async def test_pages_go_from_newest_to_oldest_without_a_gap(self, store: Store) -> None:
        older, newer = await enqueue_many(store, 5), await enqueue_many(store, 5)
        ids = [*older, *newer]
        for limit in (1, 3, 5, 9, 10, 11):
            seen: list[UUID] = []
            more = True
            while more:
                page = await store.page(Filter(), limit, seen[-1] if seen else None)
                assert 0 < len(page.jobs) <= limit
                seen += [job.id for job in page.jobs]
                more = page.after is not None
                assert page.after in (None, seen[-1])
            assert seen == ids[::-1]

    @needs(Room.QUEUES, Room.OPTIONS)
    async def test_a_page_holds_the_jobs_that_match_all_filters(self, store: Store) -> None:
        plain = await enqueue(store)
        full = await enqueue(
            store,
            queue="q",
            name="n",
            tenant="t",
            tags=("a", "b"),
            correlation_id="c",
            parent_id=plain,
        )
        half = await enqueue(store, queue="q", tags=("b", "ab"))
        assert await ids_of(store, Filter(queue="q")) == [half, full]
        assert await ids_of(store, Filter(name="job")) == [half, plain]
        assert await ids_of(store, Filter(tenant="t")) == [full]
        assert await ids_of(store, Filter(tenant=DEFAULT_TENANT)) == [half, plain]
        assert await ids_of(store, Filter(tenant="")) == []
        assert await ids_of(store, Filter(parent_id=plain)) == [full]
        assert await ids_of(store, Filter(parent_id=full)) == []
        assert await ids_of(store, Filter(tag="a")) == [full]
        assert await ids_of(store, Filter(tag="b")) == [half, full]
        assert await ids_of(store, Filter(correlation_id="c")) == [full]
        assert await ids_of(store, Filter(queue="q", tag="b", tenant="t")) == [full]
        assert await ids_of(store, Filter(queue="q", name="other")) == []

    @needs(Room.TIMES)
    async def test_pages_filter_by_code_and_time(self, store: Store, harness: Harness) -> None:
        before = await job_in(store, State.DEAD)
        await harness.advance(3600)
        canceled, dead = await job_in(store, State.CANCELED), await job_in(store, State.DEAD)
        waiting = await enqueue(store)
        then = (await recorded(store, canceled)).finished_at
        assert await ids_of(store, Filter(error_code="BROKEN")) == [dead, before]
        assert await ids_of(store, Filter(error_code="CANCELED")) == [canceled]
        assert await ids_of(store, Filter(error_code="other")) == []
        assert await ids_of(store, Filter(since=then)) == [waiting, dead, canceled]
        assert await ids_of(store, Filter(until=then)) == [before]
        assert await ids_of(store, Filter(since=then, error_code="BROKEN")) == [dead]
        # A waiting job has not ended; it counts by its creation.
        assert await ids_of(store, Filter(since=then, states=(State.QUEUED,))) == [waiting]

    async def test_pages_filter_by_state(self, store: Store) -> None:
        ids = {state: await job_in(store, state) for state in State}
        for state in State:
            assert await ids_of(store, Filter(states=(state,))) == [ids[state]]
        bad = (State.FAILED, State.DEAD)
        assert await ids_of(store, Filter(states=bad)) == sorted(
            (ids[state] for state in bad), reverse=True
        )
        assert await ids_of(store, Filter(states=bad, queue="other")) == []
        page = await store.page(Filter(states=bad), 1)
        assert page.after == page.jobs[0].id
        rest = await store.page(Filter(states=bad), 1, page.after)
        assert ({rest.jobs[0].id, page.after}, rest.after) == ({ids[state] for state in bad}, None)
        live = (State.QUEUED, State.RUNNING)
        assert set(await ids_of(store, Filter(states=live))) == {ids[state] for state in live}

    async def test_counts_and_queues_are_by_state(self, store: Store) -> None:
        assert await store.queues() == []
        await enqueue_many(store, 3)
        await enqueue_many(store, 2, delay_seconds=600.0)
        (done, *_) = await claim(store, 2)
        await store.settle([success(done)])
        queue = self.kind.queue
        assert sorted(await store.counts()) == [
            Count(queue, State.QUEUED, 3),
            Count(queue, State.RUNNING, 1),
            Count(queue, State.SUCCEEDED, 1),
        ]
        (depth,) = await store.queues()
        assert (depth.name, depth.ready, depth.scheduled, depth.running) == (queue, 1, 2, 1)
        assert depth.oldest_ready_seconds is not None
        assert 0 <= depth.oldest_ready_seconds < 60

    @needs(Room.QUEUES, Room.OPTIONS)
    async def test_counts_are_by_queue_state_and_tenant(self, store: Store) -> None:
        await store.enqueue([new_job(queue="a") for _ in range(3)])
        await store.enqueue([new_job(queue="b", tenant="t") for _ in range(2)])
        (job,) = await claim(store, 1, queues=("b",))
        await store.settle([success(job)])
        assert sorted(await store.counts()) == [
            Count("a", State.QUEUED, 3),
            Count("b", State.QUEUED, 1),
            Count("b", State.SUCCEEDED, 1),
        ]
        assert sorted(await store.counts("t")) == [
            Count("b", State.QUEUED, 1),
            Count("b", State.SUCCEEDED, 1),
        ]
        assert await store.counts(DEFAULT_TENANT) == [Count("a", State.QUEUED, 3)]
        assert await store.counts("nobody") == []

    @needs(CountsUpTo)
    async def test_capped_counts_stop_at_the_cap(self, store: Store) -> None:
        assert await store.counts_up_to(2) == CappedCounts([], False)
        await store.enqueue([new_job(queue="a") for _ in range(3)])
        await store.enqueue([new_job(queue="b", tenant="t") for _ in range(4)])
        jobs = await claim(store, 2, queues=("b",))
        await store.settle([success(jobs[0])])
        rest = [
            CappedCount("b", State.QUEUED, 2, False),
            CappedCount("b", State.RUNNING, 1, False),
            CappedCount("b", State.SUCCEEDED, 1, False),
        ]
        capped = CappedCount("a", State.QUEUED, 2, True)
        assert await store.counts_up_to(2) == CappedCounts([capped, *rest], True)
        exact = CappedCount("a", State.QUEUED, 3, False)
        assert await store.counts_up_to(3) == CappedCounts([exact, *rest], False)
        assert await store.counts_up_to(2, "t") == CappedCounts(rest, False)
        assert await store.counts_up_to(2, DEFAULT_TENANT) == CappedCounts([capped], True)
        assert await store.counts_up_to(2, "nobody") == CappedCounts([], False)

    async def test_the_time_is_that_of_the_clock_which_dates_jobs(self, store: Store) -> None:
        created_at = (await recorded(store, await enqueue(store))).created_at
        # Not exactly: the clock of a remote system may be known to the second only.
        assert abs(await store.now() - created_at) < timedelta(minutes=1)

    async def test_running_and_due_jobs_are_awaited(self, store: Store, harness: Harness) -> None:
        names = [self.kind.name]
        assert not await store.awaited(names, None, 0)
        await enqueue(store, delay_seconds=60.0)
        assert not await store.awaited(names, None, 30)
        assert await store.awaited(names, None, 90)
        await harness.advance(61)
        assert await store.awaited(names, None, 0)
        (job,) = await claim(store)
        assert await store.awaited(names, None, 0)
        await store.settle([success(job)])
        assert not await store.awaited(names, None, 3600)

    @needs(Room.QUEUES)
    async def test_only_jobs_of_these_names_and_queues_are_awaited(self, store: Store) -> None:
        await enqueue(store, name="waiting", queue="q", priority=4)
        running = await enqueue(store, name="running", queue="r")
        await store.claim_by_id(running, "worker", LEASE_SECONDS)
        assert await store.awaited(["waiting", "else"], ["q", "s"], 0)
        assert await store.awaited(["running"], ["r"], 0)
        assert not await store.awaited(["waiting"], ["r"], 0)
        assert not await store.awaited(["running"], ["q"], 0)
        assert not await store.awaited(["else"], None, 0)
        assert not await store.awaited([], None, 0)
        assert not await store.awaited(["waiting", "running"], [], 0)

    @needs(Diagnosis, Room.QUEUES)
    async def test_due_jobs_with_unknown_names_are_found(self, store: Store) -> None:
        await enqueue(store, name="known")
        await enqueue(store, name="strange", queue="a")
        await enqueue(store, name="stranger", queue="b", priority=3)
        await enqueue(store, name="later", delay_seconds=60.0)
        assert sorted(await store.unknown_names(["known"], None)) == ["strange", "stranger"]
        assert list(await store.unknown_names(["known"], ["a"])) == ["strange"]
        assert list(await store.unknown_names(["known", "strange"], ["a"])) == []

    async def test_migrating_an_up_to_date_database_does_nothing(self, store: Store) -> None:
        job_id = await enqueue(store)
        assert list(await store.migrate()) == []
        assert await store.get(job_id) is not None
