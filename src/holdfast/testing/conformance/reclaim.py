"""Reclaim: jobs of a lost worker are due again, or dead; expired ones are canceled.

Strays, which a worker does not know to have, are released and lose no attempt.
"""

from __future__ import annotations

from holdfast.domain.job import Lease, Reclaimed
from holdfast.domain.states import State
from holdfast.stores.protocol import FullStore as Store
from holdfast.stores.protocol import History, Suspects, capability
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Room,
    Suite,
    claim,
    claim_alone,
    claim_one,
    claim_suspect,
    enqueue,
    enqueue_many,
    kept_attempts,
    make_suspect,
    needs,
    new_job,
    recorded,
    success,
)

LOST_TEXT = "the worker worker stopped renewing its lease"


class Reclaiming(Suite):
    async def test_an_expired_lease_is_reclaimed(
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

    async def test_a_reclaim_for_a_worker_takes_only_its_leases(
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

    async def test_a_reclaim_respects_its_limit(self, store: Store, harness: Harness) -> None:
        await enqueue_many(store, 5)
        assert len(await claim(store)) == 5
        await harness.advance(LEASE_SECONDS + 1)
        taken = [await store.reclaim(limit) for limit in (0, 1, 3, 100, 100)]
        assert [len(each) for each in taken] == [0, 1, 3, 1, 0]

    @needs(Room.QUEUES, Room.OPTIONS)
    async def test_a_reclaim_names_the_job_and_clears_its_lease(
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
        assert (found.lease_owner, found.lease_expires_at) == (None, None)

    @needs(History)
    async def test_a_lost_attempt_is_recorded(self, store: Store, harness: Harness) -> None:
        job = await claim_one(store)
        assert (await recorded(store, job.id)).started_at is not None
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
    async def test_a_last_attempt_lost_alone_makes_the_job_dead(
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

    @needs(Room.OPTIONS)
    async def test_crashes_count_toward_max_attempts(self, store: Store, harness: Harness) -> None:
        await enqueue(store, max_attempts=3)
        has_suspects = capability(store, Suspects) is not None
        starts = 0
        while await claim(store, alone=True) or (has_suspects and await claim_suspect(store)):
            starts += 1
            assert starts <= 3
            await harness.advance(LEASE_SECONDS + 1)
            await store.reclaim(10)
        assert starts == 3

    async def test_a_reclaim_leaves_other_jobs_alone(self, store: Store, harness: Harness) -> None:
        await claim_one(store)
        await enqueue(store)
        await enqueue(store, delay_seconds=5.0)
        await harness.advance(LEASE_SECONDS - 5)
        assert await store.reclaim(10) == []

    @needs(History, Room.OPTIONS)
    async def test_a_job_that_expires_is_canceled(self, store: Store, harness: Harness) -> None:
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
    async def test_a_running_job_ignores_its_expiry(self, store: Store, harness: Harness) -> None:
        job = await claim_one(store, expires_in_seconds=10.0)
        await harness.advance(15)
        assert await store.reclaim(10) == []
        assert await store.settle([success(job)]) == []

    @needs(Room.OPTIONS)
    async def test_the_limit_covers_expired_jobs_too(self, store: Store, harness: Harness) -> None:
        await store.enqueue([new_job() for _ in range(5)])
        assert len(await claim(store)) == 5
        await store.enqueue([new_job(expires_in_seconds=5.0) for _ in range(5)])
        await harness.advance(LEASE_SECONDS + 1)
        taken = [await store.reclaim(limit) for limit in (1, 7, 100, 100)]
        assert [len(each) for each in taken] == [1, 7, 2, 0]
        assert len({job.job_id for each in taken for job in each}) == 10

    async def test_a_reclaim_acts_once(self, store: Store, other: Store, harness: Harness) -> None:
        job = await claim_one(store)
        await harness.advance(LEASE_SECONDS + 1)
        assert len(await store.reclaim(10)) == 1
        before = await recorded(store, job.id)
        assert await store.reclaim(10) == []
        assert await other.reclaim(10) == []
        assert await recorded(store, job.id) == before


class Straying(Suite):
    async def test_a_released_stray_loses_no_attempt(self, store: Store, other: Store) -> None:
        stray = await claim_one(store)
        assert await store.release_strays("worker", [], 10) == 1
        found = await recorded(store, stray.id)
        assert (found.state, found.attempts, found.fence) == (State.QUEUED, 0, stray.fence + 1)
        assert (found.releases, found.snoozes, found.crashes) == (0, 0, 0)
        assert (found.lease_owner, found.lease_expires_at) == (None, None)
        assert await kept_attempts(store, stray.id) == []
        (again,) = await claim(other, worker="other")
        assert (again.id, again.attempt, again.fence) == (stray.id, 1, stray.fence + 2)

    async def test_the_lease_of_a_released_stray_is_lost(self, store: Store) -> None:
        stray = await claim_one(store)
        await store.release_strays("worker", [], 10)
        assert len(await store.renew([stray.lease], LEASE_SECONDS)) == 1
        assert len(await store.settle([success(stray)])) == 1
        assert (await recorded(store, stray.id)).state is State.QUEUED

    async def test_only_strays_of_the_worker_are_released(self, store: Store, other: Store) -> None:
        known = await claim_one(store)
        await enqueue(store)
        (others,) = await claim(other, worker="other")
        stray = await claim_one(store)
        assert await store.release_strays("worker", [known.lease], 10) == 1
        states = [(await recorded(store, job.id)).state for job in (known, others, stray)]
        assert states == [State.RUNNING, State.RUNNING, State.QUEUED]
        assert await store.settle([success(known), success(others)]) == []

    async def test_a_lease_is_known_by_its_fence(self, store: Store) -> None:
        """A worker may have lost a job and claimed it again without knowing."""
        stray = await claim_one(store)
        before = Lease(stray.id, stray.fence - 1)
        assert await store.release_strays("worker", [before], 10) == 1

    async def test_strays_are_released_in_bounded_steps(self, store: Store) -> None:
        await store.enqueue([new_job() for _ in range(5)])
        known, *_ = await claim(store)
        steps = [await store.release_strays("worker", [known.lease], 3) for _ in range(3)]
        assert steps == [3, 1, 0]

    @needs(Room.OPTIONS)
    async def test_a_stray_keeps_its_last_attempt(self, store: Store, harness: Harness) -> None:
        job_id = await enqueue(store, max_attempts=1)
        for _ in range(3):
            (stray,) = await claim(store, alone=True)
            assert stray.attempt == 1
            assert await store.release_strays("worker", [], 10) == 1
            await harness.advance(LEASE_SECONDS + 1)
            assert await store.reclaim(10) == []
        found = await recorded(store, job_id)
        assert (found.state, found.attempts, found.crashes) == (State.QUEUED, 0, 0)

    @needs(Suspects)
    async def test_a_stray_suspect_stays_a_suspect(self, store: Store) -> None:
        job_id = await make_suspect(store)
        before = await recorded(store, job_id)
        await claim_alone(store)
        assert await store.release_strays("worker", [], 10) == 1
        found = await recorded(store, job_id)
        assert (found.attempts, found.crashes) == (before.attempts, before.crashes)
        assert await claim(store) == []
        assert (await claim_alone(store)).id == job_id
