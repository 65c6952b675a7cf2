"""Breakers: failures open them, their jobs are parked, and run again when they close."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from holdfast.domain.breakers import BreakerStatus, Strike
from holdfast.domain.limits import BREAKER_DOUBT_FACTOR, BREAKER_KEPT_SECONDS
from holdfast.domain.states import State
from holdfast.stores.protocol import Breakers, Diagnosis, History, Suspects
from holdfast.stores.protocol import FullStore as Store
from holdfast.testing.conformance.harness import (
    LEASE_SECONDS,
    Harness,
    Suite,
    circumstances,
    claim,
    claim_alone,
    claim_one,
    enqueue,
    failure,
    job_in,
    make_suspect,
    needs,
    new_id,
    new_job,
    queue_status,
    recorded,
    success,
)

FAILURES_MAX = 5
WINDOW_SECONDS = 30.0
PROBE_SECONDS = 10.0


def struck(
    key: str = "gateway",
    failures_max: int = FAILURES_MAX,
    *,
    failed_seconds_ago: float = 0.0,
    worked_seconds_ago: float | None = None,
) -> Strike:
    return Strike(
        key,
        failures_max,
        WINDOW_SECONDS,
        PROBE_SECONDS,
        "HTTP_503: no answer",
        failed_seconds_ago,
        worked_seconds_ago,
    )


async def open_by_failures(store: Store, key: str = "gateway") -> None:
    assert await store.strike([struck(key)] * FAILURES_MAX) == [False] * FAILURES_MAX


async def breaker_status(store: Store, key: str = "gateway") -> BreakerStatus:
    (found,) = [breaker for breaker in await store.breakers() if breaker.key == key]
    return found


async def park_all(store: Store) -> int:
    """Park and unpark until there is no more to do; return how many jobs moved."""
    moved = 0
    while step := (await store.park(100)).moved:
        moved += step
    return moved


async def parked_job(store: Store, **changes: object) -> UUID:
    """Enqueue a job whose breaker is open, and park it."""
    job_id = await enqueue(store, **{"breaker": "gateway", **changes})
    assert await park_all(store) == 1
    return job_id


@needs(Breakers)
class Breaking(Suite):
    async def test_a_job_keeps_its_breaker_and_trace(self, store: Store) -> None:
        job_id = await enqueue(store, breaker="gateway", trace="00-1-2-01", max_attempts=1)
        found = await recorded(store, job_id)
        assert (found.breaker, found.trace) == ("gateway", "00-1-2-01")
        (job,) = await claim(store)
        assert (job.breaker, job.trace, job.probe) == ("gateway", "00-1-2-01", False)
        await store.settle([failure(job, State.DEAD)])
        assert (await recorded(store, job_id)).breaker == "gateway"
        again = new_id()
        assert await store.requeue(job_id, again)
        assert (await recorded(store, again)).breaker == "gateway"

    async def test_enough_failures_open_a_breaker_for_all(self, store: Store, other: Store) -> None:
        for number in range(1, FAILURES_MAX):
            assert await store.strike([struck()]) == [False]
            found = await breaker_status(other)
            assert (found.failures, found.is_open, found.times_opened) == (number, False, 0)
        assert await other.strike([struck()]) == [False]
        found = await breaker_status(store)
        assert (found.failures, found.is_open, found.times_opened) == (FAILURES_MAX, True, 1)
        assert (found.opened_by, found.opened_because) == (None, "HTTP_503: no answer")
        assert found.opened_at is not None
        assert found.next_probe_at == found.opened_at + timedelta(seconds=PROBE_SECONDS)
        assert await store.strike([struck()]) == [True]
        assert await breaker_status(store) == found

    async def test_failures_past_the_limit_cost_no_attempt(self, store: Store) -> None:
        answers = await store.strike([struck()] * 100)
        assert answers == [False] * FAILURES_MAX + [True] * 95
        assert (await breaker_status(store)).times_opened == 1

    async def test_each_strike_gets_the_answer_of_its_own_breaker(self, store: Store) -> None:
        strikes = [struck("a", 1), struck("b", 2), struck("a", 1), struck("b", 2), struck("b", 2)]
        assert await store.strike(strikes) == [False, False, True, False, True]
        assert await store.strike([]) == []
        assert [breaker.key for breaker in await store.breakers()] == ["a", "b"]

    async def test_old_failures_do_not_count(self, store: Store, harness: Harness) -> None:
        await store.strike([struck()] * (FAILURES_MAX - 1))
        await harness.advance(WINDOW_SECONDS - 10)
        await store.strike([struck("other")])
        await harness.advance(11)
        assert (await breaker_status(store)).failures == 0
        assert await store.strike([struck()] * (FAILURES_MAX - 1)) == [False] * (FAILURES_MAX - 1)
        assert not (await breaker_status(store)).is_open
        assert (await breaker_status(store, "other")).failures == 1
        assert await store.strike([struck()]) == [False]
        assert (await breaker_status(store)).is_open

    async def test_the_window_slides(self, store: Store, harness: Harness) -> None:
        for _ in range(2 * FAILURES_MAX):
            assert await store.strike([struck()]) == [False]
            await harness.advance(WINDOW_SECONDS / (FAILURES_MAX - 1) + 1)
        assert not (await breaker_status(store)).is_open

    async def test_failures_after_the_last_success_open_a_breaker(self, store: Store) -> None:
        answers = await store.strike([struck(worked_seconds_ago=2.0)] * (FAILURES_MAX + 1))
        assert answers == [False] * FAILURES_MAX + [True]

    async def test_failures_followed_by_successes_open_no_breaker(self, store: Store) -> None:
        for _ in range(2 * BREAKER_DOUBT_FACTOR):
            strikes = [struck(failed_seconds_ago=2.0, worked_seconds_ago=1.0)] * FAILURES_MAX
            assert await store.strike(strikes) == [False] * FAILURES_MAX
        assert not (await breaker_status(store)).is_open

    async def test_a_success_in_between_raises_the_limit(self, store: Store, other: Store) -> None:
        await store.strike([struck(failed_seconds_ago=3.0)])
        most = FAILURES_MAX * BREAKER_DOUBT_FACTOR
        first = struck(failed_seconds_ago=1.0, worked_seconds_ago=2.0)
        assert await other.strike([first]) == [False]
        # A success that one worker reported counts for the failures of all.
        assert await store.strike([struck()] * (most - 1)) == [False] * (most - 1)
        found = await breaker_status(store)
        assert (found.is_open, found.failures) == (True, most)

    async def test_doubt_ends_with_the_window(self, store: Store, harness: Harness) -> None:
        await store.strike([struck(failed_seconds_ago=2.0, worked_seconds_ago=1.0)])
        assert await store.strike([struck()] * FAILURES_MAX) == [False] * FAILURES_MAX
        assert not (await breaker_status(store)).is_open
        await harness.advance(WINDOW_SECONDS)
        await open_by_failures(store)
        assert (await breaker_status(store)).is_open

    async def test_failures_right_after_a_good_probe_are_no_outage(
        self, store: Store, harness: Harness
    ) -> None:
        await open_by_failures(store)
        assert await store.close_breaker("gateway", by_hand=False)
        await harness.advance(1)
        most = FAILURES_MAX * BREAKER_DOUBT_FACTOR
        assert await store.strike([struck()] * (most - 1)) == [False] * (most - 1)
        assert not (await breaker_status(store)).is_open
        assert await store.strike([struck()] * 2) == [False, True]

    async def test_an_open_breaker_blocks_only_its_jobs(self, store: Store, other: Store) -> None:
        waiting = await enqueue(store, breaker="gateway", priority=-5)
        free = [await enqueue(store, breaker=key) for key in (None, "well", "struck")]
        await store.strike([struck("struck")])
        await open_by_failures(store)
        assert [job.id for job in await claim(other)] == free
        assert await other.claim_by_id(waiting, "worker", LEASE_SECONDS) is None
        found = await recorded(store, waiting)
        assert (found.state, found.attempts, found.fence) == (State.QUEUED, 0, 0)

    async def test_running_jobs_continue_when_their_breaker_opens(self, store: Store) -> None:
        job = await claim_one(store, breaker="gateway")
        await open_by_failures(store)
        assert await park_all(store) == 0
        assert await store.renew([job.lease], LEASE_SECONDS) == []
        assert await store.settle([success(job)]) == []

    @needs(Suspects)
    async def test_an_open_breaker_neither_parks_nor_blocks_suspects(self, store: Store) -> None:
        suspect = await make_suspect(store, breaker="gateway")
        await open_by_failures(store)
        assert (await store.park(100)).moved == 0
        assert (await claim_alone(store)).id == suspect

    async def test_due_jobs_of_an_open_breaker_are_parked_in_steps(self, store: Store) -> None:
        await store.enqueue([new_job(breaker="gateway", queue="q") for _ in range(5)])
        await store.enqueue([new_job(breaker="well"), new_job()])
        assert await store.park(100) == (0, None)
        await open_by_failures(store)
        assert [(await store.park(2)).moved for _ in range(4)] == [2, 2, 1, 0]
        assert (await breaker_status(store)).parked == 5
        found = await queue_status(store, "q")
        assert (found.parked, found.ready, found.scheduled, found.waiting) == (5, 0, 0, 5)
        assert found.oldest_ready_seconds is None
        assert len(await claim(store)) == 2

    async def test_a_parked_job_looks_like_any_waiting_job(self, store: Store) -> None:
        job_id = await enqueue(store, breaker="gateway", queue="q")
        before, counts = await recorded(store, job_id), await store.counts()
        await open_by_failures(store)
        assert await park_all(store) == 1
        assert await recorded(store, job_id) == before
        assert await store.counts() == counts
        assert await store.reclaim(10) == []

    async def test_a_job_is_parked_once_it_is_due(self, store: Store, harness: Harness) -> None:
        job_id = await enqueue(store, breaker="gateway", delay_seconds=60.0, queue="q")
        await open_by_failures(store)
        assert await park_all(store) == 0
        assert (await queue_status(store, "q")).scheduled == 1
        await harness.advance(61)
        assert await claim(store) == []
        before = await recorded(store, job_id)
        assert await park_all(store) == 1
        assert await recorded(store, job_id) == before

    async def test_unparked_jobs_keep_their_order(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        jobs = []
        for priority in (2, 1, 1):
            jobs.append(await enqueue(store, breaker="gateway", queue="q", priority=priority))
            await harness.advance(1)
        before = [await recorded(store, job_id) for job_id in jobs]
        await open_by_failures(store)
        await park_all(store)
        await harness.advance(60)
        younger = await enqueue(store, breaker="gateway", queue="q", priority=1)
        due = [(await recorded(store, job_id)).run_at for job_id in jobs]
        assert due[1] - due[0] == before[1].run_at - before[0].run_at
        assert await other.close_breaker("gateway")
        assert (await store.park(2)).moved == 2
        found = await breaker_status(store)
        assert (found.is_open, found.unparking, found.parked) == (False, True, 1)
        assert await park_all(store) == 1
        found = await breaker_status(store)
        assert (found.unparking, found.parked, found.times_opened) == (False, 0, 1)
        assert [(await recorded(store, job_id)).run_at for job_id in jobs] == due
        assert [job.id for job in await claim(other)] == [jobs[1], jobs[2], younger, jobs[0]]

    async def test_closing_frees_jobs_that_were_never_parked(self, store: Store) -> None:
        await enqueue(store, breaker="gateway")
        await open_by_failures(store)
        assert await claim(store) == []
        await store.close_breaker("gateway")
        assert len(await claim(store)) == 1

    async def test_closing_resets_the_count_but_not_the_reason(self, store: Store) -> None:
        assert not await store.close_breaker("gateway")
        await store.strike([struck()])
        assert not await store.close_breaker("gateway")
        await store.strike([struck()] * (FAILURES_MAX - 1))
        assert await store.close_breaker("gateway")
        assert not await store.close_breaker("gateway")
        found = await breaker_status(store)
        assert (found.failures, found.opened_at, found.next_probe_at) == (0, None, None)
        await store.strike([struck()])
        found = await breaker_status(store)
        assert (found.failures, found.opened_because) == (1, "HTTP_503: no answer")
        await store.strike([struck()] * FAILURES_MAX)
        assert (await breaker_status(store)).times_opened == 2

    async def test_a_breaker_that_reopens_parks_all_jobs_again(self, store: Store) -> None:
        await store.enqueue([new_job(breaker="gateway") for _ in range(4)])
        await open_by_failures(store)
        await park_all(store)
        await store.close_breaker("gateway")
        assert (await store.park(2)).moved == 2
        await open_by_failures(store)
        assert await claim(store) == []
        found = await breaker_status(store)
        assert (found.unparking, found.parked) == (False, 2)
        assert await park_all(store) == 2
        assert (await breaker_status(store)).parked == 4
        await store.close_breaker("gateway")
        assert await park_all(store) == 4
        assert len(await claim(store)) == 4

    async def test_one_step_parks_and_unparks_within_its_limit(self, store: Store) -> None:
        await store.enqueue([new_job(breaker="a") for _ in range(3)])
        await open_by_failures(store, "a")
        await park_all(store)
        await store.close_breaker("a")
        await store.enqueue([new_job(breaker="b") for _ in range(3)])
        await open_by_failures(store, "b")
        assert [(await store.park(4)).moved for _ in range(3)] == [4, 2, 0]
        assert [job.breaker for job in await claim(store)] == ["a"] * 3

    async def test_a_breaker_opened_by_hand_stays_open(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        await enqueue(store, breaker="gateway")
        await store.open_breaker("gateway", "ann", "deploying")
        found = await breaker_status(other)
        assert (found.opened_by, found.opened_because) == ("ann", "deploying")
        assert (found.is_open, found.next_probe_at, found.times_opened) == (True, None, 1)
        assert await claim(other) == []
        assert await other.strike([struck()]) == [True]
        assert await store.park(100) == (1, None)
        await harness.advance(3600)
        assert await store.park(100) == (0, None)
        assert await claim(other) == []
        assert await other.close_breaker("gateway")
        assert await park_all(store) == 1
        assert (await breaker_status(store)).opened_by is None
        assert len(await claim(store)) == 1

    async def test_a_probe_does_not_close_a_breaker_opened_by_hand(self, store: Store) -> None:
        await open_by_failures(store)
        assert await store.close_breaker("gateway", by_hand=False)
        await store.open_breaker("gateway", None, None)
        assert not await store.close_breaker("gateway", by_hand=False)
        assert (await breaker_status(store)).is_open

    async def test_a_breaker_that_failures_opened_can_be_opened_by_hand(self, store: Store) -> None:
        await open_by_failures(store)
        await store.open_breaker("gateway", "ann", None)
        found = await breaker_status(store)
        assert (found.is_open, found.opened_by, found.next_probe_at) == (True, "ann", None)
        assert (await store.park(10)).probe_in_seconds is None

    async def test_a_reset_breaker_leaves_nothing_but_its_jobs(self, store: Store) -> None:
        assert not await store.close_breaker("gateway", forget=True)
        await store.strike([struck()])
        assert await store.close_breaker("gateway", forget=True)
        assert await store.breakers() == []
        await store.enqueue([new_job(breaker="gateway") for _ in range(3)])
        await open_by_failures(store)
        await park_all(store)
        assert await store.close_breaker("gateway", forget=True)
        assert [found.is_open for found in await store.breakers()] in ([], [False])
        assert await park_all(store) == 3
        assert await store.breakers() == []
        assert len(await claim(store)) == 3

    async def test_open_breakers_are_listed_first_then_by_key(self, store: Store) -> None:
        for key in ("d", "b", "a", "c"):
            await store.strike([struck(key)])
        await open_by_failures(store, "e")
        await store.open_breaker("c", None, None)
        listed = [(found.key, found.is_open) for found in await store.breakers()]
        assert listed == [("c", True), ("e", True), ("a", False), ("b", False), ("d", False)]

    @needs(History)
    async def test_upkeep_deletes_old_closed_breakers(self, store: Store, harness: Harness) -> None:
        for key in ("a", "b", "c"):
            await store.strike([struck(key)])
        await open_by_failures(store, "open")
        await open_by_failures(store, "unparking")
        await enqueue(store, breaker="unparking")
        await park_all(store)
        await store.close_breaker("unparking")
        await harness.advance(BREAKER_KEPT_SECONDS - 60)
        await store.strike([struck("c")])
        assert await store.tidy(100) == 0
        await harness.advance(61)
        assert [await store.tidy(1) for _ in range(3)] == [1, 1, 0]
        assert sorted(found.key for found in await store.breakers()) == ["c", "open", "unparking"]

    async def test_a_retry_makes_a_parked_job_due(self, store: Store) -> None:
        await open_by_failures(store)
        job_id = await parked_job(store, queue="q")
        assert await store.retry(job_id)
        assert (await queue_status(store, "q")).ready == 1
        assert await claim(store) == []
        assert await park_all(store) == 1
        assert await store.retry(job_id)
        await store.close_breaker("gateway")
        assert len(await claim(store)) == 1
        assert await park_all(store) == 0

    async def test_a_parked_job_can_be_canceled(self, store: Store) -> None:
        due_at = datetime(2020, 1, 1, tzinfo=UTC)
        job_id = await enqueue(store, breaker="gateway", run_at=due_at)
        await open_by_failures(store)
        await park_all(store)
        assert len(await store.cancel([job_id])) == 1
        found = await recorded(store, job_id)
        assert (found.state, found.run_at, found.breaker) == (State.CANCELED, due_at, "gateway")
        assert (await breaker_status(store)).parked == 0

    async def test_a_parked_job_expires_like_any(self, store: Store, harness: Harness) -> None:
        await open_by_failures(store)
        job_id = await parked_job(store, expires_in_seconds=10.0)
        await harness.advance(11)
        assert [job.job_id for job in await store.reclaim(10)] == [job_id]
        assert (await recorded(store, job_id)).error_code == "EXPIRED"

    @needs(Diagnosis)
    async def test_the_circumstances_of_a_job_include_its_breaker(self, store: Store) -> None:
        plain, ended = await enqueue(store, name="other"), await job_in(store, State.SUCCEEDED)
        job_id = await enqueue(store, breaker="gateway")
        for known in (plain, ended, job_id):
            found = await circumstances(store, known)
            assert (found.breaker, found.parked) == (None, False)
        await open_by_failures(store, "another")
        await open_by_failures(store)
        await park_all(store)
        found = await circumstances(store, job_id)
        assert found.breaker == await breaker_status(store)
        assert (found.parked, found.breaker.parked) == (True, 1)

    @needs(Diagnosis)
    async def test_parked_jobs_are_ahead_of_no_job(self, store: Store) -> None:
        await enqueue(store, breaker="gateway")
        job_id = await enqueue(store)
        await open_by_failures(store)
        for _ in range(2):
            assert (await circumstances(store, job_id)).ahead == 0
            await park_all(store)
