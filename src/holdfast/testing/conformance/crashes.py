"""Crashes: who was in company may be innocent, who crashed alone at the last attempt is dead."""

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
    Needs,
    Room,
    Suite,
    claim,
    claim_one,
    claim_suspect,
    enqueue,
    failure,
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


async def make_suspect(store: Store, **changes: object) -> Claimed:
    """Let a job crash in company until it is a suspect; answer its last lease."""
    job_id = await enqueue(store, **changes)
    while True:
        job = await store.claim_by_id(job_id, "crashing", LEASE_SECONDS)
        assert job is not None
        (reclaimed,) = await store.reclaim(10, "crashing", "was killed")
        if reclaimed.suspect:
            return job


async def claim_somehow(store: Store, alone: bool) -> Claimed:
    """Lease the only job there is, a suspect or not."""
    (job, *_) = [*await claim(store, alone=alone), await claim_suspect(store)]
    assert job is not None
    return job


class Crashing(Suite):
    all_need: Needs = (Suspects, Transactions, Room.OPTIONS)

    async def test_a_suspect_is_not_leased_by_its_id(self, store: Store) -> None:
        suspect = await make_suspect(store)
        assert await store.claim_by_id(suspect.id, "worker", LEASE_SECONDS) is None

    async def test_the_leases_of_a_dead_worker_are_taken_back_before_they_run_out(
        self, store: Store, other: Store
    ) -> None:
        mine = await enqueue(store, queue="q", tenant="t", correlation_id="c")
        (job,) = await claim(store, worker="dead one")
        theirs = await claim_one(store)
        (reclaimed,) = await other.reclaim(10, "dead one", "was killed by SIGSEGV")
        assert (reclaimed.job_id, reclaimed.state, reclaimed.worker) == (
            mine,
            State.QUEUED,
            "dead one",
        )
        assert (reclaimed.attempt, reclaimed.fence) == (1, job.fence + 1)
        assert (reclaimed.error_code, reclaimed.suspect) == ("CRASHED", False)
        assert (reclaimed.queue, reclaimed.tenant, reclaimed.correlation_id) == ("q", "t", "c")
        found = await recorded(store, mine)
        assert (found.state, found.attempts, found.crashes) == (State.QUEUED, 1, 1)
        assert (found.error_code, found.error_text) == (
            "CRASHED",
            "the worker dead one was killed by SIGSEGV",
        )
        assert await store.settle([success(job)]) != []
        assert await store.settle([success(theirs)]) == []

    @needs(History)
    async def test_a_crashed_attempt_is_kept(self, store: Store) -> None:
        job = await claim_one(store)
        await store.reclaim(10, "worker", "was killed by SIGKILL")
        (attempt,) = await store.attempts(job.id)
        assert (attempt.attempt, attempt.fence, attempt.outcome) == (1, job.fence, "crashed")
        assert (attempt.worker, attempt.error_code) == ("worker", "CRASHED")
        assert attempt.error_text == "the worker worker was killed by SIGKILL"
        assert attempt.started_at is not None

    async def test_a_reclaim_for_a_dead_worker_does_nothing_else_and_no_more_than_its_limit(
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

    async def test_one_crash_in_company_makes_nobody_a_suspect(
        self, store: Store, harness: Harness
    ) -> None:
        await store.enqueue([new_job() for _ in range(5)])
        assert len(await claim(store)) == 5
        await harness.advance(LEASE_SECONDS + 1)
        assert [job.suspect for job in await store.reclaim(10)] == [False] * 5
        assert await store.suspects(["job"], None) == 0
        assert len(await claim(store)) == 5

    async def test_a_job_that_crashed_too_often_in_company_is_a_suspect(
        self, store: Store, harness: Harness
    ) -> None:
        job_id = await enqueue(store, max_attempts=20)
        for crashes in range(1, CRASHES_IN_COMPANY_MAX + 1):
            assert len(await claim(store)) == 1
            await harness.advance(LEASE_SECONDS + 1)
            (reclaimed,) = await store.reclaim(10)
            assert reclaimed.suspect == (crashes >= CRASHES_IN_COMPANY_MAX)
            assert (await recorded(store, job_id)).crashes == crashes
        assert await claim(store) == []
        assert await store.suspects(["job"], None) == 1

    async def test_a_crash_before_the_last_attempt_makes_a_suspect(
        self, store: Store, harness: Harness
    ) -> None:
        job_id = await enqueue(store, max_attempts=2)
        assert len(await claim(store)) == 1
        await harness.advance(LEASE_SECONDS + 1)
        (reclaimed,) = await store.reclaim(10)
        assert (reclaimed.state, reclaimed.suspect) == (State.QUEUED, True)
        assert (await recorded(store, job_id)).attempts == 1

    async def test_a_crash_at_the_last_attempt_in_company_gives_the_attempt_back(
        self, store: Store, harness: Harness
    ) -> None:
        job = await claim_one(store, max_attempts=1)
        await harness.advance(LEASE_SECONDS + 1)
        (reclaimed,) = await store.reclaim(10)
        assert (reclaimed.state, reclaimed.suspect) == (State.QUEUED, True)
        assert (reclaimed.attempt, reclaimed.fence) == (1, job.fence + 1)
        found = await recorded(store, job.id)
        assert (found.state, found.attempts, found.crashes) == (State.QUEUED, 0, 1)
        alone = await claim_suspect(store)
        assert alone is not None
        assert (alone.id, alone.attempt, alone.fence) == (job.id, 1, job.fence + 2)

    async def test_a_suspect_that_crashes_alone_at_its_last_attempt_is_dead(
        self, store: Store
    ) -> None:
        job = await make_suspect(store, max_attempts=1)
        assert await claim_suspect(store) is not None
        (reclaimed,) = await store.reclaim(10, "worker", "was killed by SIGKILL")
        assert (reclaimed.state, reclaimed.suspect) == (State.DEAD, False)
        found = await recorded(store, job.id)
        assert (found.state, found.attempts, found.crashes) == (State.DEAD, 1, 2)
        assert (found.error_code, found.lease_owner) == ("CRASHED", None)
        assert found.finished_at is not None
        assert await claim_suspect(store) is None

    async def test_nobody_dies_of_a_crash_unless_it_was_alone(
        self, store: Store, harness: Harness
    ) -> None:
        for max_attempts, alone, known in product((1, 2, 3, 6), (False, True), (False, True)):
            job_id = await enqueue(store, max_attempts=max_attempts)
            starts = 0
            while not (found := await recorded(store, job_id)).state.ended:
                was_suspect = await store.suspects(["job"], None) == 1
                await claim_somehow(store, alone)
                starts += 1
                await harness.advance(0 if known else LEASE_SECONDS + 1)
                assert len(await store.reclaim(10, *(("worker", "died") if known else ()))) == 1
            assert (found.state, found.attempts) == (State.DEAD, max_attempts)
            assert alone or was_suspect
            # One that had a single attempt, and was in company, has got it back.
            assert starts == max_attempts + (max_attempts == 1 and not alone)

    async def test_a_claim_takes_no_suspects_and_a_claim_of_suspects_nobody_else(
        self, store: Store
    ) -> None:
        suspect = await make_suspect(store)
        innocent = await enqueue(store)
        assert [job.id for job in await claim(store)] == [innocent]
        alone = await claim_suspect(store)
        assert alone is not None
        assert alone.id == suspect.id
        assert await claim_suspect(store) is None

    async def test_suspects_come_by_priority_then_due_time_then_id(
        self, store: Store, harness: Harness
    ) -> None:
        jobs = [await make_suspect(store, priority=priority) for priority in (3, 1, 1, 2)]
        expected = [jobs[n].id for n in (1, 2, 3, 0)]
        claimed = [await claim_suspect(store) for _ in jobs]
        assert [job.id for job in claimed if job] == expected

    async def test_only_due_suspects_of_these_names_and_queues_are_claimed_and_counted(
        self, store: Store, harness: Harness
    ) -> None:
        job = await make_suspect(store, name="n", queue="q")
        for names, queues in (((), None), (("job",), None), (("n",), ()), (("n",), ("r",))):
            assert await claim_suspect(store, names=names, queues=queues) is None
            assert await store.suspects(names, queues) == 0
        assert await claim_suspect(store, names=("n",), except_queues=("q",)) is None
        assert await store.suspects(["job", "n"], ["q", "r"]) == 1
        alone = await claim_suspect(store, names=("n", "job"), queues=("r", "q"))
        assert alone is not None
        assert (alone.id, alone.name, alone.queue) == (job.id, "n", "q")
        assert await store.suspects(["n"], None) == 0
        await store.settle([snooze(alone, 60.0)])
        assert await store.suspects(["n"], None) == 0
        assert await claim_suspect(store, names=("n",)) is None
        await harness.advance(61)
        assert await store.suspects(["n"], None) == 1
        assert await claim_suspect(store, names=("n",)) is not None

    async def test_a_hundred_suspects_stand_for_any_number_above(self, store: Store) -> None:
        await store.enqueue([new_job(max_attempts=1) for _ in range(105)])
        assert len(await claim(store, 200)) == 105
        assert len(await store.reclaim(200, "worker", "died")) == 105
        assert await store.suspects(["job"], None) == 100

    async def test_a_suspect_stays_one_whatever_becomes_of_its_attempt(self, store: Store) -> None:
        for end in (release, failure, crash, lambda job: snooze(job, 0)):
            job = await make_suspect(store, max_attempts=9)
            alone = await claim_suspect(store)
            assert alone is not None
            assert await store.settle([end(alone)]) == []
            assert await claim(store) == []
            again = await claim_suspect(store)
            assert again is not None
            assert again.id == job.id
            await store.settle([success(again)])

    async def test_a_suspect_that_succeeds_alone_is_innocent(self, store: Store) -> None:
        job = await make_suspect(store)
        alone = await claim_suspect(store)
        assert alone is not None
        assert await store.settle([success(alone)]) == []
        found = await recorded(store, job.id)
        assert (found.state, found.crashes) == (State.SUCCEEDED, CRASHES_IN_COMPANY_MAX)
        assert await store.suspects(["job"], None) == 0

    async def test_a_lease_says_anew_whether_it_is_alone(self, store: Store) -> None:
        job_id = await enqueue(store, max_attempts=1)
        (job,) = await claim(store, alone=True)
        await store.settle([release(job)])
        assert len(await claim(store)) == 1
        (reclaimed,) = await store.reclaim(10, "worker", "died")
        assert (reclaimed.job_id, reclaimed.state) == (job_id, State.QUEUED)

    @needs(History)
    async def test_a_crash_of_a_child_process_is_counted_and_kept(self, store: Store) -> None:
        job = await claim_one(store)
        assert await store.settle([crash(job)]) == []
        found = await recorded(store, job.id)
        assert (found.state, found.attempts, found.crashes) == (State.QUEUED, 1, 1)
        assert (found.error_code, found.error_text) == ("CRASHED", "killed")
        # Its worker lives, and nobody else was harmed: no need to run it alone.
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

    async def test_a_requeued_job_starts_without_a_past(self, store: Store) -> None:
        job = await make_suspect(store)
        await store.cancel([job.id])
        again = new_id()
        assert await store.requeue(job.id, again)
        assert (await recorded(store, again)).crashes == 0
        assert [claimed.id for claimed in await claim(store)] == [again]

    async def test_where_a_job_stands_is_told_wherever_it_is(
        self, store: Store, other: Store
    ) -> None:
        job = await claim_one(store)
        assert await other.standing(job.id) == Standing(State.RUNNING, job.fence)
        await store.settle([success(job)])
        assert await other.standing(job.id) == Standing(State.SUCCEEDED, job.fence + 1)
        assert await store.standing(new_id()) is None
