"""Are there workers, and does one of them take every waiting job?"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from holdfast.domain.diagnosis.deploys import judge_handed_back, judge_versions
from holdfast.domain.diagnosis.findings import Check, Finding, critical, fine, info, warning
from holdfast.domain.diagnosis.messengers import judge_messengers
from holdfast.domain.diagnosis.vitals import Capped, Due, Stuck, Workload
from holdfast.domain.diagnosis.words import at_least, counted, lasting, listed
from holdfast.domain.limits import DUE_COUNTED_MAX, PARKED_COUNTED_MAX, STUCK_COUNTED_MAX
from holdfast.domain.queues import is_pattern
from holdfast.domain.texts import pasted
from holdfast.domain.times import exact, relative
from holdfast.domain.workers import WorkerStatus, serving

FINDINGS_MAX: Final = 10  # of one kind
FULL_SECONDS_MAX: Final = 300.0  # that due jobs may wait for a slot without a warning
START = "holdfast worker MODULE:NAME"


def judge_work(load: Workload) -> Iterator[Finding]:
    live = [each for each in load.workers if not each.lost]
    yield from judge_messengers(load.workers)
    yield _workers(load, live)
    here = _without_leased(load, live)
    if live:
        yield from judge_versions(load, live)
        known = "workers know the names of all due jobs that were checked"
        yield from _some(Check.NAMES, _names(here, live), known, "name")
        free = "no due job is waiting for a free slot"
        yield from _some(Check.SLOTS, _slots(here, live), free, "queue")
    accepted = "no waiting job was handed back for its arguments"
    yield from _some(Check.ARGUMENTS, judge_handed_back(load), accepted, "name")
    yield _leases(load.stuck, live)
    served = "every queue with due jobs has a worker"
    yield from _some(Check.QUEUES, _queues(here, live), served, "queue")
    yield from _some(Check.PAUSED, _paused(load), "no queue is paused", "queue")
    yield from _some(Check.CAPS, _caps(load), "no cap keeps due jobs waiting", "queue")
    yield from _some(Check.BREAKERS, _breakers(load), "no breaker is open", "breaker")


def _without_leased(load: Workload, live: Sequence[WorkerStatus]) -> Workload:
    """Leave out due jobs that workers lease over HTTP: nobody knows whether one will ask."""
    own = {name for each in live if not each.is_server for name in each.names}
    leased = {name for each in live if each.is_server for name in each.names} - own
    return msgspec.structs.replace(load, due=[each for each in load.due if each.name not in leased])


def _some(code: Check, findings: Iterable[Finding], none: str, noun: str) -> Iterator[Finding]:
    """The first findings of a check, or that there are none."""
    found = list(findings)
    yield from found[:FINDINGS_MAX] or [fine(code, none)]
    if (others := len(found) - FINDINGS_MAX) > 0:
        yield warning(code, f"there are {counted(others, noun)} more like this")


def _workers(load: Workload, live: Sequence[WorkerStatus]) -> Finding:
    lost = [each for each in load.workers if each.lost]
    facts: dict[str, Any] = {
        "live": {each.id: each.unseen_seconds for each in live},
        "lost": {each.id: each.unseen_seconds for each in lost},
    }
    if lost:
        names = [f"{each.id} ({relative(each.seen_at, load.now)})" for each in lost]
        return warning(
            Check.WORKERS,
            f"{counted(len(lost), 'worker')} disappeared without shutting down, last seen:"
            f" {listed(names)}; {counted(len(live), 'worker')} live. Other workers reclaim their"
            " jobs, which counts as a crash",
            advice="find out what killed it: out of memory, a machine failure, kill -9",
            command="holdfast workers --app MODULE:NAME",
            **facts,
        )
    if not live:
        return info(Check.WORKERS, "there are no live workers", "start one", START, **facts)
    unseen = [max(each.unseen_seconds, 0.0) for each in live]
    seen = lasting(max(unseen))
    if len(live) > 1:
        seen = f"{lasting(min(unseen))} to {seen}"
    return fine(Check.WORKERS, f"{counted(len(live), 'worker')} live, seen {seen} ago", **facts)


def _leases(stuck: Stuck, live: Sequence[WorkerStatus]) -> Finding:
    if not stuck.jobs:
        return fine(Check.LEASES, "no expired lease is waiting to be reclaimed")
    workers = list(stuck.workers)
    return critical(
        Check.LEASES,
        f"{at_least(stuck.jobs, STUCK_COUNTED_MAX, 'lease')} expired up to"
        f" {lasting(stuck.oldest_seconds)} ago, and nobody reclaimed the job; leased by"
        f" {listed(workers)}",
        advice="look for sweep_failed in the workers' logs"
        if live
        else "start a worker: it reclaims them within seconds",
        command=None if live else START,
        jobs=stuck.jobs,
        oldest_seconds=stuck.oldest_seconds,
        workers=workers,
    )


def _queues(load: Workload, live: Sequence[WorkerStatus]) -> Iterator[Finding]:
    # A queue that a person closed waits for that person, not for a worker.
    closed = {each.queue for each in load.paused}
    closed |= {each.queue for each in load.capped if not each.running_max}
    for queue, due in _by_queue(load.due).items():
        if queue in closed or serving(live, queue):
            continue
        jobs, oldest = _total(due)
        yield critical(
            Check.QUEUES,
            f"no live worker serves queue {queue}, where {_waiting(due)}",
            advice="start a worker for it",
            command=_start_for(queue),
            queue=queue,
            jobs=jobs,
            oldest_seconds=oldest,
        )


def _names(load: Workload, live: Sequence[WorkerStatus]) -> Iterator[Finding]:
    for each in load.due:
        able = serving(live, each.queue)
        if not able or any(each.name in worker.names for worker in able):
            continue
        yield critical(
            Check.NAMES,
            f"no live worker of queue {each.queue} knows the job name {each.name}, and"
            f" {_waiting([each])}",
            advice="start a worker whose code defines it, or add it as an alias of the new"
            f" name: @hf.job(aliases=[{each.name!r}])",
            queue=each.queue,
            name=each.name,
            jobs=each.jobs,
        )


def _slots(load: Workload, live: Sequence[WorkerStatus]) -> Iterator[Finding]:
    stopped = {each.queue for each in load.paused}
    stopped |= {each.queue for each in load.capped if each.is_reached}
    for queue, due in _by_queue(load.due).items():
        takers = serving(live, queue)
        has_room = any(each.has_room_for(queue) for each in takers)
        if not takers or queue in stopped or has_room:
            continue
        jobs, oldest = _total(due)
        report = info if oldest < FULL_SECONDS_MAX else warning
        yield report(
            Check.SLOTS,
            f"{counted(len(takers), 'worker')} of queue {queue}"
            f" {'has' if len(takers) == 1 else 'have'} no free slot, and {_waiting(due)}",
            advice="raise --concurrency or start more workers; or look for long-running jobs",
            command=f"holdfast jobs list --app MODULE:NAME --state running --queue"
            f" {shlex.quote(queue)}",
            queue=queue,
            jobs=jobs,
            oldest_seconds=oldest,
            workers=[each.id for each in takers],
        )


def _by_queue(due: Iterable[Due]) -> dict[str, list[Due]]:
    found: dict[str, list[Due]] = defaultdict(list)
    for each in due:
        found[each.queue].append(each)
    return found


def _total(due: Sequence[Due]) -> tuple[int, float]:
    return sum(each.jobs for each in due), max(each.oldest_seconds for each in due)


def _waiting(due: Sequence[Due]) -> str:
    jobs, oldest = _total(due)
    wait = "waits" if jobs == 1 else "wait"
    return f"{at_least(jobs, DUE_COUNTED_MAX, 'job')} {wait}, the oldest for {lasting(oldest)}"


def _paused(load: Workload) -> Iterator[Finding]:
    for each in load.paused:
        due = [one for one in load.due if one.queue == each.queue]
        jobs = sum(one.jobs for one in due)
        by = f" by {each.by}" if each.by else ""
        because = f" ({each.because})" if each.because else ""
        waiting = f"{at_least(jobs, DUE_COUNTED_MAX, 'due job')} wait{'s' if jobs == 1 else ''}"
        report = warning if due else info
        yield report(
            Check.PAUSED,
            f"queue {each.queue} has been paused{by}{because} since {exact(each.since)}"
            f" ({relative(each.since, load.now)}): {waiting if due else 'no due job is waiting'}",
            advice="when the reason is gone, resume it",
            command=f"holdfast queues resume --app MODULE:NAME {pasted(each.queue)}",
            queue=each.queue,
            by=each.by,
            because=each.because,
            jobs=jobs,
        )


def _caps(load: Workload) -> Iterator[Finding]:
    due = _by_queue(load.due)
    for each in load.capped:
        if each.is_reached and each.queue in due:
            yield _cap(each, due[each.queue])


def _cap(capped: Capped, due: Sequence[Due]) -> Finding:
    none = capped.running_max == 0
    cap = (
        f"queue {capped.queue} can't run any jobs: its cap is 0"
        if none
        else f"queue {capped.queue} has reached its cap: {capped.running:,} of at most"
        f" {capped.running_max:,} jobs are running"
    )
    jobs, oldest = _total(due)
    report = warning if none else info
    return report(
        Check.CAPS,
        f"{cap}; {_waiting(due)}",
        advice="raise the cap, or remove it with none",
        command=f"holdfast queues cap --app MODULE:NAME {pasted(capped.queue)} N",
        queue=capped.queue,
        running=capped.running,
        running_max=capped.running_max,
        jobs=jobs,
        oldest_seconds=oldest,
    )


def _breakers(load: Workload) -> Iterator[Finding]:
    for each in load.breakers:
        if each.opened_at is None:
            continue
        by = f" by {each.opened_by}" if each.opened_by else ""
        because = f" ({each.opened_because})" if each.opened_because else ""
        sentence = (
            f"breaker {each.key} was opened{by}{because} at {exact(each.opened_at)}"
            f" ({relative(each.opened_at, load.now)}) and has parked"
            f" {at_least(each.parked, PARKED_COUNTED_MAX, 'job')}"
        )
        if each.next_probe_at is not None:
            sentence += f"; the next probe is {relative(each.next_probe_at, load.now)}"
        yield warning(
            Check.BREAKERS,
            sentence,
            advice="check that the dependency works again; to close it by hand",
            command=f"holdfast breakers close --app MODULE:NAME {pasted(each.key)}",
            key=each.key,
            parked=each.parked,
            because=each.opened_because,
        )


def _start_for(queue: str) -> str:
    """A queue that --queues can't name needs a worker for all queues."""
    listable = queue == queue.strip() and not is_pattern(queue) and not {",", ":"} & set(queue)
    return f"{START} --queues {shlex.quote(queue)}" if listable and queue else START
