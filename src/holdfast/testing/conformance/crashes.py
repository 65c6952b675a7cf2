"""Crashes: a job that crashed along with others may be innocent; only a crash alone is fatal."""

from __future__ import annotations

from itertools import product

from holdfast.domain.job import Claimed, Settlement, Standing
from holdfast.domain.limits import CRASHES_IN_COMPANY_MAX
from holdfast.domain.states import State
from holdfast.stores.protocol import FullStore as Store
from holdfast.stores.protocol import History, Suspects, Transactions
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
    failure,
    make_suspect,
    needs,
    new_id,
    new_job,
    recorded,
    release,
    settlement,
    snooze,
    success,
)


def crash(job: Claimed, state: State = State.QUEUED) -> Settlement:
    """The handler's child process died."""
    return settlement(
        job, state, error_code="CRASHED", error_text="killed", crashed=True, outcome="crashed"
    )


@needs(Suspects, Transactions, Room.OPTIONS)
class Crashing(Suite):
    async def test_a_suspect_can_not_be_claimed_by_its_id(self, store: Store) -> None:
        suspect = await make_suspect(store)
        assert await store.claim_by_id(suspect, "worker", LEASE_SECONDS) is None

    async def test_known_deaths_are_reclaimed_at_once(self, store: Store, other: Store) -> None:
        await enqueue(store, queue="q", tenant="t", correlation_id="c")
        (job,) = await claim(store, worker="dead one")
        (reclaimed,) = await other.reclaim(10, "dead one", "was killed by SIGSEGV")
        assert (reclaimed.job_id, reclaimed.worker) == (job.id, "dead one")
        assert (reclaimed.attempt, reclaimed.fence) == (1, job.fence + 1)
        assert (reclaimed.queue, reclaimed.tenant, reclaimed.correlation_id) == ("q", "t", "c")
        assert not reclaimed.suspect
        found = await recorded(store, job.id)
        assert (found.state, found.crashes) == (State.QUEUED, 1)

    @needs(History)
    async def test_a_crashed_attempt_is_recorded(self, store: Store) -> None:
        job = await claim_one(store)
        await store.reclaim(10, "worker", "was killed by SIGKILL")
        (attempt,) = await store.attempts(job.id)
        assert (attempt.attempt, attempt.fence, attempt.outcome) == (1, job.fence, "crashed")
        assert (attempt.worker, attempt.error_code) == ("worker", "CRASHED")
        assert attempt.error_text == "the worker worker was killed by SIGKILL"
        assert attempt.started_at is not None

    async def test_a_reclaim_for_a_worker_does_nothing_else(
        self, store: Store, harness: Harness
    ) -> None:
        await claim_one(store)
        await enqueue(store, expires_in_seconds=1.0, queue="other")
        await harness.advance(LEASE_SECONDS + 1)
        await store.enqueue([new_job() for _ in range(5)])
        assert len(await claim(store, worker="dead one", queues=["default"])) == 5
        taken = [await store.reclaim(limit, "dead one", "died") for limit in (0, 2, 10, 10)]
        assert [len(each) for each in taken] == [0, 2, 3, 0]
        assert await store.reclaim(10, "nobody", "died") == []
        assert len(await store.reclaim(10)) == 2

    async def test_one_shared_crash_makes_no_suspect(self, store: Store, harness: Harness) -> None:
        await store.enqueue([new_job() for _ in range(5)])
        assert len(await claim(store)) == 5
        await harness.advance(LEASE_SECONDS + 1)
        assert [job.suspect for job in await store.reclaim(10)] == [False] * 5
        assert await store.suspects(["job"], None) == 0
        assert len(await claim(store)) == 5

    async def test_shared_crashes_make_a_suspect(self, store: Store, harness: Harness) -> None:
        job_id = await enqueue(store, max_attempts=20)
        for crashes in range(1, CRASHES_IN_COMPANY_MAX + 1):
            assert len(await claim(store)) == 1
            await harness.advance(LEASE_SECONDS + 1)
            (reclaimed,) = await store.reclaim(10)
            assert reclaimed.suspect == (crashes >= CRASHES_IN_COMPANY_MAX)
            assert (await recorded(store, job_id)).crashes == crashes
        assert await claim(store) == []
        assert await store.suspects(["job"], None) == 1

    async def test_a_job_is_a_suspect_before_its_last_attempt(
        self, store: Store, harness: Harness
    ) -> None:
        job_id = await enqueue(store, max_attempts=2)
        assert len(await claim(store)) == 1
        await harness.advance(LEASE_SECONDS + 1)
        (reclaimed,) = await store.reclaim(10)
        assert (reclaimed.state, reclaimed.suspect) == (State.QUEUED, True)
        assert (await recorded(store, job_id)).attempts == 1

    async def test_a_shared_crash_refunds_the_last_attempt(
        self, store: Store, harness: Harness
    ) -> None:
        job = await claim_one(store, max_attempts=1)
        await harness.advance(LEASE_SECONDS + 1)
        (reclaimed,) = await store.reclaim(10)
        assert (reclaimed.state, reclaimed.suspect) == (State.QUEUED, True)
        assert (reclaimed.attempt, reclaimed.fence) == (1, job.fence + 1)
        found = await recorded(store, job.id)
        assert (found.state, found.attempts, found.crashes) == (State.QUEUED, 0, 1)
        alone = await claim_alone(store)
        assert (alone.id, alone.attempt, alone.fence) == (job.id, 1, job.fence + 2)

    async def test_a_suspect_is_dead_after_a_last_crash_alone(self, store: Store) -> None:
        suspect = await make_suspect(store, max_attempts=1)
        await claim_alone(store)
        (reclaimed,) = await store.reclaim(10, "worker", "was killed by SIGKILL")
        assert (reclaimed.state, reclaimed.suspect) == (State.DEAD, False)
        found = await recorded(store, suspect)
        assert (found.state, found.attempts, found.crashes) == (State.DEAD, 1, 2)
        assert (found.error_code, found.lease_owner) == ("CRASHED", None)
        assert found.finished_at is not None
        assert await claim_suspect(store) is None

    async def test_only_a_crash_alone_is_fatal(self, store: Store, harness: Harness) -> None:
        for max_attempts, alone, known in product((1, 2, 3, 6), (False, True), (False, True)):
            job_id = await enqueue(store, max_attempts=max_attempts)
            starts = 0
            while not (found := await recorded(store, job_id)).state.ended:
                was_suspect = await store.suspects(["job"], None) == 1
                if not await claim(store, alone=alone):
                    await claim_alone(store)
                starts += 1
                await harness.advance(0 if known else LEASE_SECONDS + 1)
                assert len(await store.reclaim(10, *(("worker", "died") if known else ()))) == 1
            assert (found.state, found.attempts) == (State.DEAD, max_attempts)
            assert alone or was_suspect
            # A job that used its only attempt in a shared crash got it back.
            assert starts == max_attempts + (max_attempts == 1 and not alone)

    async def test_suspects_and_other_jobs_are_claimed_apart(self, store: Store) -> None:
        suspect = await make_suspect(store)
        innocent = await enqueue(store)
        assert [job.id for job in await claim(store)] == [innocent]
        assert (await claim_alone(store)).id == suspect
        assert await claim_suspect(store) is None

    async def test_suspects_come_by_priority_due_time_and_id(self, store: Store) -> None:
        jobs = [await make_suspect(store, priority=priority) for priority in (3, 1, 1, 2)]
        claimed = [(await claim_alone(store)).id for _ in jobs]
        assert claimed == [jobs[n] for n in (1, 2, 3, 0)]

    async def test_only_matching_suspects_are_claimed(self, store: Store, harness: Harness) -> None:
        suspect = await make_suspect(store, name="n", queue="q")
        for names, queues in (((), None), (("job",), None), (("n",), ()), (("n",), ("r",))):
            assert await claim_suspect(store, names=names, queues=queues) is None
            assert await store.suspects(names, queues) == 0
        assert await claim_suspect(store, names=("n",), except_queues=("q",)) is None
        assert await store.suspects(["job", "n"], ["q", "r"]) == 1
        alone = await claim_alone(store, names=("n", "job"), queues=("r", "q"))
        assert (alone.id, alone.name, alone.queue) == (suspect, "n", "q")
        assert await store.suspects(["n"], None) == 0
        await store.settle([snooze(alone, 60.0)])
        assert await store.suspects(["n"], None) == 0
        assert await claim_suspect(store, names=("n",)) is None
        await harness.advance(61)
        assert await store.suspects(["n"], None) == 1
        assert await claim_suspect(store, names=("n",)) is not None

    async def test_suspects_are_counted_up_to_a_hundred(self, store: Store) -> None:
        await store.enqueue([new_job(max_attempts=1) for _ in range(105)])
        assert len(await claim(store, 200)) == 105
        assert len(await store.reclaim(200, "worker", "died")) == 105
        assert await store.suspects(["job"], None) == 100

    async def test_a_suspect_stays_one_until_it_ends(self, store: Store) -> None:
        for end in (release, failure, crash, lambda job: snooze(job, 0)):
            suspect = await make_suspect(store, max_attempts=9)
            assert await store.settle([end(await claim_alone(store))]) == []
            assert await claim(store) == []
            again = await claim_alone(store)
            assert again.id == suspect
            await store.settle([success(again)])

    async def test_a_suspect_that_succeeds_is_cleared(self, store: Store) -> None:
        suspect = await make_suspect(store)
        assert await store.settle([success(await claim_alone(store))]) == []
        found = await recorded(store, suspect)
        assert (found.state, found.crashes) == (State.SUCCEEDED, CRASHES_IN_COMPANY_MAX)
        assert await store.suspects(["job"], None) == 0

    async def test_each_lease_decides_whether_it_is_alone(self, store: Store) -> None:
        job_id = await enqueue(store, max_attempts=1)
        (job,) = await claim(store, alone=True)
        await store.settle([release(job)])
        assert len(await claim(store)) == 1
        (reclaimed,) = await store.reclaim(10, "worker", "died")
        assert (reclaimed.job_id, reclaimed.state) == (job_id, State.QUEUED)

    @needs(History)
    async def test_a_crash_of_a_child_process_is_counted(self, store: Store) -> None:
        job = await claim_one(store)
        assert await store.settle([crash(job)]) == []
        found = await recorded(store, job.id)
        assert (found.state, found.attempts, found.crashes) == (State.QUEUED, 1, 1)
        assert (found.error_code, found.error_text) == ("CRASHED", "killed")
        # Its worker lives and no other job was harmed, so it need not run alone.
        (again,) = await claim(store)
        assert await store.settle([crash(again, State.DEAD)]) == []
        found = await recorded(store, job.id)
        assert (found.state, found.crashes) == (State.DEAD, 2)
        outcomes = [attempt.outcome for attempt in await store.attempts(job.id)]
        assert outcomes == ["crashed", "crashed"]

    async def test_only_crashes_are_counted(self, store: Store) -> None:
        job = await claim_one(store)
        await store.settle([failure(job)])
        (job,) = await claim(store)
        await store.settle([release(job)])
        (job,) = await claim(store)
        await store.settle([success(job)])
        assert (await recorded(store, job.id)).crashes == 0

    async def test_a_suspect_is_awaited(self, store: Store) -> None:
        await make_suspect(store)
        assert await store.awaited(["job"], None, 0)

    async def test_a_requeued_suspect_is_no_suspect(self, store: Store) -> None:
        suspect = await make_suspect(store)
        await store.cancel([suspect])
        again = new_id()
        assert await store.requeue(suspect, again)
        assert (await recorded(store, again)).crashes == 0
        assert [claimed.id for claimed in await claim(store)] == [again]

    async def test_standing_covers_live_and_ended_jobs(self, store: Store, other: Store) -> None:
        job = await claim_one(store)
        assert await other.standing(job.id) == Standing(State.RUNNING, job.fence)
        await store.settle([success(job)])
        assert await other.standing(job.id) == Standing(State.SUCCEEDED, job.fence + 1)
        assert await store.standing(new_id()) is None
