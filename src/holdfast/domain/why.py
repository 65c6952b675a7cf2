"""Why a job is not running: one code, one sentence, and the facts behind them. No I/O."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.endings import error_line
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
from holdfast.domain.texts import pasted, times
from holdfast.domain.times import exact, relative
from holdfast.domain.workers import WorkerStatus


class Reason(StrEnum):
    """The codes of `Why`. `docs/reference/cli.md` explains each one."""

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
    WAITING_FOR_LEASE = "waiting_for_lease"
    NO_WORKER = "no_worker"
    UNKNOWN_NAME = "unknown_name"
    QUEUE_FULL = "queue_full"
    SUSPECT = "suspect"
    BUSY = "busy"
    JOBS_AHEAD = "jobs_ahead"
    NEXT = "next"
    DUE = "due"


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job is not running: a code for scripts, a sentence for people, and the facts."""

    job_id: UUID
    code: Reason
    sentence: str
    facts: dict[str, Any]


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """What a store knows about a job and its surroundings, at one moment of its clock.

    `ahead` counts the due jobs of the queue that are claimed first, up to AHEAD_COUNTED_MAX + 1.
    `last_attempt` is the last one that has ended. `queue` is None if no operator paused or
    capped it, `breaker` if nothing is recorded about the job's breaker. A `parked` job waits for
    its breaker and was sent as a probe `probes` times.
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
        """The workers that take jobs; a quarantine process only helps one of them."""
        return [each for each in self.workers if not each.lost and not each.suspects_only]

    @property
    def serving(self) -> list[WorkerStatus]:
        return [each for each in self.live if each.serves(self.job.queue)]

    @property
    def able(self) -> list[WorkerStatus]:
        return [each for each in self.serving if self.job.name in each.names]

    @property
    def leasing(self) -> list[WorkerStatus]:
        """The API servers that lease it to workers over HTTP, if no other worker runs it."""
        servers = [each for each in self.live if each.is_server and self.job.name in each.names]
        return [] if self.able else servers

    def at(self, moment: datetime) -> str:
        return f"{exact(moment)} ({relative(moment, self.now)})"

    def why(self, code: Reason, sentence: str, /, **facts: Any) -> Why:
        job = self.job
        about = {"state": job.state, "queue": job.queue, "name": job.name, **facts}
        return Why(job_id=job.id, code=code, sentence=sentence, facts=about)


def explain(seen: Circumstances) -> Why:
    """Ask what may stand in the way, one question at a time; the first that does is the answer."""
    answers = (ask(seen) for ask in _QUESTIONS)
    return next((answer for answer in answers if answer is not None), None) or _in_line(seen)


def explain_alone(job: Job, now: datetime, caveat: str) -> Why:
    """Explain from the job alone, for a store that knows nothing about its surroundings."""
    seen = Circumstances(job=job, now=now, suspect=False, ahead=0, last_attempt=None, workers=())
    if job.state.ended:
        return seen.why(Reason.ENDED, _ended_as(job), error_code=job.error_code)
    due = f"it has been due since {seen.at(job.run_at)}"
    found = _leased(seen) or _not_due(seen) or seen.why(Reason.DUE, due, run_at=job.run_at)
    return found if found.code is Reason.LEASED else _add(found, caveat)


def _add(why: Why, more: str) -> Why:
    return msgspec.structs.replace(why, sentence=f"{why.sentence}; {more}")


def _ended(seen: Circumstances) -> Why | None:
    job = seen.job
    if job.finished_at is None:
        return None
    facts = {
        "ended_at": job.finished_at,
        "attempts": job.attempts,
        "max_attempts": job.max_attempts,
        "error_code": job.error_code,
    }
    ended_at = seen.at(job.finished_at)
    if job.state is State.CANCELED and job.error_code == "EXPIRED" and job.expires_at:
        expired = f"it expired at {seen.at(job.expires_at)} before it ran"
        sentence = f"{expired}, and was canceled at {ended_at}"
        return seen.why(Reason.EXPIRED, sentence, **facts, expires_at=job.expires_at)
    sentence = _ended_as(job, f" at {ended_at}")
    if job.state is not State.SUCCEEDED:
        sentence += f"; to enqueue it again: holdfast jobs retry {job.id}"
    return seen.why(Reason.ENDED, sentence, **facts)


def _ended_as(job: Job, when: str = "") -> str:
    sentence = f"it ended as {job.state}{when}"
    if job.state is State.SUCCEEDED:
        return sentence
    return f"{sentence}: {error_line(job.error_code, job.error_text)}"


def _running(seen: Circumstances) -> Why | None:
    leased = _leased(seen)
    if leased is None or leased.code is Reason.LEASED:
        return leased
    if seen.live:
        return _add(leased, "a live worker reclaims the job within seconds")
    return _add(leased, "there is no live worker to reclaim the job: start one")


def _leased(seen: Circumstances) -> Why | None:
    job = seen.job
    if job.lease_owner is None or job.lease_expires_at is None:
        return None
    code, until = Reason.LEASED, seen.at(job.lease_expires_at)
    sentence = f"it is leased by {job.lease_owner} until {until}"
    if job.lease_expires_at <= seen.now:
        code = Reason.LEASE_EXPIRED
        sentence = f"the lease of {job.lease_owner} expired at {until}"
    sentence += f": attempt {job.attempts} of {job.max_attempts}"
    if job.started_at:
        sentence += f", started at {seen.at(job.started_at)}"
    owner = next((each for each in seen.workers if each.id == job.lease_owner), None)
    if owner is not None and owner.lost:
        sentence += f"; that worker is lost, last seen at {seen.at(owner.seen_at)}"
    return seen.why(
        code,
        sentence,
        worker=job.lease_owner,
        lease_expires_at=job.lease_expires_at,
        started_at=job.started_at,
        attempt=job.attempts,
        max_attempts=job.max_attempts,
    )


def _expired(seen: Circumstances) -> Why | None:
    expires_at = seen.job.expires_at
    if expires_at is None or expires_at > seen.now:
        return None
    then = "a worker cancels it at its next sweep" if seen.live else "a worker will cancel it"
    sentence = f"it expired at {seen.at(expires_at)} and will not run: {then}"
    return seen.why(Reason.EXPIRED, sentence, expires_at=expires_at)


def _not_due(seen: Circumstances) -> Why | None:
    job, last = seen.job, seen.last_attempt
    if job.run_at <= seen.now:
        return None
    due = seen.at(job.run_at)
    advice = f"; to run it now: holdfast jobs retry {job.id}"
    # Every end of an attempt raises the fence by one, so a snooze leaves a gap after a failure.
    if last is None or last.fence != job.fence - 1 or last.error_code is None:
        snoozes = f", snoozed {times(job.snoozes)}" if job.snoozes else ""
        sentence = f"it is not due until {due}{snoozes}{advice}"
        return seen.why(Reason.NOT_DUE, sentence, run_at=job.run_at)
    if last.error_code == HANDED_BACK:
        return seen.why(
            Reason.HANDED_BACK,
            f"it is waiting for a worker that can run it: on {last.worker},"
            f" {last.error_text}; handed back {job.releases} of at most {RELEASES_MAX} times,"
            f" due again at {due}{advice}",
            run_at=job.run_at,
            worker=last.worker,
            releases=job.releases,
            releases_max=RELEASES_MAX,
            error_text=last.error_text,
        )
    return seen.why(
        Reason.WAITING_FOR_RETRY,
        f"it is waiting to retry: attempt {last.attempt} of {job.max_attempts} failed at"
        f" {seen.at(last.ended_at)} with {error_line(last.error_code, last.error_text)};"
        f" the next is due at {due}{advice}",
        run_at=job.run_at,
        error_code=last.error_code,
        failed_at=last.ended_at,
        attempt=last.attempt,
        max_attempts=job.max_attempts,
    )


def _queue_paused(seen: Circumstances) -> Why | None:
    queue = seen.queue
    if queue is None or queue.paused_at is None:
        return None
    return seen.why(
        Reason.QUEUE_PAUSED,
        f"queue {queue.name} has been paused{_by(queue.paused_by)} since"
        f" {seen.at(queue.paused_at)}{_because(queue.paused_because)}; resume it with: holdfast"
        f" queues resume {pasted(queue.name)}",
        paused_at=queue.paused_at,
        paused_by=queue.paused_by,
        paused_because=queue.paused_because,
    )


def _breaker(seen: Circumstances) -> Why | None:
    breaker = seen.breaker
    if breaker is None or seen.suspect:  # suspects are not parked
        return None
    # A breaker that was not opened by hand closes once a worker can send a probe.
    if not breaker.by_hand and not seen.able and not seen.leasing:
        return None
    if breaker.opened_at is not None:
        code, sentence = Reason.BREAKER_OPEN, _open(seen, breaker, seen.at(breaker.opened_at))
    elif seen.parked:
        code, sentence = Reason.BREAKER_UNPARKING, _unparking(breaker)
    else:
        return None
    return seen.why(
        code,
        sentence,
        breaker=breaker.key,
        opened_at=breaker.opened_at,
        opened_by=breaker.opened_by,
        opened_because=breaker.opened_because,
        next_probe_at=breaker.next_probe_at,
        parked=breaker.parked,
        probes=seen.probes,
        probes_free=PROBES_FREE_MAX,
    )


def _open(seen: Circumstances, breaker: BreakerStatus, since: str) -> str:
    because = _because(breaker.opened_because)
    close = f"holdfast breakers close {pasted(breaker.key)}"
    if breaker.next_probe_at is None:
        return (
            f"breaker {breaker.key} was opened by hand{_by(breaker.opened_by)} at {since}{because};"
            f" its jobs stay parked until you close it: {close}"
        )
    return (
        f"breaker {breaker.key} has been open since {since}{because}; its jobs are parked, and it"
        f" sends one as a probe at {seen.at(breaker.next_probe_at)}: if that succeeds, the others"
        f" follow{_own_probes(seen.probes)}; to close it now: {close}"
    )


def _own_probes(probes: int) -> str:
    """What came of this job's own probes, and what the next one costs."""
    if not probes:
        return ""
    sent = f"; this job was sent as a probe {times(probes)} and failed"
    if probes < PROBES_FREE_MAX:
        return f"{sent}; after {PROBES_FREE_MAX} times, each failure uses up an attempt"
    return f"{sent}; each further failure uses up an attempt"


def _unparking(breaker: BreakerStatus) -> str:
    many = "or more " if breaker.parked >= PARKED_COUNTED_MAX else ""
    return (
        f"breaker {breaker.key} has closed, and workers are releasing the jobs it had parked;"
        f" {breaker.parked:,} {many}are still parked"
    )


def _waiting_for_lease(seen: Circumstances) -> Why | None:
    if not seen.leasing:
        return None
    if (full := _queue_full(seen)) is not None:
        return full
    job = seen.job
    sentence = (
        f"workers lease {job.name} over HTTP, and none has asked for this job since it became due"
        f" at {seen.at(job.run_at)}; {_ahead(seen)}: start a worker that leases this name from"
        f" queue {job.queue}, or more of them"
    )
    servers = [each.id for each in seen.leasing]
    return seen.why(
        Reason.WAITING_FOR_LEASE, sentence, run_at=job.run_at, servers=servers, ahead=seen.ahead
    )


def _no_worker(seen: Circumstances) -> Why | None:
    if seen.serving:
        return None
    queue = seen.job.queue
    lost = [each for each in seen.workers if each.lost and each.serves(queue)]
    sentence = f"no live worker serves queue {queue}"
    if others := [each for each in seen.live if not each.is_server]:
        queues = {name for each in others for name in each.queues or ()}
        sentence += f": {_live_workers(others)} for other queues ({', '.join(sorted(queues))})"
    if lost:
        last = max(lost, key=lambda each: each.seen_at)
        sentence += f"; {last.id}, which served it, was last seen at {seen.at(last.seen_at)}"
    sentence += f"; the job has been due since {seen.at(seen.job.run_at)}: start a worker"
    facts = {"live_workers": len(others), "lost_workers": len(lost), "run_at": seen.job.run_at}
    return seen.why(Reason.NO_WORKER, sentence, **facts)


def _unknown_name(seen: Circumstances) -> Why | None:
    if seen.able:
        return None
    return seen.why(
        Reason.UNKNOWN_NAME,
        f"{_live_workers(seen.serving)} for queue {seen.job.queue}, but none knows the job name"
        f" {seen.job.name}: start one whose code defines it, or add it as an alias of the new name",
        workers=[each.id for each in seen.serving],
        versions=sorted({each.version for each in seen.serving}),
    )


def _queue_closed(seen: Circumstances) -> Why | None:
    if seen.queue is None or seen.queue.running_max != 0:
        return None
    return _capped(seen, seen.queue, "can't run any jobs: its cap is 0")


def _queue_full(seen: Circumstances) -> Why | None:
    queue = seen.queue
    if queue is None or queue.running_max is None or queue.running < queue.running_max:
        return None
    full = (
        f"has reached its cap: {queue.running:,} of at most {queue.running_max:,} jobs are running,"
        f" across all workers, and {_ahead(seen)}"
    )
    return _capped(seen, queue, full)


def _capped(seen: Circumstances, queue: QueueStatus, problem: str) -> Why:
    raise_it = f"to raise it: holdfast queues cap {pasted(queue.name)} N"
    facts = {"queue_running": queue.running, "running_max": queue.running_max, **_load(seen)}
    return seen.why(Reason.QUEUE_FULL, f"queue {queue.name} {problem}; {raise_it}", **facts)


def _suspect(seen: Circumstances) -> Why | None:
    if not seen.suspect:
        return None
    sentence = (
        f"it is a suspect: its process died {times(seen.job.crashes)} while running it, so it"
        " waits in quarantine for a process of its own, which a worker starts"
    )
    return seen.why(Reason.SUSPECT, sentence, crashes=seen.job.crashes, **_load(seen))


def _busy(seen: Circumstances) -> Why | None:
    queue = seen.job.queue
    if any(each.has_room_for(queue) for each in seen.able):
        return None
    if any(queue in each.full_queues for each in seen.able):
        full = f"all slots for queue {queue} on {_able_workers(seen)} are taken"
    else:
        slots = sum(each.concurrency for each in seen.able)
        full = f"all {slots:,} slots of {_able_workers(seen)} are taken"
    sentence = (
        f"{full}{_as_of(seen)}, and {_ahead(seen)}; add slots, start more workers, or look for"
        f" long-running jobs: holdfast jobs list --state running --queue {shlex.quote(queue)}"
    )
    return seen.why(Reason.BUSY, sentence, **_load(seen))


def _in_line(seen: Circumstances) -> Why:
    load = _load(seen)
    taken = (
        f"{load['running']:,} of {load['slots']:,} slots of {_able_workers(seen)}"
        f" are taken{_as_of(seen)}"
    )
    if seen.ahead:
        return seen.why(Reason.JOBS_AHEAD, f"{_ahead(seen)}; {taken}", **load)
    due = f"it has been due since {seen.at(seen.job.run_at)}"
    sentence = f"{due} and {_ahead(seen)}; {taken}: it should start any moment"
    return seen.why(Reason.NEXT, sentence, **load)


# In order: what a person has to undo comes before what workers do, and what keeps a job from being
# claimed before the line that it stands in.
_QUESTIONS = (
    _ended,
    _running,
    _expired,
    _not_due,
    _queue_paused,
    _queue_closed,
    _breaker,
    _waiting_for_lease,
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
    queue = seen.job.queue
    if not seen.ahead:
        return f"it is next in queue {queue}"
    if seen.ahead > AHEAD_COUNTED_MAX:
        return f"more than {AHEAD_COUNTED_MAX:,} jobs are ahead of it in queue {queue}"
    jobs = "1 job is" if seen.ahead == 1 else f"{seen.ahead:,} jobs are"
    return f"{jobs} ahead of it in queue {queue}"


def _able_workers(seen: Circumstances) -> str:
    count = len(seen.able)
    return "the worker that can run it" if count == 1 else f"the {count:,} workers that can run it"


def _live_workers(workers: Sequence[WorkerStatus]) -> str:
    count = len(workers)
    return "there is 1 live worker" if count == 1 else f"there are {count:,} live workers"


def _as_of(seen: Circumstances) -> str:
    """Workers report their load only when they renew."""
    latest = max(each.seen_at for each in seen.able)
    return f" (as of {relative(latest, seen.now)})"


def _by(who: str | None) -> str:
    return f" by {who}" if who else ""


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""
