"""The outcomes of an attempt, and how each is settled: `decide`. No I/O."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from holdfast.domain.breakers import Breaker, Strike
from holdfast.domain.job import Claimed, Settlement
from holdfast.domain.limits import (
    DELAY_SECONDS_MAX,
    HAND_BACK_SECONDS_MAX,
    HAND_BACK_SECONDS_MIN,
    PROBES_FREE_MAX,
    RELEASES_MAX,
    SNOOZES_MAX,
)
from holdfast.domain.retry import Retry
from holdfast.domain.states import State

HANDED_BACK: Final = "HANDED_BACK"


class Succeeded(msgspec.Struct, frozen=True, gc=False):
    result: bytes


class Failed(msgspec.Struct, frozen=True, gc=False):
    """`dependency_failed` says whether the error counts against the job's breaker. None if the
    handler may not have called the dependency."""

    code: str
    text: str
    permanent: bool = False
    retry_after_seconds: float | None = None
    dependency_failed: bool | None = None


class Snoozed(msgspec.Struct, frozen=True, gc=False):
    seconds: float
    text: str


class Crashed(msgspec.Struct, frozen=True, gc=False):
    """The handler's child process died. If it was `reused`, an earlier job may be the cause."""

    code: str
    text: str
    reused: bool = False


class Released(msgspec.Struct, frozen=True, gc=False):
    """The worker is stopping or can't run the job, and another one will."""


class Unstarted(msgspec.Struct, frozen=True, gc=False):
    """The job was claimed these seconds ago, but this worker did not start it."""

    seconds: float


class HandedBack(msgspec.Struct, frozen=True, gc=False):
    """This worker's handler takes other arguments, or the worker lacks their key. Another worker
    may accept them. If none does, the job fails with `code`."""

    text: str
    code: str = "BAD_ARGUMENTS"


class Expired(msgspec.Struct, frozen=True, gc=False):
    """The job was claimed after it expired, and did not start."""


Outcome = Succeeded | Failed | Crashed | Snoozed | Released | Unstarted | HandedBack | Expired


class Counted(NamedTuple):
    """A failure that counts against a breaker, and its settlement if the breaker is open."""

    strike: Strike
    parked: Settlement


class Verdict(NamedTuple):
    """An outcome, what to write for it, and what to count against a breaker before that."""

    outcome: Outcome
    settlement: Settlement
    counted: Counted | None = None

    def after_strike(self, found_open: bool) -> Verdict:
        """The verdict once the failure is counted. It counts once, however often it is tried."""
        if self.counted is None:
            return self
        return Verdict(self.outcome, self.counted.parked if found_open else self.settlement)


class Judgment(NamedTuple):
    """What an error would do to its job: the new state, QUEUED if it is retried after
    `delay_seconds`, and the error's code and text, which are None for a snooze or a release."""

    code: str | None
    text: str | None
    state: State
    delay_seconds: float


def decide(job: Claimed, outcome: Outcome, retry: Retry, chance: float) -> Settlement:
    """Decide how the attempt is settled. `chance` in [0, 1) places the retry in its jitter."""
    match outcome:
        case Succeeded(result):
            return Settlement(job_id=job.id, fence=job.fence, state=State.SUCCEEDED, result=result)
        case Failed():
            return _decide_failed(job, outcome, retry, chance)
        case Crashed():
            return _decide_crashed(job, outcome, retry, chance)
        case Snoozed():
            return _decide_snoozed(job, outcome, retry, chance)
        case Released():
            return _release(job)
        case Unstarted(seconds):
            # Due since the same time as before, it keeps its place among the others. Some rows are
            # due since the beginning of time.
            due_seconds = min(max(0.0, job.waited_seconds or 0.0) + seconds, DELAY_SECONDS_MAX)
            return _settlement(job, State.QUEUED, delay_seconds=-due_seconds, attempt_back=True)
        case HandedBack():
            return _hand_back(job, outcome, retry, chance)
        case Expired():
            text = "the job expired before it started"
            return _settlement(
                job, State.CANCELED, error_code="EXPIRED", error_text=text, attempt_back=True
            )


def _settlement(job: Claimed, state: State, **rest: Any) -> Settlement:
    return Settlement(job_id=job.id, fence=job.fence, state=state, **rest)


def _decide_failed(job: Claimed, failed: Failed, retry: Retry, chance: float) -> Settlement:
    exhausted = job.attempt >= job.max_attempts
    failures = None
    limit = retry.limit_for(failed.code)
    if limit is not None:
        failures = _failures(job, failed.code)
        exhausted = exhausted or failures[failed.code] >= limit
    delay = 0.0
    if failed.permanent:
        state = State.FAILED
    elif exhausted:
        state = State.DEAD
    else:
        state = State.QUEUED
        delay = retry.delay_seconds(job.attempt, chance)
        if failed.retry_after_seconds is not None:
            delay = max(delay, min(failed.retry_after_seconds, DELAY_SECONDS_MAX))
    return _settlement(
        job,
        state,
        delay_seconds=delay,
        error_code=failed.code,
        error_text=failed.text,
        outcome="failed",
        failures=failures,
    )


def _failures(job: Claimed, code: str) -> dict[str, int]:
    """The job's failures by code, with this one. Without counts, every attempt is one."""
    before = {code: job.attempt - 1} if job.failures is None else job.failures
    return {**before, code: before.get(code, 0) + 1}


def decide_parked(
    job: Claimed, failed: Failed, retry: Retry, chance: float, breaker: Breaker
) -> Settlement:
    """Settle a failure whose breaker is already open: park the job and return its attempt, unless
    that happened too often.

    If a job's own probes keep failing, the later ones use up attempts: it may be the cause."""
    if job.snoozes >= SNOOZES_MAX or job.probes > PROBES_FREE_MAX:
        return _decide_failed(job, failed, retry, chance)
    # A suspect is not parked: without a delay, it would come back at once.
    least = breaker.probe_seconds if job.suspect else 0.0
    return _settlement(
        job,
        State.QUEUED,
        delay_seconds=min(max(least, failed.retry_after_seconds or 0.0), DELAY_SECONDS_MAX),
        error_code=failed.code,
        error_text=failed.text,
        attempt_back=True,
        snoozed=True,
        outcome="released",
    )


def fail_unjudged(job: Claimed, error_name: str) -> Settlement:
    """End a job whose error, or whose retry policy, raised an error when it was examined."""
    return _settlement(
        job,
        State.FAILED,
        error_code="UNJUDGED",
        error_text=f"the worker could not classify the end of the attempt: {error_name}",
        outcome="failed",
    )


def found_at_work(outcome: Outcome) -> bool:
    """Whether a probe found its dependency working."""
    if isinstance(outcome, Failed):
        return outcome.dependency_failed is False
    return isinstance(outcome, Succeeded)


def _decide_crashed(job: Claimed, crashed: Crashed, retry: Retry, chance: float) -> Settlement:
    """Settle a crash as a failure. But if another job may have caused the crash, the job does not
    die: it is released once, with its attempt, and then gets a new process."""
    settlement = _decide_failed(job, Failed(crashed.code, crashed.text), retry, chance)
    in_doubt = settlement.state is State.DEAD and crashed.reused and job.releases == 0
    return msgspec.structs.replace(
        settlement,
        crashed=True,
        outcome="crashed",
        state=State.QUEUED if in_doubt else settlement.state,
        attempt_back=in_doubt,
        released=in_doubt,
        failures=None if in_doubt else settlement.failures,
    )


def _decide_snoozed(job: Claimed, snoozed: Snoozed, retry: Retry, chance: float) -> Settlement:
    if job.snoozes >= SNOOZES_MAX:
        text = f"snoozed more than {SNOOZES_MAX} times: {snoozed.text}"
        return _decide_failed(job, Failed("SNOOZED_TOO_OFTEN", text), retry, chance)
    return _settlement(
        job,
        State.QUEUED,
        delay_seconds=min(max(0.0, snoozed.seconds), DELAY_SECONDS_MAX),
        attempt_back=True,
        snoozed=True,
    )


def _release(job: Claimed) -> Settlement:
    """Release the job and return its attempt. If that happened too often, the attempt is used up,
    and the job may be dead."""
    if job.releases < RELEASES_MAX:
        return _settlement(job, State.QUEUED, attempt_back=True, released=True)
    last = job.attempt >= job.max_attempts
    return _settlement(
        job,
        State.DEAD if last else State.QUEUED,
        error_code="RELEASED_TOO_OFTEN",
        error_text=f"released more than {RELEASES_MAX} times",
        outcome="released",
    )


def _hand_back(job: Claimed, handed_back: HandedBack, retry: Retry, chance: float) -> Settlement:
    """Leave the job to a worker of another version, unless none came for a long time."""
    if job.releases >= RELEASES_MAX:
        text = f"no worker could run it in {RELEASES_MAX} releases: {handed_back.text}"
        failed = Failed(handed_back.code, text, permanent=True)
        return _decide_failed(job, failed, retry, chance)
    return _settlement(
        job,
        State.QUEUED,
        delay_seconds=min(HAND_BACK_SECONDS_MIN * 2**job.releases, HAND_BACK_SECONDS_MAX),
        error_code=HANDED_BACK,
        error_text=handed_back.text,
        attempt_back=True,
        released=True,
        outcome="released",
    )
