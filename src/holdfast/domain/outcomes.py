"""What an attempt came to, and what follows from it: `decide`, without input or output."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.domain.breakers import Breaker
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
    """`dependency_failed` says whether the error counts against the job's breaker; None if nothing
    is known of what the job depends on, because the handler may not have come to ask it."""

    code: str
    text: str
    permanent: bool = False
    retry_after_seconds: float | None = None
    dependency_failed: bool | None = None


class Snoozed(msgspec.Struct, frozen=True, gc=False):
    seconds: float
    text: str


class Crashed(msgspec.Struct, frozen=True, gc=False):
    """The child process that ran the handler, and nothing else, died.

    One that is `reused` had run other jobs before, and one of these may have left the cause behind.
    """

    code: str
    text: str
    reused: bool = False


class Released(msgspec.Struct, frozen=True, gc=False):
    """The worker is stopping, or can't run the job: the next worker starts it afresh."""


class HandedBack(msgspec.Struct, frozen=True, gc=False):
    """The handler of this worker takes other arguments; that of a newer or older one may fit."""

    text: str


class Expired(msgspec.Struct, frozen=True, gc=False):
    """The job was claimed after the time until which it was of use; it did not start."""


Outcome = Succeeded | Failed | Crashed | Snoozed | Released | HandedBack | Expired


def decide(job: Claimed, outcome: Outcome, retry: Retry, chance: float) -> Settlement:
    """Say how the attempt is settled; `chance` in [0, 1) is the retry's jitter."""
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
        case HandedBack():
            return _hand_back(job, outcome, retry, chance)
        case Expired():
            return Settlement(
                job_id=job.id,
                fence=job.fence,
                state=State.CANCELED,
                error_code="EXPIRED",
                error_text="the job expired before it started",
                attempt_back=True,
            )


def _decide_failed(job: Claimed, failed: Failed, retry: Retry, chance: float) -> Settlement:
    exhausted = job.attempt >= retry.attempts_allowed(failed.code, job.max_attempts)
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
    return Settlement(
        job_id=job.id,
        fence=job.fence,
        state=state,
        delay_seconds=delay,
        error_code=failed.code,
        error_text=failed.text,
        outcome="failed",
    )


def decide_parked(
    job: Claimed, failed: Failed, retry: Retry, chance: float, breaker: Breaker
) -> Settlement:
    """Say how a failure is settled whose breaker was open already: the job is parked, with its
    attempt, unless that happened too often already. It comes back no sooner than it was told to.

    A job whose own probes keep failing pays for the later ones: it may be the cause itself."""
    if job.snoozes >= SNOOZES_MAX or job.probes > PROBES_FREE_MAX:
        return _decide_failed(job, failed, retry, chance)
    # Nothing holds a suspect: it would be back at once, again and again.
    least = breaker.probe_seconds if job.suspect else 0.0
    return Settlement(
        job_id=job.id,
        fence=job.fence,
        state=State.QUEUED,
        delay_seconds=min(max(least, failed.retry_after_seconds or 0.0), DELAY_SECONDS_MAX),
        error_code=failed.code,
        error_text=failed.text,
        attempt_back=True,
        snoozed=True,
        outcome="released",
    )


def fail_unjudged(job: Claimed, error_name: str) -> Settlement:
    """End a job of which nothing can be decided: to look at its error, or to ask its retry policy,
    raised an error itself."""
    return Settlement(
        job_id=job.id,
        fence=job.fence,
        state=State.FAILED,
        error_code="UNJUDGED",
        error_text=f"the worker could not classify the end of the attempt: {error_name}",
        outcome="failed",
    )


def found_at_work(outcome: Outcome) -> bool:
    """Has a job that was sent ahead found what it depends on at work?"""
    match outcome:
        case Succeeded():
            return True
        case Failed(dependency_failed=found):
            return found is False
        case _:
            return False


def _decide_crashed(job: Claimed, crashed: Crashed, retry: Retry, chance: float) -> Settlement:
    """Settle it as failed. But no job is dead for a crash that another may have caused: it is given
    back once, with its attempt, and then gets a process that has run nothing else."""
    settlement = _decide_failed(job, Failed(crashed.code, crashed.text), retry, chance)
    in_doubt = settlement.state is State.DEAD and crashed.reused and job.releases == 0
    return msgspec.structs.replace(
        settlement,
        crashed=True,
        outcome="crashed",
        state=State.QUEUED if in_doubt else settlement.state,
        attempt_back=in_doubt,
        released=in_doubt,
    )


def _decide_snoozed(job: Claimed, snoozed: Snoozed, retry: Retry, chance: float) -> Settlement:
    if job.snoozes >= SNOOZES_MAX:
        text = f"snoozed more than {SNOOZES_MAX} times: {snoozed.text}"
        return _decide_failed(job, Failed("SNOOZED_TOO_OFTEN", text), retry, chance)
    return Settlement(
        job_id=job.id,
        fence=job.fence,
        state=State.QUEUED,
        delay_seconds=min(max(0.0, snoozed.seconds), DELAY_SECONDS_MAX),
        attempt_back=True,
        snoozed=True,
    )


def _release(job: Claimed) -> Settlement:
    """Give the job back with its attempt, unless that happened too often already.

    A release that keeps its attempt can be the last one: then the job is dead, as after a crash.
    """
    if job.releases < RELEASES_MAX:
        return Settlement(
            job_id=job.id, fence=job.fence, state=State.QUEUED, attempt_back=True, released=True
        )
    last = job.attempt >= job.max_attempts
    return Settlement(
        job_id=job.id,
        fence=job.fence,
        state=State.DEAD if last else State.QUEUED,
        error_code="RELEASED_TOO_OFTEN",
        error_text=f"released more than {RELEASES_MAX} times",
        outcome="released",
    )


def _hand_back(job: Claimed, handed_back: HandedBack, retry: Retry, chance: float) -> Settlement:
    """Leave the job with its attempt to a worker of another version, unless none came for long."""
    if job.releases >= RELEASES_MAX:
        text = f"no worker could run it in {RELEASES_MAX} releases: {handed_back.text}"
        return _decide_failed(job, Failed("BAD_ARGUMENTS", text, permanent=True), retry, chance)
    return Settlement(
        job_id=job.id,
        fence=job.fence,
        state=State.QUEUED,
        delay_seconds=min(HAND_BACK_SECONDS_MIN * 2**job.releases, HAND_BACK_SECONDS_MAX),
        error_code=HANDED_BACK,
        error_text=handed_back.text,
        attempt_back=True,
        released=True,
        outcome="released",
    )
