"""Claim: due jobs, in order, within the limit, each leased to one worker."""

from __future__ import annotations

from datetime import timedelta

from holdfast.domain.states import State
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    RICH,
    Harness,
    Room,
    Suite,
    claim,
    claim_one,
    enqueue,
    job_in,
    needs,
    new_id,
    new_job,
    recorded,
    release,
)


class Claiming(Suite):
    @needs(Room.QUEUES, Room.OPTIONS, Room.ANY_JSON, Room.TIMES)
    async def test_a_claim_carries_all_fields_and_times_its_lease(self, store: Store) -> None:
        job_id = await enqueue(store, **RICH)
        (claimed,) = await claim(store)
        assert (claimed.name, claimed.arguments, claimed.queue) == ("job", RICH["arguments"], "q")
        assert (claimed.priority, claimed.tenant, claimed.correlation_id) == (7, "t", "c")
        assert (claimed.max_attempts, claimed.expired) == (9, False)
        assert (claimed.snoozes, claimed.releases) == (0, 0)
        job = await recorded(store, job_id)
        assert job.started_at is not None
        assert job.lease_expires_at is not None
        # A lease begins when its row is written, a moment after the statement.
        later = job.lease_expires_at - job.started_at - timedelta(seconds=LEASE_SECONDS)
        assert timedelta(0) <= later < timedelta(seconds=1)

    async def test_a_claim_leases_the_job_and_starts_an_attempt(self, store: Store) -> None:
        job_id = await enqueue(store, priority=3, correlation_id="c")
        (claimed,) = await claim(store, worker="somebody")
        assert claimed.lease == (job_id, 1)
        assert (claimed.name, claimed.queue) == (self.kind.name, self.kind.queue)
        assert (claimed.priority, claimed.correlation_id, claimed.attempt) == (3, "c", 1)
        job = await recorded(store, job_id)
        assert (job.state, job.fence, job.attempts) == (State.RUNNING, 1, 1)
        assert (job.lease_owner, job.lease_expires_at is None) == ("somebody", False)

    @needs(Room.TIMES)
    async def test_a_claim_tells_how_long_the_job_had_been_due(
        self, store: Store, harness: Harness
    ) -> None:
        await enqueue(store, run_at=await store.now() - timedelta(hours=1))
        await harness.advance(100)
        (job,) = await claim(store)
        assert job.waited_seconds is not None
        assert 3700 <= job.waited_seconds < 3800

    async def test_a_claim_for_other_names_or_queues_takes_nothing(self, store: Store) -> None:
        await enqueue(store)
        assert await claim(store, names=("else",)) == []
        assert await claim(store, queues=("else",)) == []
        assert await claim(store, except_queues=(self.kind.queue,)) == []
        assert len(await claim(store, queues=(self.kind.queue, "else"))) == 1

    async def test_a_claim_takes_the_best_priorities_within_its_limit(self, store: Store) -> None:
        ids = [await enqueue(store, priority=priority) for priority in (3, -1, 2)]
        assert [job.id for job in await claim(store, 2)] == [ids[1], ids[2]]
        assert [job.id for job in await claim(store, 2)] == [ids[0]]

    async def test_a_leased_job_is_not_claimed_again(self, store: Store, other: Store) -> None:
        await enqueue(store)
        assert len(await claim(store)) == 1
        assert await claim(store) == []
        assert await claim(other) == []

    @needs(Room.QUEUES)
    async def test_a_claim_never_takes_more_than_its_limit(self, store: Store) -> None:
        await store.enqueue(
            [new_job(queue=f"q{n % 3}", priority=n % 2, name=f"n{n % 2}") for n in range(30)]
        )
        for limit in (1, 2, 7, 13):
            assert len(await claim(store, limit, names=("n0", "n1"))) == limit
        assert len(await claim(store, 100, names=("n0", "n1"))) == 7

    @needs(Room.CHOSEN_IDS, Room.DUE_ORDER)
    async def test_jobs_come_by_priority_then_due_time_then_id(
        self, store: Store, harness: Harness
    ) -> None:
        ids = [new_id() for _ in range(4)]
        delays = {0: 20.0, 1: 10.0, 2: 10.0, 3: 0.0}
        await store.enqueue([new_job(id=ids[n], delay_seconds=delays[n]) for n in (3, 2, 0, 1)])
        urgent = await enqueue(store, priority=-1, delay_seconds=30.0)
        idle = await enqueue(store, priority=1)
        await harness.advance(31)
        expected = [urgent, ids[3], ids[1], ids[2], ids[0], idle]
        one_by_one = [job.id for _ in range(3) for job in await claim(store, 1)]
        together = [job.id for job in await claim(store, 10)]
        assert one_by_one + together == expected

    @needs(Room.QUEUES)
    async def test_priority_counts_across_queues(self, store: Store) -> None:
        await store.enqueue([new_job(queue=queue, priority=5) for queue in "abc"])
        urgent = await enqueue(store, queue="z", priority=1)
        claimed = await claim(store, 2)
        assert [job.priority for job in claimed] == [1, 5]
        assert claimed[0].id == urgent

    @needs(Room.QUEUES)
    async def test_a_long_queue_starves_no_other_of_equal_priority(self, store: Store) -> None:
        await store.enqueue([new_job(queue="long") for _ in range(50)])
        await store.enqueue([new_job(queue="short")])
        taken = [(await claim(store, 1))[0].queue for _ in range(10)]
        assert "short" in taken

    async def test_jobs_that_are_not_due_hide_no_due_job(self, store: Store) -> None:
        await store.enqueue([new_job(priority=-9, delay_seconds=60.0) for _ in range(20)])
        await store.enqueue([new_job(delay_seconds=60.0) for _ in range(20)])
        due = await enqueue(store)
        assert [job.id for job in await claim(store, 1)] == [due]

    @needs(Room.QUEUES)
    async def test_only_jobs_with_these_names_are_claimed(self, store: Store) -> None:
        await store.enqueue([new_job(name="unknown") for _ in range(5)])
        known = await enqueue(store, name="known", priority=9)
        assert [job.id for job in await claim(store, 3, names=("known", "else"))] == [known]
        assert await claim(store, names=()) == []
        assert len(await claim(store, names=("unknown",))) == 5

    @needs(Room.QUEUES)
    async def test_only_these_queues_are_claimed_from(self, store: Store) -> None:
        ids = {queue: await enqueue(store, queue=queue) for queue in ("a", "b", "c")}
        assert await claim(store, queues=("none",)) == []
        assert await claim(store, queues=()) == []
        claimed = await claim(store, queues=("a", "c", "none"))
        assert {job.id for job in claimed} == {ids["a"], ids["c"]}

    @needs(Room.QUEUES)
    async def test_a_claim_can_exclude_queues(self, store: Store) -> None:
        await store.enqueue([new_job(queue=queue) for queue in ("a", "b", "c")])
        assert {job.queue for job in await claim(store, except_queues=("a", "c"))} == {"b"}
        assert {job.queue for job in await claim(store)} == {"a", "c"}

    @needs(Room.QUEUES)
    async def test_a_new_queue_is_claimed_from_at_once(self, store: Store, other: Store) -> None:
        await store.enqueue([new_job(queue="old") for _ in range(5)])
        assert len(await claim(store, 3)) == 3
        urgent = await enqueue(other, queue="new", priority=-1)
        assert urgent in [job.id for job in await claim(store, 3)]

    @needs(Room.OPTIONS)
    async def test_a_claim_marks_expired_jobs(self, store: Store, harness: Harness) -> None:
        await enqueue(store, expires_in_seconds=10.0)
        await enqueue(store, expires_in_seconds=100.0)
        await harness.advance(11)
        assert [job.expired for job in await claim(store)] == [True, False]

    async def test_the_fence_rises_with_every_claim(self, store: Store) -> None:
        await enqueue(store)
        fences = []
        for _ in range(3):
            (job,) = await claim(store)
            fences.append(job.fence)
            await store.settle([release(job)])
        assert fences == [1, 3, 5]

    @needs(Room.QUEUES, Room.OPTIONS, Room.TIMES)
    async def test_a_due_job_can_be_claimed_by_its_id(self, store: Store) -> None:
        job_id = await enqueue(store, name="any", queue="any", tenant="t")
        claimed = await store.claim_by_id(job_id, "somebody", 12.0)
        assert claimed is not None
        assert (claimed.id, claimed.fence, claimed.attempt, claimed.tenant) == (job_id, 1, 1, "t")
        job = await recorded(store, job_id)
        assert job.started_at is not None
        assert (job.state, job.lease_owner) == (State.RUNNING, "somebody")
        assert job.lease_expires_at is not None
        later = job.lease_expires_at - job.started_at - timedelta(seconds=12)
        assert timedelta(0) <= later < timedelta(seconds=1)

    async def test_only_a_queued_job_can_be_claimed_by_its_id(self, store: Store) -> None:
        for state in set(State) - {State.QUEUED}:
            job_id = await job_in(store, state)
            before = await recorded(store, job_id)
            assert await store.claim_by_id(job_id, "worker", LEASE_SECONDS) is None
            assert await recorded(store, job_id) == before
        assert await store.claim_by_id(new_id(), "worker", LEASE_SECONDS) is None

    async def test_a_worker_with_any_name_can_claim(self, store: Store) -> None:
        job = await claim_one(store)
        await store.settle([release(job)])
        name = "host-ü:1:" + "f" * 190
        (again,) = await claim(store, 1, worker=name, lease_seconds=0.5)
        assert (await recorded(store, again.id)).lease_owner == name
