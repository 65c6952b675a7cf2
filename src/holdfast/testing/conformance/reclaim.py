"""Reclaim: what a dead worker held starts again, or is dead; what expired is canceled."""

from __future__ import annotations

from holdfast.domain.job import Reclaimed
from holdfast.domain.states import State
from holdfast.stores.protocol import FullStore as Store
from holdfast.stores.protocol import History, Suspects
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Room,
    Suite,
    claim,
    claim_one,
    claim_suspect,
    enqueue,
    enqueue_many,
    needs,
    new_job,
    recorded,
    success,
)

LOST_TEXT = "the worker worker stopped renewing its lease"


class Reclaiming(Suite):
    async def test_a_lost_lease_is_told_and_its_job_waits_again(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        job = await claim_one(store, correlation_id="c")
        await harness.advance(LEASE_SECONDS + 1)
        (taken,) = await other.reclaim(10)
        assert (taken.job_id, taken.name, taken.queue) == (job.id, job.name, job.queue)
        assert (taken.attempt, taken.fence, taken.state) == (1, job.fence + 1, State.QUEUED)
        assert (taken.correlation_id, taken.worker) == ("c", "worker")
        assert taken.error_code == "LEASE_LOST"
        found = await recorded(store, job.id)
        assert (found.state, found.attempts, found.fence) == (State.QUEUED, 1, job.fence + 1)
        assert (found.error_code, found.error_text) == ("LEASE_LOST", LOST_TEXT)
        (again,) = await claim(other)
        assert (again.id, again.attempt, again.fence) == (job.id, 2, job.fence + 2)

    async def test_a_reclaim_for_a_dead_worker_takes_its_leases_and_no_others(
        self, store: Store, other: Store
    ) -> None:
        mine = await enqueue(store)
        (job,) = await claim(store, worker="dead one")
        theirs = await claim_one(store)
        (taken,) = await other.reclaim(10, "dead one", "was killed by SIGSEGV")
        assert (taken.job_id, taken.state, taken.error_code) == (mine, State.QUEUED, "CRASHED")
        found = await recorded(store, mine)
        assert (found.error_code, found.attempts) == ("CRASHED", 1)
        assert found.error_text == "the worker dead one was killed by SIGSEGV"
        assert await store.settle([success(job)]) != []
        assert await store.settle([success(theirs)]) == []

    async def test_a_reclaim_takes_no_more_than_its_limit(
        self, store: Store, harness: Harness
    ) -> None:
        await enqueue_many(store, 5)
        assert len(await claim(store)) == 5
        await harness.advance(LEASE_SECONDS + 1)
        taken = [await store.reclaim(limit) for limit in (0, 1, 3, 100, 100)]
        assert [len(each) for each in taken] == [0, 1, 3, 1, 0]

    @needs(Room.QUEUES, Room.OPTIONS)
    async def test_a_lease_that_ran_out_is_taken_back_and_the_job_is_due(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        job = await claim_one(store, queue="q", tenant="t", correlation_id="c")
        await harness.advance(LEASE_SECONDS + 1)
        assert await other.reclaim(10) == [
            Reclaimed(
                job_id=job.id,
                name="job",
                queue="q",
                tenant="t",
                correlation_id="c",
                attempt=1,
                fence=job.fence + 1,
                state=State.QUEUED,
                worker="worker",
                error_code="LEASE_LOST",
            )
        ]
        found = await recorded(store, job.id)
        assert (found.state, found.attempts, found.fence) == (State.QUEUED, 1, job.fence + 1)
        assert (found.error_code, found.error_text) == ("LEASE_LOST", LOST_TEXT)
        assert (found.lease_owner, found.lease_expires_at) == (None, None)
        (again,) = await claim(other)
        assert (again.id, again.attempt, again.fence) == (job.id, 2, job.fence + 2)

    @needs(History)
    async def test_a_lost_attempt_is_kept(self, store: Store, harness: Harness) -> None:
        job = await claim_one(store)
        started_at = (await recorded(store, job.id)).started_at
        assert started_at is not None
        await store.reclaim(10)
        assert await store.attempts(job.id) == []
        await harness.advance(LEASE_SECONDS + 1)
        await store.reclaim(10)
        (attempt,) = await store.attempts(job.id)
        assert (attempt.attempt, attempt.fence, attempt.outcome) == (1, job.fence, "lost")
        assert (attempt.worker, attempt.error_code) == ("worker", "LEASE_LOST")
        assert attempt.started_at is not None
        assert attempt.ended_at > attempt.started_at

    @needs(History, Room.OPTIONS)
    async def test_a_job_that_lost_its_last_attempt_alone_is_dead(
        self, store: Store, harness: Harness
    ) -> None:
        await enqueue(store, max_attempts=1)
        (job,) = await claim(store, alone=True)
        await harness.advance(LEASE_SECONDS + 1)
        (reclaimed,) = await store.reclaim(10)
        assert (reclaimed.state, reclaimed.error_code) == (State.DEAD, "LEASE_LOST")
        found = await recorded(store, job.id)
        assert (found.state, found.error_code) == (State.DEAD, "LEASE_LOST")
        assert found.error_text == LOST_TEXT
        assert (found.fence, found.lease_owner) == (job.fence + 1, None)
        assert found.finished_at is not None
        assert [attempt.outcome for attempt in await store.attempts(job.id)] == ["lost"]

    @needs(Suspects, Room.OPTIONS)
    async def test_a_job_starts_at_most_max_attempts_times_crashes_included(
        self, store: Store, harness: Harness
    ) -> None:
        await enqueue(store, max_attempts=3)
        starts = 0
        while await claim(store, alone=True) or await claim_suspect(store):
            starts += 1
            await harness.advance(LEASE_SECONDS + 1)
            await store.reclaim(10)
        assert starts == 3

    async def test_live_leases_and_waiting_jobs_are_left_alone(
        self, store: Store, harness: Harness
    ) -> None:
        await claim_one(store)
        await enqueue(store)
        await enqueue(store, delay_seconds=5.0)
        await harness.advance(LEASE_SECONDS - 5)
        assert await store.reclaim(10) == []

    @needs(History, Room.OPTIONS)
    async def test_a_job_that_expired_while_it_waited_is_canceled(
        self, store: Store, harness: Harness
    ) -> None:
        job_id = await enqueue(store, expires_in_seconds=10.0, delay_seconds=3600.0)
        await harness.advance(11)
        (reclaimed,) = await store.reclaim(10)
        assert (reclaimed.job_id, reclaimed.state) == (job_id, State.CANCELED)
        assert (reclaimed.error_code, reclaimed.worker) == ("EXPIRED", None)
        found = await recorded(store, job_id)
        assert (found.state, found.error_code) == (State.CANCELED, "EXPIRED")
        assert (found.fence, found.attempts) == (1, 0)
        assert found.finished_at is not None
        assert await store.attempts(job_id) == []

    @needs(Room.OPTIONS)
    async def test_a_running_job_past_its_expiry_runs_on(
        self, store: Store, harness: Harness
    ) -> None:
        job = await claim_one(store, expires_in_seconds=10.0)
        await harness.advance(15)
        assert await store.reclaim(10) == []
        assert await store.settle([success(job)]) == []

    @needs(Room.OPTIONS)
    async def test_reclaim_is_bounded_by_its_limit_in_total(
        self, store: Store, harness: Harness
    ) -> None:
        await store.enqueue([new_job() for _ in range(5)])
        assert len(await claim(store)) == 5
        await store.enqueue([new_job(expires_in_seconds=5.0) for _ in range(5)])
        await harness.advance(LEASE_SECONDS + 1)
        taken = [await store.reclaim(limit) for limit in (1, 7, 100, 100)]
        assert [len(each) for each in taken] == [1, 7, 2, 0]
        assert len({job.job_id for each in taken for job in each}) == 10

    async def test_reclaim_acts_once(self, store: Store, other: Store, harness: Harness) -> None:
        job = await claim_one(store)
        await harness.advance(LEASE_SECONDS + 1)
        assert len(await store.reclaim(10)) == 1
        before = await recorded(store, job.id)
        assert await store.reclaim(10) == []
        assert await other.reclaim(10) == []
        assert await recorded(store, job.id) == before
