"""Why a job is not running: one code, one sentence, and the facts behind them, without input or
output."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.job import Attempt, Job
from holdfast.domain.limits import (
    AHEAD_COUNTED_MAX,
    PARKED_COUNTED_MAX,
    PROBES_FREE_MAX,
    RELEASES_MAX,
)
from holdfast.domain.outcomes import HANDED_BACK
from holdfast.domain.queues import QueueStatus
from holdfast.domain.states import State
from holdfast.domain.texts import pasted
from holdfast.domain.times import exact, relative
from holdfast.domain.workers import WorkerStatus


class Reason(StrEnum):
    ENDED = "ended"
    EXPIRED = "expired"
    LEASED = "leased"
    LEASE_EXPIRED = "lease_expired"
    WAITING_FOR_RETRY = "waiting_for_retry"
    HANDED_BACK = "handed_back"
    NOT_DUE = "not_due"
    QUEUE_PAUSED = "queue_paused"
    BREAKER_OPEN = "breaker_open"
    BREAKER_UNPARKING = "breaker_unparking"
    NO_WORKER = "no_worker"
    UNKNOWN_NAME = "unknown_name"
    QUEUE_FULL = "queue_full"
    SUSPECT = "suspect"
    BUSY = "busy"
    JOBS_AHEAD = "jobs_ahead"
    NEXT = "next"
    DUE = "due"


class Why(msgspec.Struct, frozen=True, kw_only=True):
    job_id: UUID
    code: Reason
    sentence: str
    facts: dict[str, Any]


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What a store reads of a job and its surroundings, all at one moment of its clock.

    `ahead` counts the due jobs of its queue that are claimed before it, up to one more than
    AHEAD_COUNTED_MAX; `last_attempt` is the last one that did not succeed. `queue` is None if no
    operator has said anything of it, `breaker` if the job has none, or nothing is known of it; a
    job that is `parked` waits for its breaker, be it open or unparking, and was sent ahead as a
    probe `probes` times.
    """

    job: Job
    now: datetime
    suspect: bool
    ahead: int
    last_attempt: Attempt | None
    workers: Sequence[WorkerStatus]
    parked: bool = False
    probes: int = 0
    queue: QueueStatus | None = None
    breaker: BreakerStatus | None = None

    @property
    def live(self) -> list[WorkerStatus]:
        """Those that can take jobs: a process for suspects only helps one of them."""
        return [each for each in self.workers if not each.lost and not each.suspects_only]

    @property
    def serving(self) -> list[WorkerStatus]:
        return [each for each in self.live if each.serves(self.job.queue)]

    @property
    def able(self) -> list[WorkerStatus]:
        return [each for each in self.serving if self.job.name in each.names]

    def at(self, moment: datetime) -> str:
        return f"{exact(moment)} ({relative(moment, self.now)})"


class _Answer(NamedTuple):
    code: Reason
    sentence: str
    facts: dict[str, Any]


def explain(seen: Circumstances) -> Why:
    """Ask one after the other what may stand in the way; the first that does is the answer."""
    for ask in _QUESTIONS:
        if (answer := ask(seen)) is not None:
            break
    else:
        answer = _in_line(seen)
    code, sentence, facts = answer
    told = {"state": seen.job.state, "queue": seen.job.queue, "name": seen.job.name, **facts}
    return Why(job_id=seen.job.id, code=code, sentence=sentence, facts=told)


def explain_alone(job: Job, now: datetime, untold: str) -> Why:
    """Say what the job itself tells, where its surroundings are not known."""
    seen = Circumstances(job=job, now=now, suspect=False, ahead=0, last_attempt=None, workers=())
    if job.state.ended:
        sentence = f"it ended as {job.state}"
        if job.state is not State.SUCCEEDED:
            sentence += f": {_error(job.error_code, job.error_text)}"
        answer = _Answer(Reason.ENDED, sentence, {"error_code": job.error_code})
    else:
        answer = _leased(seen) or _not_due(seen) or _due(seen)
        answer = answer._replace(sentence=f"{answer.sentence}; {untold}")
    told = {"state": job.state, "queue": job.queue, "name": job.name, **answer.facts}
    return Why(job_id=job.id, code=answer.code, sentence=answer.sentence, facts=told)


def _due(seen: Circumstances) -> _Answer:
    sentence = f"it has been due since {seen.at(seen.job.run_at)}"
    return _Answer(Reason.DUE, sentence, {"run_at": seen.job.run_at})


def _ended(seen: Circumstances) -> _Answer | None:
    job = seen.job
    if job.finished_at is None:
        return None
    facts = {
        "ended_at": job.finished_at,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "error_code": job.error_code,
    }
    if job.state is State.CANCELED and job.error_code == "EXPIRED" and job.expires_at:
        sentence = (
            f"it expired at {seen.at(job.expires_at)} before it ran, and was canceled at"
            f" {seen.at(job.finished_at)}"
        )
        return _Answer(Reason.EXPIRED, sentence, {**facts, "expires_at": job.expires_at})
    sentence = f"it ended as {job.state} at {seen.at(job.finished_at)}"
    if job.state is not State.SUCCEEDED:
        sentence += f": {_error(job.error_code, job.error_text)}"
        sentence += f"; to enqueue it again: holdfast jobs retry {job.id}"
    return _Answer(Reason.ENDED, sentence, facts)


def _held(seen: Circumstances) -> _Answer | None:
    leased = _leased(seen)
    if leased is None or leased.code is Reason.LEASED:
        return leased
    if seen.live:
        then = "a live worker reclaims the job within seconds"
    else:
        then = "there is no live worker to reclaim the job: start one"
    return leased._replace(sentence=f"{leased.sentence}; {then}")


def _leased(seen: Circumstances) -> _Answer | None:
    job = seen.job
    if job.lease_owner is None or job.lease_expires_at is None:
        return None
    facts = {
        "worker": job.lease_owner,
        "lease_expires_at": job.lease_expires_at,
        "started_at": job.started_at,
        "attempt": job.attempts,
        "max_attempts": job.max_attempts,
    }
    attempt = f"attempt {job.attempts} of {job.max_attempts}"
    if job.started_at:
        attempt += f", started at {seen.at(job.started_at)}"
    until = seen.at(job.lease_expires_at)
    if job.lease_expires_at > seen.now:
        sentence = f"it is leased by {job.lease_owner} until {until}: {attempt}"
        return _Answer(Reason.LEASED, sentence + _last_sight(seen, job.lease_owner), facts)
    sentence = f"the lease of {job.lease_owner} expired at {until}: {attempt}"
    sentence += _last_sight(seen, job.lease_owner)
    return _Answer(Reason.LEASE_EXPIRED, sentence, facts)


def _last_sight(seen: Circumstances, worker: str) -> str:
    """What to know of a worker that is lost."""
    holder = next((each for each in seen.workers if each.id == worker), None)
    if holder is None or not holder.lost:
        return ""
    return f"; that worker is lost, last seen at {seen.at(holder.seen_at)}"


def _expired(seen: Circumstances) -> _Answer | None:
    expires_at = seen.job.expires_at
    if expires_at is None or expires_at > seen.now:
        return None
    then = "a worker cancels it at its next sweep" if seen.live else "a worker will cancel it"
    sentence = f"it expired at {seen.at(expires_at)} and will not run: {then}"
    return _Answer(Reason.EXPIRED, sentence, {"expires_at": expires_at})


def _not_due(seen: Circumstances) -> _Answer | None:
    job, last = seen.job, seen.last_attempt
    if job.run_at <= seen.now:
        return None
    facts: dict[str, Any] = {"run_at": job.run_at}
    advice = f"; to run it now: holdfast jobs retry {job.id}"
    # Every end of an attempt raises the fence by one: after a snooze there is another one between.
    if last is None or last.fence != job.fence - 1 or last.error_code is None:
        snoozes = f", snoozed {_times(job.snoozes)}" if job.snoozes else ""
        return _Answer(
            Reason.NOT_DUE, f"it is not due until {seen.at(job.run_at)}{snoozes}{advice}", facts
        )
    if last.error_code == HANDED_BACK:
        return _handed_back(seen, last, advice)
    facts |= {
        "error_code": last.error_code,
        "failed_at": last.ended_at,
        "attempt": last.attempt,
        "max_attempts": job.max_attempts,
    }
    sentence = (
        f"it is waiting to retry: attempt {last.attempt} of {job.max_attempts} failed at"
        f" {seen.at(last.ended_at)} with {_error(last.error_code, last.error_text)};"
        f" the next is due at {seen.at(job.run_at)}{advice}"
    )
    return _Answer(Reason.WAITING_FOR_RETRY, sentence, facts)


def _handed_back(seen: Circumstances, last: Attempt, advice: str) -> _Answer:
    job = seen.job
    sentence = (
        f"it is waiting for a worker that accepts its arguments: on {last.worker},"
        f" {last.error_text}; handed back {job.releases} of at most {RELEASES_MAX} times,"
        f" due again at {seen.at(job.run_at)}{advice}"
    )
    facts = {
        "run_at": job.run_at,
        "worker": last.worker,
        "releases": job.releases,
        "releases_max": RELEASES_MAX,
        "error_text": last.error_text,
    }
    return _Answer(Reason.HANDED_BACK, sentence, facts)


def _queue_paused(seen: Circumstances) -> _Answer | None:
    queue = seen.queue
    if queue is None or queue.paused_at is None:
        return None
    sentence = (
        f"queue {queue.name} has been paused{_by(queue.paused_by)} since {seen.at(queue.paused_at)}"
    )
    sentence += _told(queue.paused_because)
    sentence += f"; resume it with: holdfast queues resume {pasted(queue.name)}"
    facts = {
        "paused_at": queue.paused_at,
        "paused_by": queue.paused_by,
        "paused_because": queue.paused_because,
    }
    return _Answer(Reason.QUEUE_PAUSED, sentence, facts)


def _breaker(seen: Circumstances) -> _Answer | None:
    breaker = seen.breaker
    if breaker is None or seen.suspect:  # suspects are not parked
        return None
    # What opened by itself closes by itself, if there is a worker that can send a job ahead.
    if not breaker.by_hand and not seen.able:
        return None
    facts = {
        "breaker": breaker.key,
        "opened_at": breaker.opened_at,
        "opened_by": breaker.opened_by,
        "opened_because": breaker.opened_because,
        "next_probe_at": breaker.next_probe_at,
        "parked": breaker.parked,
        "probes": seen.probes,
        "probes_free": PROBES_FREE_MAX,
    }
    if breaker.opened_at is not None:
        since = seen.at(breaker.opened_at)
        return _Answer(Reason.BREAKER_OPEN, _told_open(seen, breaker, since), facts)
    if seen.parked:
        return _Answer(Reason.BREAKER_UNPARKING, _told_unparking(breaker), facts)
    return None


def _told_open(seen: Circumstances, breaker: BreakerStatus, since: str) -> str:
    because = _told(breaker.opened_because)
    close = f"holdfast breakers close {pasted(breaker.key)}"
    if breaker.next_probe_at is None:
        return (
            f"breaker {breaker.key} was opened by hand{_by(breaker.opened_by)} at {since}{because};"
            f" its jobs stay parked until you close it: {close}"
        )
    return (
        f"breaker {breaker.key} has been open since {since}{because}; its jobs are parked, and it"
        f" sends one as a probe at {seen.at(breaker.next_probe_at)}: if that succeeds, the others"
        f" follow{_told_probes(seen.probes)}; to close it now: {close}"
    )


def _told_probes(probes: int) -> str:
    """What a job's own probes have come to, and what the next one costs."""
    if not probes:
        return ""
    sent = f"; this job was sent as a probe {_times(probes)} and failed"
    if probes < PROBES_FREE_MAX:
        return f"{sent}; after {PROBES_FREE_MAX} times, each failure uses up an attempt"
    return f"{sent}; each further failure uses up an attempt"


def _told_unparking(breaker: BreakerStatus) -> str:
    many = "or more " if breaker.parked >= PARKED_COUNTED_MAX else ""
    return (
        f"breaker {breaker.key} has closed, and workers are releasing the jobs it had parked;"
        f" {breaker.parked:,} {many}are still parked"
    )


def _no_worker(seen: Circumstances) -> _Answer | None:
    if seen.serving:
        return None
    queue = seen.job.queue
    lost = [each for each in seen.workers if each.lost and each.serves(queue)]
    sentence = f"no live worker serves queue {queue}"
    if seen.live:
        queues = {name for each in seen.live for name in each.queues or ()}
        others = _count(len(seen.live), "live worker")
        sentence += f": {others} for other queues ({', '.join(sorted(queues))})"
    if lost:
        last = max(lost, key=lambda each: each.seen_at)
        sentence += f"; {last.id}, which served it, was last seen at {seen.at(last.seen_at)}"
    sentence += f"; the job has been due since {seen.at(seen.job.run_at)}: start a worker"
    facts = {"live_workers": len(seen.live), "lost_workers": len(lost), "run_at": seen.job.run_at}
    return _Answer(Reason.NO_WORKER, sentence, facts)


def _unknown_name(seen: Circumstances) -> _Answer | None:
    if seen.able:
        return None
    versions = sorted({each.version for each in seen.serving})
    sentence = (
        f"{_count(len(seen.serving), 'live worker')} for queue {seen.job.queue}, but none knows the"
        f" job name {seen.job.name}: start one whose code defines it, or add it as an alias of the"
        " new name"
    )
    facts = {"workers": [each.id for each in seen.serving], "versions": versions}
    return _Answer(Reason.UNKNOWN_NAME, sentence, facts)


def _queue_closed(seen: Circumstances) -> _Answer | None:
    queue = seen.queue
    if queue is None or queue.running_max != 0:
        return None
    sentence = (
        f"queue {queue.name} can't run any jobs: its cap is 0;"
        f" to raise it: holdfast queues cap {pasted(queue.name)} N"
    )
    facts = {"queue_running": queue.running, "running_max": 0}
    return _Answer(Reason.QUEUE_FULL, sentence, {**_load(seen), **facts})


def _queue_full(seen: Circumstances) -> _Answer | None:
    queue = seen.queue
    if queue is None or queue.running_max is None or queue.running < queue.running_max:
        return None
    sentence = (
        f"queue {queue.name} has reached its cap: {queue.running:,} of at most"
        f" {queue.running_max:,} jobs are running, across all workers, and {_ahead(seen)};"
        f" to raise it: holdfast queues cap {pasted(queue.name)} N"
    )
    facts = {"queue_running": queue.running, "running_max": queue.running_max}
    return _Answer(Reason.QUEUE_FULL, sentence, {**_load(seen), **facts})


def _suspect(seen: Circumstances) -> _Answer | None:
    if not seen.suspect:
        return None
    sentence = (
        f"it is a suspect: its process died {_times(seen.job.crashes)} while running it, so it"
        " waits in quarantine for a process of its own, which a worker starts"
    )
    return _Answer(Reason.SUSPECT, sentence, {"crashes": seen.job.crashes, **_load(seen)})


def _busy(seen: Circumstances) -> _Answer | None:
    queue = seen.job.queue
    if any(each.has_room_for(queue) for each in seen.able):
        return None
    if any(queue in each.full_queues for each in seen.able):
        full = f"all slots for queue {queue} on {_workers_that_can(seen)} are taken"
    else:
        slots = sum(each.concurrency for each in seen.able)
        full = f"all {slots:,} slots of {_workers_that_can(seen)} are taken"
    sentence = (
        f"{full}{_last_told(seen)}, and {_ahead(seen)}; add slots, start more workers, or look for"
        " long-running jobs: holdfast jobs list --state running --queue"
        f" {shlex.quote(queue)}"
    )
    return _Answer(Reason.BUSY, sentence, _load(seen))


def _in_line(seen: Circumstances) -> _Answer:
    load = _load(seen)
    taken = (
        f"{load['running']:,} of {load['slots']:,} slots of {_workers_that_can(seen)}"
        f" are taken{_last_told(seen)}"
    )
    if seen.ahead:
        return _Answer(Reason.JOBS_AHEAD, f"{_ahead(seen)}; {taken}", load)
    sentence = (
        f"it has been due since {seen.at(seen.job.run_at)} and {_ahead(seen)}; {taken}: it should"
    )
    return _Answer(Reason.NEXT, f"{sentence} start any moment", load)


# Each is asked only if what stands above is not in the way: what a person has to undo comes before
# what workers do, and what keeps a job from being claimed before the line that it stands in.
_QUESTIONS = (
    _ended,
    _held,
    _expired,
    _not_due,
    _queue_paused,
    _queue_closed,
    _breaker,
    _no_worker,
    _unknown_name,
    _queue_full,
    _suspect,
    _busy,
)


def _load(seen: Circumstances) -> dict[str, Any]:
    return {
        "ahead": min(seen.ahead, AHEAD_COUNTED_MAX),
        "ahead_is_more": seen.ahead > AHEAD_COUNTED_MAX,
        "workers": [each.id for each in seen.able],
        "running": sum(each.running for each in seen.able),
        "slots": sum(each.concurrency for each in seen.able),
    }


def _ahead(seen: Circumstances) -> str:
    if not seen.ahead:
        return f"it is next in queue {seen.job.queue}"
    if seen.ahead > AHEAD_COUNTED_MAX:
        return f"more than {AHEAD_COUNTED_MAX:,} jobs are ahead of it in queue {seen.job.queue}"
    jobs = "1 job is" if seen.ahead == 1 else f"{seen.ahead:,} jobs are"
    return f"{jobs} ahead of it in queue {seen.job.queue}"


def _workers_that_can(seen: Circumstances) -> str:
    count = len(seen.able)
    return "the worker that can run it" if count == 1 else f"the {count:,} workers that can run it"


def _last_told(seen: Circumstances) -> str:
    """Workers tell their load at every renewal only."""
    latest = max(each.seen_at for each in seen.able)
    return f" (as of {relative(latest, seen.now)})"


def _by(who: str | None) -> str:
    return f" by {who}" if who else ""


def _told(because: str | None) -> str:
    return f": {because}" if because else ""


def _count(number: int, noun: str) -> str:
    return f"there is 1 {noun}" if number == 1 else f"there are {number:,} {noun}s"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"


def _error(code: str | None, text: str | None) -> str:
    """Code and the first line of the text, which often begins with the code."""
    first = (text or "").strip().split("\n")[0]
    if not code or first.startswith(code):
        return first or "an error without a message"
    return f"{code}: {first}" if first else code
