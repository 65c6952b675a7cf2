"""Breakers: failures open them, the jobs of their key are held, and go on when they close."""

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
    Needs,
    Suite,
    claim,
    claim_one,
    claim_suspect,
    enqueue,
    failure,
    job_in,
    needs,
    new_id,
    new_job,
    new_suspect,
    queue_seen,
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


async def breaker_seen(store: Store, key: str = "gateway") -> BreakerStatus:
    (found,) = [breaker for breaker in await store.breakers() if breaker.key == key]
    return found


async def hold_all(store: Store) -> int:
    """Step until all is done; answer how many jobs were held or let go."""
    moved = 0
    while step := (await store.park(100)).moved:
        moved += step
    return moved


async def held_job(store: Store, **changes: object) -> UUID:
    """Enqueue a job whose breaker is open already, and hold it."""
    job_id = await enqueue(store, **{"breaker": "gateway", **changes})
    assert await hold_all(store) == 1
    return job_id


class Breaking(Suite):
    all_need: Needs = (Breakers,)

    async def test_a_job_keeps_what_it_depends_on_and_its_trace(self, store: Store) -> None:
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

    async def test_the_last_of_so_many_failures_opens_a_breaker_for_all(
        self, store: Store, other: Store
    ) -> None:
        for number in range(1, FAILURES_MAX):
            assert await store.strike([struck()]) == [False]
            found = await breaker_seen(other)
            assert (found.failures, found.is_open, found.times_opened) == (number, False, 0)
        assert await other.strike([struck()]) == [False]
        found = await breaker_seen(store)
        assert (found.failures, found.is_open, found.times_opened) == (FAILURES_MAX, True, 1)
        assert (found.opened_by, found.opened_because) == (None, "HTTP_503: no answer")
        assert found.opened_at is not None
        assert found.next_probe_at == found.opened_at + timedelta(seconds=PROBE_SECONDS)
        assert await store.strike([struck()]) == [True]
        assert await breaker_seen(store) == found

    async def test_of_many_failures_at_once_only_so_many_cost_an_attempt(
        self, store: Store
    ) -> None:
        answers = await store.strike([struck()] * 100)
        assert answers == [False] * FAILURES_MAX + [True] * 95
        assert (await breaker_seen(store)).times_opened == 1

    async def test_each_strike_is_answered_for_its_own_breaker(self, store: Store) -> None:
        strikes = [struck("a", 1), struck("b", 2), struck("a", 1), struck("b", 2), struck("b", 2)]
        assert await store.strike(strikes) == [False, False, True, False, True]
        assert await store.strike([]) == []
        assert [breaker.key for breaker in await store.breakers()] == ["a", "b"]

    async def test_failures_outside_the_window_do_not_count(
        self, store: Store, harness: Harness
    ) -> None:
        await store.strike([struck()] * (FAILURES_MAX - 1))
        await harness.advance(WINDOW_SECONDS - 10)
        await store.strike([struck("other")])
        await harness.advance(11)
        assert (await breaker_seen(store)).failures == 0
        assert await store.strike([struck()] * (FAILURES_MAX - 1)) == [False] * (FAILURES_MAX - 1)
        assert not (await breaker_seen(store)).is_open
        assert (await breaker_seen(store, "other")).failures == 1
        assert await store.strike([struck()]) == [False]
        assert (await breaker_seen(store)).is_open

    async def test_a_window_that_slides_holds_the_last_failures_only(
        self, store: Store, harness: Harness
    ) -> None:
        for _ in range(2 * FAILURES_MAX):
            assert await store.strike([struck()]) == [False]
            await harness.advance(WINDOW_SECONDS / (FAILURES_MAX - 1) + 1)
        assert not (await breaker_seen(store)).is_open

    async def test_failures_after_the_last_success_open_a_breaker_as_if_there_were_none(
        self, store: Store
    ) -> None:
        answers = await store.strike([struck(worked_seconds_ago=2.0)] * (FAILURES_MAX + 1))
        assert answers == [False] * FAILURES_MAX + [True]

    async def test_failures_that_successes_follow_open_no_breaker(self, store: Store) -> None:
        for _ in range(2 * BREAKER_DOUBT_FACTOR):
            strikes = [struck(failed_seconds_ago=2.0, worked_seconds_ago=1.0)] * FAILURES_MAX
            assert await store.strike(strikes) == [False] * FAILURES_MAX
        assert not (await breaker_seen(store)).is_open

    async def test_after_a_success_between_failures_it_takes_more_of_them_in_a_row(
        self, store: Store, other: Store
    ) -> None:
        await store.strike([struck(failed_seconds_ago=3.0)])
        most = FAILURES_MAX * BREAKER_DOUBT_FACTOR
        first = struck(failed_seconds_ago=1.0, worked_seconds_ago=2.0)
        assert await other.strike([first]) == [False]
        # What one worker told of its successes counts for the failures of all.
        assert await store.strike([struck()] * (most - 1)) == [False] * (most - 1)
        found = await breaker_seen(store)
        assert (found.is_open, found.failures) == (True, most)

    async def test_doubt_ends_with_the_window(self, store: Store, harness: Harness) -> None:
        await store.strike([struck(failed_seconds_ago=2.0, worked_seconds_ago=1.0)])
        assert await store.strike([struck()] * FAILURES_MAX) == [False] * FAILURES_MAX
        assert not (await breaker_seen(store)).is_open
        await harness.advance(WINDOW_SECONDS)
        await open_by_failures(store)
        assert (await breaker_seen(store)).is_open

    async def test_failures_around_a_probe_that_succeeded_are_no_outage(
        self, store: Store, harness: Harness
    ) -> None:
        await open_by_failures(store)
        assert await store.close_breaker("gateway", by_hand=False)
        await harness.advance(1)
        most = FAILURES_MAX * BREAKER_DOUBT_FACTOR
        assert await store.strike([struck()] * (most - 1)) == [False] * (most - 1)
        assert not (await breaker_seen(store)).is_open
        assert await store.strike([struck()] * 2) == [False, True]

    async def test_no_job_whose_breaker_is_open_is_claimed_and_others_go_on(
        self, store: Store, other: Store
    ) -> None:
        waiting = await enqueue(store, breaker="gateway", priority=-5)
        going = [await enqueue(store, breaker=key) for key in (None, "well", "struck")]
        await store.strike([struck("struck")])
        await open_by_failures(store)
        assert [job.id for job in await claim(other)] == going
        assert await other.claim_by_id(waiting, "worker", LEASE_SECONDS) is None
        found = await recorded(store, waiting)
        assert (found.state, found.attempts, found.fence) == (State.QUEUED, 0, 0)

    async def test_what_runs_when_its_breaker_opens_runs_on(self, store: Store) -> None:
        job = await claim_one(store, breaker="gateway")
        await open_by_failures(store)
        assert await hold_all(store) == 0
        assert await store.renew([job.lease], LEASE_SECONDS) == []
        assert await store.settle([success(job)]) == []

    @needs(Suspects)
    async def test_suspects_are_neither_held_nor_kept_from_running(self, store: Store) -> None:
        suspect = await new_suspect(store, breaker="gateway")
        await open_by_failures(store)
        assert (await store.park(100)).moved == 0
        claimed = await claim_suspect(store)
        assert claimed is not None
        assert claimed.id == suspect

    async def test_due_jobs_of_an_open_breaker_are_held_in_bounded_steps(
        self, store: Store
    ) -> None:
        await store.enqueue([new_job(breaker="gateway", queue="q") for _ in range(5)])
        await store.enqueue([new_job(breaker="well"), new_job()])
        assert await store.park(100) == (0, None)
        await open_by_failures(store)
        assert [(await store.park(2)).moved for _ in range(4)] == [2, 2, 1, 0]
        assert (await breaker_seen(store)).parked == 5
        found = await queue_seen(store, "q")
        assert (found.parked, found.ready, found.scheduled, found.waiting) == (5, 0, 0, 5)
        assert found.oldest_ready_seconds is None
        assert len(await claim(store)) == 2

    async def test_a_held_job_looks_like_any_that_waits(
        self, store: Store, harness: Harness
    ) -> None:
        job_id = await enqueue(store, breaker="gateway", queue="q")
        before, counts = await recorded(store, job_id), await store.counts()
        await open_by_failures(store)
        assert await hold_all(store) == 1
        assert await recorded(store, job_id) == before
        assert await store.counts() == counts
        assert await store.reclaim(10) == []

    async def test_a_job_that_is_not_due_is_held_when_it_is(
        self, store: Store, harness: Harness
    ) -> None:
        job_id = await enqueue(store, breaker="gateway", delay_seconds=60.0, queue="q")
        await open_by_failures(store)
        assert await hold_all(store) == 0
        assert (await queue_seen(store, "q")).scheduled == 1
        await harness.advance(61)
        assert await claim(store) == []
        before = await recorded(store, job_id)
        assert await hold_all(store) == 1
        assert await recorded(store, job_id) == before

    async def test_what_was_held_goes_on_in_its_order_when_the_breaker_closes(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        jobs = []
        for priority in (2, 1, 1):
            jobs.append(await enqueue(store, breaker="gateway", queue="q", priority=priority))
            await harness.advance(1)
        before = [await recorded(store, job_id) for job_id in jobs]
        await open_by_failures(store)
        await hold_all(store)
        await harness.advance(60)
        younger = await enqueue(store, breaker="gateway", queue="q", priority=1)
        due = [(await recorded(store, job_id)).run_at for job_id in jobs]
        assert due[1] - due[0] == before[1].run_at - before[0].run_at
        assert await other.close_breaker("gateway")
        assert (await store.park(2)).moved == 2
        found = await breaker_seen(store)
        assert (found.is_open, found.unparking, found.parked) == (False, True, 1)
        assert await hold_all(store) == 1
        found = await breaker_seen(store)
        assert (found.unparking, found.parked, found.times_opened) == (False, 0, 1)
        assert [(await recorded(store, job_id)).run_at for job_id in jobs] == due
        assert [job.id for job in await claim(other)] == [jobs[1], jobs[2], younger, jobs[0]]

    async def test_what_was_never_held_goes_on_as_soon_as_the_breaker_closes(
        self, store: Store
    ) -> None:
        await enqueue(store, breaker="gateway")
        await open_by_failures(store)
        assert await claim(store) == []
        await store.close_breaker("gateway")
        assert len(await claim(store)) == 1

    async def test_a_closed_breaker_counts_anew_and_says_why_it_was_open(
        self, store: Store
    ) -> None:
        assert not await store.close_breaker("gateway")
        await store.strike([struck()])
        assert not await store.close_breaker("gateway")
        await store.strike([struck()] * (FAILURES_MAX - 1))
        assert await store.close_breaker("gateway")
        assert not await store.close_breaker("gateway")
        found = await breaker_seen(store)
        assert (found.failures, found.opened_at, found.next_probe_at) == (0, None, None)
        await store.strike([struck()])
        found = await breaker_seen(store)
        assert (found.failures, found.opened_because) == (1, "HTTP_503: no answer")
        await store.strike([struck()] * FAILURES_MAX)
        assert (await breaker_seen(store)).times_opened == 2

    async def test_a_breaker_that_opens_again_while_it_lets_go_holds_them_all(
        self, store: Store
    ) -> None:
        await store.enqueue([new_job(breaker="gateway") for _ in range(4)])
        await open_by_failures(store)
        await hold_all(store)
        await store.close_breaker("gateway")
        assert (await store.park(2)).moved == 2
        await open_by_failures(store)
        assert await claim(store) == []
        found = await breaker_seen(store)
        assert (found.unparking, found.parked) == (False, 2)
        assert await hold_all(store) == 2
        assert (await breaker_seen(store)).parked == 4
        await store.close_breaker("gateway")
        assert await hold_all(store) == 4
        assert len(await claim(store)) == 4

    async def test_one_step_holds_and_lets_go_within_its_limit(self, store: Store) -> None:
        await store.enqueue([new_job(breaker="a") for _ in range(3)])
        await open_by_failures(store, "a")
        await hold_all(store)
        await store.close_breaker("a")
        await store.enqueue([new_job(breaker="b") for _ in range(3)])
        await open_by_failures(store, "b")
        assert [(await store.park(4)).moved for _ in range(3)] == [4, 2, 0]
        assert [job.breaker for job in await claim(store)] == ["a"] * 3

    async def test_a_breaker_opened_by_hand_holds_until_it_is_closed_by_hand(
        self, store: Store, other: Store, harness: Harness
    ) -> None:
        await enqueue(store, breaker="gateway")
        await store.open_breaker("gateway", "ann", "they move house")
        found = await breaker_seen(other)
        assert (found.opened_by, found.opened_because) == ("ann", "they move house")
        assert (found.is_open, found.next_probe_at, found.times_opened) == (True, None, 1)
        assert await claim(other) == []
        assert await other.strike([struck()]) == [True]
        assert await store.park(100) == (1, None)
        await harness.advance(3600)
        assert await store.park(100) == (0, None)
        assert await claim(other) == []
        assert await other.close_breaker("gateway")
        assert await hold_all(store) == 1
        assert (await breaker_seen(store)).opened_by is None
        assert len(await claim(store)) == 1

    async def test_a_probe_does_not_close_what_was_opened_by_hand(self, store: Store) -> None:
        await open_by_failures(store)
        assert await store.close_breaker("gateway", by_hand=False)
        await store.open_breaker("gateway", None, None)
        assert not await store.close_breaker("gateway", by_hand=False)
        assert (await breaker_seen(store)).is_open

    async def test_one_that_failures_opened_can_be_taken_in_hand(self, store: Store) -> None:
        await open_by_failures(store)
        await store.open_breaker("gateway", "ann", None)
        found = await breaker_seen(store)
        assert (found.is_open, found.opened_by, found.next_probe_at) == (True, "ann", None)
        assert (await store.park(10)).probe_in_seconds is None

    async def test_a_forgotten_breaker_leaves_nothing_but_its_jobs(self, store: Store) -> None:
        assert not await store.close_breaker("gateway", forget=True)
        await store.strike([struck()])
        assert await store.close_breaker("gateway", forget=True)
        assert await store.breakers() == []
        await store.enqueue([new_job(breaker="gateway") for _ in range(3)])
        await open_by_failures(store)
        await hold_all(store)
        assert await store.close_breaker("gateway", forget=True)
        assert [found.is_open for found in await store.breakers()] in ([], [False])
        assert await hold_all(store) == 3
        assert await store.breakers() == []
        assert len(await claim(store)) == 3

    async def test_open_breakers_are_listed_first_then_all_by_key(self, store: Store) -> None:
        for key in ("d", "b", "a", "c"):
            await store.strike([struck(key)])
        await open_by_failures(store, "e")
        await store.open_breaker("c", None, None)
        listed = [(found.key, found.is_open) for found in await store.breakers()]
        assert listed == [("c", True), ("e", True), ("a", False), ("b", False), ("d", False)]

    @needs(History)
    async def test_upkeep_forgets_breakers_that_stayed_closed_long_enough(
        self, store: Store, harness: Harness
    ) -> None:
        for key in ("a", "b", "c"):
            await store.strike([struck(key)])
        await open_by_failures(store, "open")
        await open_by_failures(store, "letting go")
        await enqueue(store, breaker="letting go")
        await hold_all(store)
        await store.close_breaker("letting go")
        await harness.advance(BREAKER_KEPT_SECONDS - 60)
        await store.strike([struck("c")])
        assert await store.tidy(100) == 0
        await harness.advance(61)
        assert [await store.tidy(1) for _ in range(3)] == [1, 1, 0]
        assert sorted(found.key for found in await store.breakers()) == ["c", "letting go", "open"]

    async def test_a_retry_makes_a_held_job_due_until_it_is_held_again(self, store: Store) -> None:
        await open_by_failures(store)
        job_id = await held_job(store, queue="q")
        assert await store.retry(job_id)
        assert (await queue_seen(store, "q")).ready == 1
        assert await claim(store) == []
        assert await hold_all(store) == 1
        assert await store.retry(job_id)
        await store.close_breaker("gateway")
        assert len(await claim(store)) == 1
        assert await hold_all(store) == 0

    async def test_a_held_job_can_be_canceled_and_leaves_as_it_was(self, store: Store) -> None:
        due_at = datetime(2020, 1, 1, tzinfo=UTC)
        job_id = await enqueue(store, breaker="gateway", run_at=due_at)
        await open_by_failures(store)
        await hold_all(store)
        assert len(await store.cancel([job_id])) == 1
        found = await recorded(store, job_id)
        assert (found.state, found.run_at, found.breaker) == (State.CANCELED, due_at, "gateway")
        assert (await breaker_seen(store)).parked == 0

    async def test_a_held_job_expires_as_any_that_waits(
        self, store: Store, harness: Harness
    ) -> None:
        await open_by_failures(store)
        job_id = await held_job(store, expires_in_seconds=10.0)
        await harness.advance(11)
        assert [job.job_id for job in await store.reclaim(10)] == [job_id]
        assert (await recorded(store, job_id)).error_code == "EXPIRED"

    @needs(Diagnosis)
    async def test_the_circumstances_of_a_job_tell_of_its_breaker(self, store: Store) -> None:
        plain, ended = await enqueue(store, name="other"), await job_in(store, State.SUCCEEDED)
        job_id = await enqueue(store, breaker="gateway")
        for known in (plain, ended, job_id):
            found = await store.circumstances(known)
            assert found is not None
            assert (found.breaker, found.parked) == (None, False)
        await open_by_failures(store, "another")
        await open_by_failures(store)
        await hold_all(store)
        found = await store.circumstances(job_id)
        assert found is not None
        assert found.breaker == await breaker_seen(store)
        assert (found.parked, found.breaker.parked) == (True, 1)

    @needs(Diagnosis)
    async def test_held_jobs_are_ahead_of_nobody(self, store: Store) -> None:
        await enqueue(store, breaker="gateway")
        job_id = await enqueue(store)
        await open_by_failures(store)
        for _ in range(2):
            found = await store.circumstances(job_id)
            assert found is not None
            assert found.ahead == 0
            await hold_all(store)
