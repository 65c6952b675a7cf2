"""Are there workers, and is all that waits taken by one of them?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from holdfast.domain.diagnosis.findings import Check, Finding, Severity, fine
from holdfast.domain.diagnosis.vitals import Capped, Due, Stuck, Workload
from holdfast.domain.diagnosis.words import at_least, counted, for_shell, lasting, listed
from holdfast.domain.limits import DUE_COUNTED_MAX, PARKED_COUNTED_MAX, STUCK_COUNTED_MAX
from holdfast.domain.texts import pasted
from holdfast.domain.times import exact, relative
from holdfast.domain.workers import WorkerStatus

FINDINGS_MAX: Final = 10  # of one kind
FULL_SECONDS_MAX: Final = 300.0  # for which due jobs may wait for a slot without a warning
START = "holdfast worker MODULE:NAME"


def judge_work(load: Workload) -> Iterator[Finding]:
    live = [each for each in load.workers if not each.lost]
    yield _workers(load, live)
    if live:
        yield _versions(live)
        yield from _names(load, live)
    yield _leases(load.stuck, live)
    yield from _queues(load, live)
    yield from _slots(load, live)
    yield from _paused(load)
    yield from _caps(load)
    yield from _breakers(load)


def _workers(load: Workload, live: Sequence[WorkerStatus]) -> Finding:
    lost = [each for each in load.workers if each.lost]
    facts = {
        "live": {each.id: each.unseen_seconds for each in live},
        "lost": {each.id: each.unseen_seconds for each in lost},
    }
    if lost:
        names = [f"{each.id} ({relative(each.seen_at, load.now)})" for each in lost]
        return Finding(
            code=Check.WORKERS,
            severity=Severity.WARNING,
            sentence=f"{counted(len(lost), 'worker')} disappeared without shutting down, last seen:"
            f" {listed(names)}; {counted(len(live), 'worker')} live. Other workers reclaim their"
            " jobs, which counts as a crash",
            advice="find out what killed it: memory, the machine, kill -9",
            command="holdfast workers --app MODULE:NAME",
            facts=facts,
        )
    if not live:
        return Finding(
            code=Check.WORKERS,
            severity=Severity.INFO,
            sentence="there are no live workers",
            advice="start one",
            command=START,
            facts=facts,
        )
    latest = min(each.unseen_seconds for each in live)
    oldest = max(each.unseen_seconds for each in live)
    seen = lasting(max(oldest, 0.0))
    if len(live) > 1:
        seen = f"{lasting(max(latest, 0.0))} to {seen}"
    return fine(Check.WORKERS, f"{counted(len(live), 'worker')} live, seen {seen} ago", **facts)


def _versions(live: Sequence[WorkerStatus]) -> Finding:
    by_version = defaultdict(list)
    for each in live:
        by_version[each.version].append(each.id)
    versions = sorted(by_version)
    if len(versions) == 1:
        return fine(Check.VERSIONS, f"all workers run version {versions[0]}", versions=versions)
    told = ", ".join(f"{version} ({len(by_version[version]):,})" for version in versions)
    return Finding(
        code=Check.VERSIONS,
        severity=Severity.WARNING,
        sentence=f"workers run different versions: {told}",
        advice="if no deploy is in progress, restart the old ones",
        command="holdfast workers --app MODULE:NAME",
        facts={"versions": dict(by_version)},
    )


def _leases(stuck: Stuck, live: Sequence[WorkerStatus]) -> Finding:
    if not stuck.jobs:
        return fine(Check.LEASES, "no expired lease is waiting to be reclaimed")
    workers = list(stuck.workers)
    sentence = (
        f"{at_least(stuck.jobs, STUCK_COUNTED_MAX, 'lease')} expired and nobody reclaimed the job,"
        f" for up to {lasting(stuck.oldest_seconds)}; leased by {listed(workers)}"
    )
    return Finding(
        code=Check.LEASES,
        severity=Severity.CRITICAL,
        sentence=sentence,
        advice="look for sweep_failed in the workers' logs"
        if live
        else "start a worker: it reclaims them within seconds",
        command=None if live else START,
        facts={"jobs": stuck.jobs, "oldest_seconds": stuck.oldest_seconds, "workers": workers},
    )


def _queues(load: Workload, live: Sequence[WorkerStatus]) -> Iterator[Finding]:
    # What a person has closed waits for that person, not for a worker.
    closed = {each.queue for each in load.paused}
    closed |= {each.queue for each in load.capped if not each.running_max}
    unserved = {
        queue: due
        for queue, due in _by_queue(load.due).items()
        if queue not in closed and not _serving(live, queue)
    }
    if not unserved:
        yield fine(Check.QUEUES, "every queue with due jobs has a worker")
    for queue, due in list(unserved.items())[:FINDINGS_MAX]:
        jobs, oldest = _total(due)
        yield Finding(
            code=Check.QUEUES,
            severity=Severity.CRITICAL,
            sentence=f"no live worker serves queue {queue}, where {_waiting(due)}",
            advice="start a worker for it",
            command=_start_for(queue),
            facts={"queue": queue, "jobs": jobs, "oldest_seconds": oldest},
        )
    yield from _and_others(Check.QUEUES, "queue", len(unserved))


def _names(load: Workload, live: Sequence[WorkerStatus]) -> Iterator[Finding]:
    unknown = []
    for each in load.due:
        serving = _serving(live, each.queue)
        if serving and not any(each.name in worker.names for worker in serving):
            unknown.append(each)
    if not unknown:
        yield fine(Check.NAMES, "workers know the names of all due jobs that were checked")
    for each in unknown[:FINDINGS_MAX]:
        yield Finding(
            code=Check.NAMES,
            severity=Severity.CRITICAL,
            sentence=f"no live worker of queue {each.queue} knows the job name {each.name}, which"
            f" {at_least(each.jobs, DUE_COUNTED_MAX, 'job')} there"
            f" ha{'s' if each.jobs == 1 else 've'}, the oldest for {lasting(each.oldest_seconds)}",
            advice="start a worker whose code defines it, or add it as an alias of the new"
            f" name: @hf.job(aliases=[{each.name!r}])",
            facts={"queue": each.queue, "name": each.name, "jobs": each.jobs},
        )
    yield from _and_others(Check.NAMES, "name", len(unknown))


def _slots(load: Workload, live: Sequence[WorkerStatus]) -> Iterator[Finding]:
    stopped = {each.queue for each in load.paused}
    stopped |= {each.queue for each in load.capped if each.is_reached}
    full = []
    for queue, due in _by_queue(load.due).items():
        serving = _serving(live, queue)
        has_room = any(each.has_room_for(queue) for each in serving)
        if serving and queue not in stopped and not has_room:
            full.append((queue, due, serving))
    if live and not full:
        yield fine(Check.SLOTS, "no due job is waiting for a free slot")
    for queue, due, serving in full[:FINDINGS_MAX]:
        jobs, oldest = _total(due)
        yield Finding(
            code=Check.SLOTS,
            severity=Severity.INFO if oldest < FULL_SECONDS_MAX else Severity.WARNING,
            sentence=f"{counted(len(serving), 'worker')} of queue {queue} ha"
            f"{'s' if len(serving) == 1 else 've'} no free slot, and {_waiting(due)}",
            advice="raise --concurrency or start more workers; or look for long-running jobs",
            command=f"holdfast jobs list --app MODULE:NAME --state running --queue"
            f" {for_shell(queue)}",
            facts={
                "queue": queue,
                "jobs": jobs,
                "oldest_seconds": oldest,
                "workers": [each.id for each in serving],
            },
        )
    yield from _and_others(Check.SLOTS, "queue", len(full))


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


def _serving(live: Sequence[WorkerStatus], queue: str) -> list[WorkerStatus]:
    return [each for each in live if not each.suspects_only and each.serves(queue)]


def _paused(load: Workload) -> Iterator[Finding]:
    if not load.paused:
        yield fine(Check.PAUSED, "no queue is paused")
    for each in load.paused[:FINDINGS_MAX]:
        due = [one for one in load.due if one.queue == each.queue]
        jobs = sum(one.jobs for one in due)
        by = f" by {each.by}" if each.by else ""
        because = f" ({each.because})" if each.because else ""
        waiting = f"{at_least(jobs, DUE_COUNTED_MAX, 'due job')} wait{'s' if jobs == 1 else ''}"
        yield Finding(
            code=Check.PAUSED,
            severity=Severity.WARNING if due else Severity.INFO,
            sentence=f"queue {each.queue} has been paused{by}{because} since {exact(each.since)}"
            f" ({relative(each.since, load.now)}): {waiting if due else 'no due job is waiting'}",
            advice="when the reason is gone, resume it",
            command=f"holdfast queues resume --app MODULE:NAME {pasted(each.queue)}",
            facts={"queue": each.queue, "by": each.by, "because": each.because, "jobs": jobs},
        )
    yield from _and_others(Check.PAUSED, "queue", len(load.paused))


def _caps(load: Workload) -> Iterator[Finding]:
    due = _by_queue(load.due)
    reached = [each for each in load.capped if each.is_reached and each.queue in due]
    if not reached:
        yield fine(Check.CAPS, "no cap keeps due jobs waiting")
    for each in reached[:FINDINGS_MAX]:
        yield _cap(each, due[each.queue])
    yield from _and_others(Check.CAPS, "queue", len(reached))


def _cap(capped: Capped, due: Sequence[Due]) -> Finding:
    none = capped.running_max == 0
    cap = (
        f"queue {capped.queue} can't run any jobs: its cap is 0"
        if none
        else f"queue {capped.queue} has reached its cap: {capped.running:,} of at most"
        f" {capped.running_max:,} jobs are running"
    )
    jobs, oldest = _total(due)
    return Finding(
        code=Check.CAPS,
        severity=Severity.WARNING if none else Severity.INFO,
        sentence=f"{cap}; {_waiting(due)}",
        advice="raise the cap, or remove it with none",
        command=f"holdfast queues cap --app MODULE:NAME {pasted(capped.queue)} N",
        facts={
            "queue": capped.queue,
            "running": capped.running,
            "running_max": capped.running_max,
            "jobs": jobs,
            "oldest_seconds": oldest,
        },
    )


def _breakers(load: Workload) -> Iterator[Finding]:
    opened = [each for each in load.breakers if each.opened_at is not None]
    if not opened:
        yield fine(Check.BREAKERS, "no breaker is open")
    for each in opened[:FINDINGS_MAX]:
        assert each.opened_at is not None
        by = f" by {each.opened_by}" if each.opened_by else ""
        because = f" ({each.opened_because})" if each.opened_because else ""
        sentence = (
            f"breaker {each.key} was opened{by}{because} at {exact(each.opened_at)}"
            f" ({relative(each.opened_at, load.now)}) and has parked"
            f" {at_least(each.parked, PARKED_COUNTED_MAX, 'job')}"
        )
        if each.next_probe_at is not None:
            sentence += f"; the next probe is {relative(each.next_probe_at, load.now)}"
        yield Finding(
            code=Check.BREAKERS,
            severity=Severity.WARNING,
            sentence=sentence,
            advice="check that the dependency works again; to close it by hand",
            command=f"holdfast breakers close --app MODULE:NAME {pasted(each.key)}",
            facts={"key": each.key, "parked": each.parked, "because": each.opened_because},
        )
    yield from _and_others(Check.BREAKERS, "breaker", len(opened))


def _start_for(queue: str) -> str:
    """What a list of queues could not name is served by a worker for all of them."""
    listable = queue == queue.strip() and queue != "*" and not {",", ":"} & set(queue)
    return f"{START} --queues {for_shell(queue)}" if listable and queue else START


def _and_others(code: Check, noun: str, number: int) -> Iterator[Finding]:
    if number > FINDINGS_MAX:
        sentence = f"there are {counted(number - FINDINGS_MAX, noun)} more like this"
        yield Finding(code=code, severity=Severity.WARNING, sentence=sentence)
