"""What follows from an attempt's outcome, for every outcome, policy and count."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.domain.breakers import Breaker
from holdfast.domain.job import Claimed, Settlement
from holdfast.domain.limits import (
    DELAY_SECONDS_MAX,
    HAND_BACK_SECONDS_MAX,
    PROBES_FREE_MAX,
    RELEASES_MAX,
    SNOOZES_MAX,
)
from holdfast.domain.outcomes import (
    Crashed,
    Expired,
    Failed,
    HandedBack,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Unstarted,
    decide,
    decide_parked,
    found_at_work,
)
from holdfast.domain.retry import Retry
from holdfast.domain.states import State, may_become

RETRY = Retry.exponential(max_attempts=5, base=2, jitter=0)
BREAKER = Breaker("gateway", probe_seconds=10)


def claimed(
    *,
    attempt: int = 1,
    max_attempts: int = 5,
    fence: int = 7,
    snoozes: int = 0,
    releases: int = 0,
    waited_seconds: float | None = None,
) -> Claimed:
    return Claimed(
        id=UUID(int=1),
        name="resize",
        arguments=b"{}",
        queue="default",
        priority=0,
        tenant="default",
        correlation_id=None,
        attempt=attempt,
        max_attempts=max_attempts,
        fence=fence,
        snoozes=snoozes,
        releases=releases,
        expired=False,
        waited_seconds=waited_seconds,
    )


def settle(outcome: Outcome, job: Claimed | None = None, retry: Retry = RETRY) -> Settlement:
    return decide(job or claimed(), outcome, retry, 0.5)


@st.composite
def jobs(draw: st.DrawFn) -> Claimed:
    max_attempts = draw(st.integers(1, 20))
    return claimed(
        attempt=draw(st.integers(1, max_attempts)),
        max_attempts=max_attempts,
        fence=draw(st.integers(1, 2**63 - 1)),
        snoozes=draw(st.integers(0, SNOOZES_MAX)),
        releases=draw(st.integers(0, RELEASES_MAX)),
        waited_seconds=draw(st.none() | st.floats()),
    )


codes = st.sampled_from(["A", "B"])
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Succeeded, st.just(b"null")),
    st.builds(Failed, codes, st.text(), st.booleans(), st.none() | st.floats()),
    st.builds(Crashed, codes, st.text()),
    st.builds(Snoozed, st.floats(), st.text()),
    st.just(Released()),
    st.builds(Unstarted, st.floats(min_value=0)),
    st.builds(HandedBack, st.text()),
    st.just(Expired()),
)
retries = st.integers(1, 20).map(lambda attempts: Retry.exponential(max_attempts=attempts))
limited = retries | retries.map(lambda retry: retry.limit("A", 1))
chances = st.floats(0, 1, exclude_max=True)


@settings(deadline=None)
@given(jobs(), outcomes, limited, chances)
def test_every_settlement_is_a_move_that_the_states_allow(
    job: Claimed, outcome: Outcome, retry: Retry, chance: float
) -> None:
    settlement = decide(job, outcome, retry, chance)
    assert settlement.state is not State.RUNNING
    assert may_become(State.RUNNING, settlement.state)


@settings(deadline=None)
@given(jobs(), outcomes, limited, chances)
def test_a_settlement_names_the_lease_that_it_settles(
    job: Claimed, outcome: Outcome, retry: Retry, chance: float
) -> None:
    settlement = decide(job, outcome, retry, chance)
    assert (settlement.job_id, settlement.fence) == job.lease


@settings(deadline=None)
@given(jobs(), outcomes, limited, chances)
def test_a_job_is_queued_again_only_while_an_attempt_is_left(
    job: Claimed, outcome: Outcome, retry: Retry, chance: float
) -> None:
    settlement = decide(job, outcome, retry, chance)
    used = job.attempt - settlement.attempt_back
    assert settlement.state is not State.QUEUED or used < job.max_attempts
    assert settlement.attempt_back or not (settlement.snoozed or settlement.released)


@settings(deadline=None)
@given(jobs(), outcomes, limited, chances)
def test_every_wait_is_bounded(job: Claimed, outcome: Outcome, retry: Retry, chance: float) -> None:
    settlement = decide(job, outcome, retry, chance)
    least = -DELAY_SECONDS_MAX if isinstance(outcome, Unstarted) else 0
    assert least <= settlement.delay_seconds <= DELAY_SECONDS_MAX
    assert settlement.delay_seconds == 0 or settlement.state is State.QUEUED


@settings(deadline=None)
@given(st.lists(outcomes, min_size=50, max_size=50), st.integers(1, 5))
def test_a_job_never_starts_more_often_than_its_attempts_allow(
    sequence: list[Outcome], max_attempts: int
) -> None:
    attempt = snoozes = releases = failures = 0
    for outcome in sequence:
        attempt += 1
        assert attempt <= max_attempts
        job = claimed(
            attempt=attempt, max_attempts=max_attempts, snoozes=snoozes, releases=releases
        )
        settlement = decide(job, outcome, RETRY, 0.5)
        if settlement.state.ended:
            break
        attempt -= settlement.attempt_back
        snoozes += settlement.snoozed
        releases += settlement.released
        failures += not settlement.attempt_back
    assert failures < max_attempts
    assert snoozes <= SNOOZES_MAX
    assert releases <= RELEASES_MAX


def test_success_keeps_the_result_and_leaves_no_attempt_row() -> None:
    settlement = settle(Succeeded(b'{"ok":true}'))
    assert settlement.state is State.SUCCEEDED
    assert settlement.result == b'{"ok":true}'
    assert settlement.outcome is None
    assert settlement.error_code is None


@pytest.mark.parametrize(("attempt", "delay"), [(1, 2), (2, 4), (3, 8), (4, 16)])
def test_a_failure_waits_as_the_policy_says(attempt: int, delay: float) -> None:
    settlement = settle(Failed("GW_5XX", "bad gateway"), claimed(attempt=attempt))
    assert settlement.state is State.QUEUED
    assert settlement.delay_seconds == delay
    assert (settlement.error_code, settlement.error_text) == ("GW_5XX", "bad gateway")
    assert settlement.outcome == "failed"
    assert not settlement.attempt_back


def test_the_last_failure_leaves_the_job_dead() -> None:
    settlement = settle(Failed("GW_5XX", "bad gateway"), claimed(attempt=5))
    assert settlement.state is State.DEAD
    assert settlement.outcome == "failed"


@pytest.mark.parametrize("attempt", [1, 5])
def test_a_permanent_failure_ends_the_job_as_failed(attempt: int) -> None:
    settlement = settle(Failed("GW_4XX", "no", permanent=True), claimed(attempt=attempt))
    assert settlement.state is State.FAILED
    assert settlement.delay_seconds == 0


def fail_with(
    codes: Sequence[str], retry: Retry, failures: Mapping[str, int] | None
) -> list[State]:
    """Fail attempt after attempt with these codes, each with what the one before it settled."""
    states = []
    for attempt, code in enumerate(codes, 1):
        job = replace(claimed(attempt=attempt, max_attempts=5), failures=failures)
        settlement = settle(Failed(code, ""), job, retry)
        states.append(settlement.state)
        if failures is not None:
            failures = settlement.failures or failures
    return states


def test_a_limit_counts_only_failures_with_its_code() -> None:
    retry = Retry.exponential(max_attempts=5).limit("IO_ERROR", 2)
    codes = ["GW_5XX", "IO_ERROR", "GW_5XX", "IO_ERROR"]
    assert fail_with(codes, retry, {}) == [State.QUEUED] * 3 + [State.DEAD]


def test_every_limit_counts_by_itself() -> None:
    retry = Retry.exponential(max_attempts=5).limit("A", 2).limit("B", 2)
    assert fail_with(["A", "B", "A"], retry, {}) == [State.QUEUED, State.QUEUED, State.DEAD]


def test_a_limit_counts_all_attempts_of_a_store_that_counts_none_by_code() -> None:
    retry = Retry.exponential(max_attempts=5).limit("IO_ERROR", 2)
    assert fail_with(["GW_5XX", "IO_ERROR"], retry, None) == [State.QUEUED, State.DEAD]


def test_a_failure_whose_code_has_no_limit_is_not_counted_by_code() -> None:
    retry = Retry.exponential(max_attempts=5).limit("IO_ERROR", 2)
    job = replace(claimed(), failures={"IO_ERROR": 1})
    assert settle(Failed("GW_5XX", ""), job, retry).failures is None
    assert settle(Failed("IO_ERROR", ""), job, retry).failures == {"IO_ERROR": 2}


def test_a_crash_that_another_job_may_have_caused_is_not_counted_by_code() -> None:
    retry = Retry.exponential(max_attempts=5).limit("CRASHED", 1)
    job = replace(claimed(), failures={})
    in_doubt = settle(Crashed("CRASHED", "", reused=True), job, retry)
    assert (in_doubt.state, in_doubt.failures) == (State.QUEUED, None)
    assert settle(Crashed("CRASHED", ""), job, retry).state is State.DEAD


@settings(deadline=None)
@given(st.lists(codes, min_size=1, max_size=5), st.integers(1, 5), st.booleans())
def test_a_limit_never_adds_attempts(codes: list[str], limit: int, counts: bool) -> None:
    plain = Retry.exponential(max_attempts=5)
    failures: dict[str, int] | None = {} if counts else None
    ends = fail_with(codes, plain.limit("A", limit), failures)
    for end, without in zip(ends, fail_with(codes, plain, failures), strict=True):
        assert end is State.DEAD or end is without


@pytest.mark.parametrize(
    ("asked", "waited"),
    [
        (None, 2),
        (60, 60),
        (1, 2),
        (-5, 2),
        (math.nan, 2),
        (math.inf, DELAY_SECONDS_MAX),
    ],
)
def test_retry_after_can_only_lengthen_the_wait(asked: float | None, waited: float) -> None:
    settlement = settle(Failed("BUSY", "", retry_after_seconds=asked))
    assert settlement.delay_seconds == waited


@pytest.mark.parametrize(
    ("asked", "waited"), [(30, 30), (0, 0), (-1, 0), (math.nan, 0), (math.inf, DELAY_SECONDS_MAX)]
)
def test_a_snooze_gives_the_attempt_back(asked: float, waited: float) -> None:
    settlement = settle(Snoozed(asked, "not yet"), claimed(attempt=5, snoozes=SNOOZES_MAX - 1))
    assert settlement.state is State.QUEUED
    assert settlement.delay_seconds == waited
    assert settlement.attempt_back
    assert settlement.snoozed
    assert settlement.outcome is None


@pytest.mark.parametrize(("attempt", "state"), [(4, State.QUEUED), (5, State.DEAD)])
def test_one_snooze_too_many_is_a_failed_attempt(attempt: int, state: State) -> None:
    settlement = settle(Snoozed(30, "not yet"), claimed(attempt=attempt, snoozes=SNOOZES_MAX))
    assert settlement.state is state
    assert settlement.error_code == "SNOOZED_TOO_OFTEN"
    assert not settlement.attempt_back
    assert not settlement.snoozed
    assert settlement.outcome == "failed"


def test_a_release_gives_the_attempt_back_at_once() -> None:
    settlement = settle(Released(), claimed(attempt=5, releases=RELEASES_MAX - 1))
    assert settlement.state is State.QUEUED
    assert settlement.delay_seconds == 0
    assert settlement.attempt_back
    assert settlement.released
    assert settlement.outcome is None


@pytest.mark.parametrize(
    ("waited", "due_since"),
    [(None, 0.5), (-0.1, 0.5), (600.0, 600.5), (math.inf, DELAY_SECONDS_MAX)],
)
def test_a_job_that_did_not_start_loses_nothing_and_keeps_its_place(
    waited: float | None, due_since: float
) -> None:
    job = claimed(attempt=5, releases=RELEASES_MAX, waited_seconds=waited)
    settlement = settle(Unstarted(0.5), job)
    assert settlement.state is State.QUEUED
    assert settlement.delay_seconds == -due_since
    assert settlement.attempt_back
    assert not settlement.released
    assert settlement.outcome is None


@pytest.mark.parametrize(("attempt", "state"), [(4, State.QUEUED), (5, State.DEAD)])
def test_one_release_too_many_keeps_its_attempt(attempt: int, state: State) -> None:
    settlement = settle(Released(), claimed(attempt=attempt, releases=RELEASES_MAX))
    assert settlement.state is state
    assert settlement.error_code == "RELEASED_TOO_OFTEN"
    assert not settlement.attempt_back
    assert not settlement.released
    assert settlement.outcome == "released"


@pytest.mark.parametrize(
    ("releases", "waited"),
    [(0, 1), (1, 2), (2, 4), (5, 32), (6, 60), (RELEASES_MAX - 1, HAND_BACK_SECONDS_MAX)],
)
def test_a_job_of_another_version_keeps_its_attempt_and_waits_longer_each_time(
    releases: int, waited: float
) -> None:
    settlement = settle(HandedBack("no argument 'a'"), claimed(attempt=5, releases=releases))
    assert (settlement.state, settlement.delay_seconds) == (State.QUEUED, waited)
    assert settlement.attempt_back
    assert settlement.released
    assert (settlement.error_code, settlement.error_text) == ("HANDED_BACK", "no argument 'a'")
    assert settlement.outcome == "released"


def test_one_hand_back_too_many_fails_the_job() -> None:
    settlement = settle(HandedBack("no argument 'a'"), claimed(releases=RELEASES_MAX))
    assert (settlement.state, settlement.error_code) == (State.FAILED, "BAD_ARGUMENTS")
    assert settlement.error_text is not None
    assert settlement.error_text.endswith("100 releases: no argument 'a'")
    assert not settlement.released


@pytest.mark.parametrize(("attempt", "state"), [(4, State.QUEUED), (5, State.DEAD)])
def test_a_crash_uses_an_attempt_and_is_told_from_a_failure(attempt: int, state: State) -> None:
    settlement = settle(Crashed("CRASHED", "killed by SIGSEGV"), claimed(attempt=attempt))
    assert settlement.state is state
    assert (settlement.error_code, settlement.error_text) == ("CRASHED", "killed by SIGSEGV")
    assert settlement.crashed
    assert settlement.outcome == "crashed"
    assert not settlement.attempt_back


def test_a_crash_that_an_earlier_job_may_have_caused_ends_no_job() -> None:
    crashed = Crashed("CRASHED", "killed by SIGSEGV", reused=True)
    in_doubt = settle(crashed, claimed(attempt=5))
    assert (in_doubt.state, in_doubt.attempt_back) == (State.QUEUED, True)
    assert in_doubt.crashed
    assert in_doubt.released
    assert settle(crashed, claimed(attempt=5, releases=1)).state is State.DEAD
    assert not settle(crashed, claimed(attempt=4)).attempt_back


def test_a_crash_is_retried_as_the_policy_says() -> None:
    failed, crashed = settle(Failed("A", "")), settle(Crashed("A", ""))
    assert crashed.delay_seconds == failed.delay_seconds == 2
    assert not failed.crashed


def test_a_job_that_expired_is_canceled_without_having_started() -> None:
    settlement = settle(Expired())
    assert settlement.state is State.CANCELED
    assert settlement.error_code == "EXPIRED"
    assert settlement.attempt_back
    assert settlement.outcome is None


failures = st.builds(Failed, codes, st.text(), st.booleans(), st.none() | st.floats())


@settings(deadline=None)
@given(jobs(), failures, limited, chances)
def test_a_job_that_waits_for_its_breaker_can_be_claimed_again_and_its_wait_is_bounded(
    job: Claimed, failed: Failed, retry: Retry, chance: float
) -> None:
    settlement = decide_parked(job, failed, retry, chance, BREAKER)
    assert (settlement.job_id, settlement.fence) == job.lease
    assert 0 <= settlement.delay_seconds <= DELAY_SECONDS_MAX
    used = job.attempt - settlement.attempt_back
    assert settlement.state is not State.QUEUED or used < job.max_attempts
    assert job.snoozes + settlement.snoozed <= SNOOZES_MAX


@pytest.mark.parametrize("attempt", [1, 5])
def test_a_failure_that_finds_its_breaker_open_costs_no_attempt(attempt: int) -> None:
    job = claimed(attempt=attempt, snoozes=SNOOZES_MAX - 1)
    settlement = decide_parked(job, Failed("GW_5XX", "bad gateway"), RETRY, 0.5, BREAKER)
    assert settlement.state is State.QUEUED
    assert settlement.attempt_back
    assert settlement.snoozed
    assert not settlement.released
    assert (settlement.error_code, settlement.error_text) == ("GW_5XX", "bad gateway")
    assert settlement.outcome == "released"


@pytest.mark.parametrize(
    ("asked", "waited"),
    [(None, 0), (60, 60), (-5, 0), (math.nan, 0), (math.inf, DELAY_SECONDS_MAX)],
)
def test_a_job_that_waits_for_its_breaker_waits_for_nothing_else_unless_told_to(
    asked: float | None, waited: float
) -> None:
    failed = Failed("BUSY", "", retry_after_seconds=asked)
    assert decide_parked(claimed(attempt=3), failed, RETRY, 0.5, BREAKER).delay_seconds == waited


@pytest.mark.parametrize(("asked", "waited"), [(None, 10), (5, 10), (60, 60)])
def test_a_suspect_that_finds_its_breaker_open_waits_since_nothing_holds_it(
    asked: float | None, waited: float
) -> None:
    job = replace(claimed(), suspect=True)
    failed = Failed("BUSY", "", retry_after_seconds=asked)
    assert decide_parked(job, failed, RETRY, 0.5, BREAKER).delay_seconds == waited


@pytest.mark.parametrize(("attempt", "state"), [(4, State.QUEUED), (5, State.DEAD)])
def test_an_attempt_is_not_given_back_for_a_breaker_without_end(attempt: int, state: State) -> None:
    job = claimed(attempt=attempt, snoozes=SNOOZES_MAX)
    failed = Failed("GW_5XX", "bad gateway")
    settlement = decide_parked(job, failed, RETRY, 0.5, BREAKER)
    assert settlement == settle(failed, job)
    assert settlement.state is state


@pytest.mark.parametrize(
    ("probes", "is_free"),
    [(0, True), (1, True), (PROBES_FREE_MAX, True), (PROBES_FREE_MAX + 1, False)],
)
def test_a_job_pays_for_its_own_failed_probes_after_a_few(probes: int, is_free: bool) -> None:
    job = replace(claimed(attempt=2), probes=probes)
    failed = Failed("GW_5XX", "bad gateway")
    settlement = decide_parked(job, failed, RETRY, 0.5, BREAKER)
    assert settlement.attempt_back == is_free
    assert settlement == settle(failed, job) or is_free


@settings(deadline=None)
@given(st.integers(1, 20), retries)
def test_a_job_whose_every_probe_fails_ends_as_dead(max_attempts: int, retry: Retry) -> None:
    attempt, probes = 0, 0
    while True:
        attempt, probes = attempt + 1, probes + 1
        job = replace(claimed(attempt=attempt, max_attempts=max_attempts), probes=probes)
        settlement = decide_parked(job, Failed("GW_5XX", "bad gateway"), retry, 0.5, BREAKER)
        if settlement.state.ended:
            break
        attempt -= settlement.attempt_back
    assert settlement.state is State.DEAD
    assert probes == PROBES_FREE_MAX + max_attempts


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        (Succeeded(b"null"), True),
        (Failed("NOT_FOUND", "", permanent=True, dependency_failed=False), True),
        (Failed("GW_5XX", "", dependency_failed=True), False),
        (Failed("BAD_ARGUMENTS", "", permanent=True), False),
        (Crashed("CRASHED", ""), False),
        (Snoozed(1, ""), False),
        (Released(), False),
        (Unstarted(1), False),
        (Expired(), False),
    ],
)
def test_only_what_has_answered_is_found_at_work(outcome: Outcome, answer: bool) -> None:
    assert found_at_work(outcome) is answer
