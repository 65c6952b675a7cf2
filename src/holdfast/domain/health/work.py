"""Are there workers, and is all that waits taken by one of them?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.domain.health.findings import Check, Finding, Severity, fine
from holdfast.domain.health.vitals import Due, Stuck, Workload
from holdfast.domain.health.words import at_least, counted, for_shell, lasting, listed
from holdfast.domain.limits import DUE_COUNTED_MAX, HELD_COUNTED_MAX, STUCK_COUNTED_MAX
from holdfast.domain.texts import pasted
from holdfast.domain.times import exact, relative
from holdfast.domain.workers import WorkerSeen

FINDINGS_MAX: Final = 10  # of one kind
START = "holdfast worker MODULE:NAME"


def judge_work(load: Workload) -> Iterator[Finding]:
    live = [each for each in load.workers if not each.lost]
    yield _workers(load, live)
    if live:
        yield _versions(live)
        yield from _names(load, live)
    yield _leases(load.stuck, live)
    yield from _queues(load, live)
    yield from _paused(load)
    yield from _breakers(load)


def _workers(load: Workload, live: Sequence[WorkerSeen]) -> Finding:
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
            sentence=f"{counted(len(lost), 'worker')} went without a word, last seen:"
            f" {listed(names)}; {counted(len(live), 'worker')} live. What a lost one had is taken"
            " back by others, and counts as a crash",
            advice="look for what killed it: memory, the machine, kill -9",
            command="holdfast workers --app MODULE:NAME",
            facts=facts,
        )
    if not live:
        return Finding(
            code=Check.WORKERS,
            severity=Severity.INFO,
            sentence="there is no worker",
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


def _versions(live: Sequence[WorkerSeen]) -> Finding:
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
        sentence=f"workers of different versions run side by side: {told}",
        advice="if no deploy is under way, start the old ones anew",
        command="holdfast workers --app MODULE:NAME",
        facts={"versions": dict(by_version)},
    )


def _leases(stuck: Stuck, live: Sequence[WorkerSeen]) -> Finding:
    if not stuck.jobs:
        return fine(Check.LEASES, "no lease has run out without being taken back")
    workers = list(stuck.workers)
    sentence = (
        f"{at_least(stuck.jobs, STUCK_COUNTED_MAX, 'lease')} ran out and nobody took the job back,"
        f" for up to {lasting(stuck.oldest_seconds)}; held by {listed(workers)}"
    )
    return Finding(
        code=Check.LEASES,
        severity=Severity.CRITICAL,
        sentence=sentence,
        advice="look for sweep_failed in the logs of the workers"
        if live
        else "start a worker: it takes them back within seconds",
        command=None if live else START,
        facts={"jobs": stuck.jobs, "oldest_seconds": stuck.oldest_seconds, "workers": workers},
    )


def _queues(load: Workload, live: Sequence[WorkerSeen]) -> Iterator[Finding]:
    paused = {each.queue for each in load.paused}
    unserved: dict[str, list[Due]] = defaultdict(list)
    for each in load.due:
        if each.queue not in paused and not _serving(live, each.queue):
            unserved[each.queue].append(each)
    if not unserved:
        yield fine(Check.QUEUES, "every queue with due jobs has a worker")
    for queue, due in list(unserved.items())[:FINDINGS_MAX]:
        jobs, oldest = sum(each.jobs for each in due), max(each.oldest_seconds for each in due)
        yield Finding(
            code=Check.QUEUES,
            severity=Severity.CRITICAL,
            sentence=f"no live worker serves queue {queue}, where"
            f" {at_least(jobs, DUE_COUNTED_MAX, 'job')} wait{'s' if jobs == 1 else ''}, the oldest"
            f" for {lasting(oldest)}",
            advice="start a worker for it",
            command=_start_for(queue),
            facts={"queue": queue, "jobs": jobs, "oldest_seconds": oldest},
        )
    yield from _and_others(Check.QUEUES, "queue", len(unserved))


def _names(load: Workload, live: Sequence[WorkerSeen]) -> Iterator[Finding]:
    unknown = []
    for each in load.due:
        serving = _serving(live, each.queue)
        if serving and not any(each.name in worker.names for worker in serving):
            unknown.append(each)
    if not unknown:
        yield fine(Check.NAMES, "the workers know the names of all due jobs that were looked at")
    for each in unknown[:FINDINGS_MAX]:
        yield Finding(
            code=Check.NAMES,
            severity=Severity.CRITICAL,
            sentence=f"no live worker of queue {each.queue} knows the name {each.name}, which"
            f" {at_least(each.jobs, DUE_COUNTED_MAX, 'job')} there"
            f" ha{'s' if each.jobs == 1 else 've'}, the oldest for {lasting(each.oldest_seconds)}",
            advice="start a worker whose code defines it, or give the job that has a new name now"
            f" this alias: @hf.job(aliases=[{each.name!r}])",
            facts={"queue": each.queue, "name": each.name, "jobs": each.jobs},
        )
    yield from _and_others(Check.NAMES, "name", len(unknown))


def _serving(live: Sequence[WorkerSeen], queue: str) -> list[WorkerSeen]:
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
            sentence=f"queue {each.queue} is paused{by}{because} since {exact(each.since)}"
            f" ({relative(each.since, load.now)}): {waiting if due else 'nothing due waits'}",
            advice="when the reason has gone, let it go on",
            command=f"holdfast queues resume --app MODULE:NAME {pasted(each.queue)}",
            facts={"queue": each.queue, "by": each.by, "because": each.because, "jobs": jobs},
        )
    yield from _and_others(Check.PAUSED, "queue", len(load.paused))


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
            f" ({relative(each.opened_at, load.now)}) and holds"
            f" {at_least(each.held, HELD_COUNTED_MAX, 'job')}"
        )
        if each.next_probe_at is not None:
            sentence += f"; the next job is sent ahead {relative(each.next_probe_at, load.now)}"
        yield Finding(
            code=Check.BREAKERS,
            severity=Severity.WARNING,
            sentence=sentence,
            advice="see that what it guards works again; to close it by hand",
            command=f"holdfast breakers close --app MODULE:NAME {pasted(each.key)}",
            facts={"key": each.key, "held": each.held, "because": each.opened_because},
        )
    yield from _and_others(Check.BREAKERS, "breaker", len(opened))


def _start_for(queue: str) -> str:
    """What a list of queues could not name is served by a worker for all of them."""
    listable = queue == queue.strip() and queue != "*" and not {",", ":"} & set(queue)
    return f"{START} --queues {for_shell(queue)}" if listable and queue else START


def _and_others(code: Check, noun: str, number: int) -> Iterator[Finding]:
    if number > FINDINGS_MAX:
        sentence = f"there are {counted(number - FINDINGS_MAX, noun)} more like that"
        yield Finding(code=code, severity=Severity.WARNING, sentence=sentence)
