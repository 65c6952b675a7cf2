"""Do workers of several versions run side by side, and do jobs wait because of that?"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from holdfast.domain.diagnosis.findings import Check, Finding, fine, info, warning
from holdfast.domain.diagnosis.vitals import HandedBack, Workload
from holdfast.domain.diagnosis.words import at_least, counted, lasting, listed
from holdfast.domain.limits import HANDED_BACK_LOOK_MAX, RELEASES_MAX
from holdfast.domain.workers import WorkerStatus, serving

DEPLOY_SECONDS_MAX: Final = 3600.0  # that two versions may run side by side without a warning


class Version(NamedTuple):
    """The version of an application, and that of Holdfast in it."""

    app: str
    holdfast: str


def judge_versions(load: Workload, live: Sequence[WorkerStatus]) -> Iterator[Finding]:
    applications = _applications(live)
    mixed = [each for each in applications if len(_by_version(each)) > 1]
    for workers in mixed:
        yield _side_by_side(load, workers)
    if not mixed:
        versions = sorted({_version(each) for each in live})
        yield fine(
            Check.VERSIONS,
            f"all workers run {'; '.join(map(_named, versions))}"
            if len(applications) == 1
            else "no two workers run different versions of one application",
            versions=[each._asdict() for each in versions],
        )


def _applications(live: Sequence[WorkerStatus]) -> list[list[WorkerStatus]]:
    """Group the workers: those that know a job in common run the same application."""
    groups: list[list[WorkerStatus]] = []
    for worker in live:
        names = set(worker.names)
        related = [
            group for group in groups if any(names.intersection(each.names) for each in group)
        ]
        groups = [group for group in groups if group not in related]
        groups.append([*(each for group in related for each in group), worker])
    return groups


def _version(worker: WorkerStatus) -> Version:
    return Version(worker.app_version, worker.version)


def _by_version(workers: Sequence[WorkerStatus]) -> dict[Version, list[WorkerStatus]]:
    """The workers of each version, the version that started first at the beginning."""
    found: dict[Version, list[WorkerStatus]] = defaultdict(list)
    for worker in sorted(workers, key=lambda each: (each.started_at, each.id)):
        found[_version(worker)].append(worker)
    return found


def _named(version: Version) -> str:
    holdfast = f"Holdfast {version.holdfast}"
    return f"version {version.app} on {holdfast}" if version.app else holdfast


def _told_apart(versions: Collection[Version]) -> list[str]:
    """Name what the versions differ in."""
    apps, holdfasts = map(set, zip(*versions, strict=True))
    if len(holdfasts) == 1:
        return [each.app or "no app_version" for each in versions]
    if len(apps) == 1:
        return [f"Holdfast {each.holdfast}" for each in versions]
    return [_named(each) for each in versions]


def _side_by_side(load: Workload, workers: Sequence[WorkerStatus]) -> Finding:
    by_version = _by_version(workers)
    second = list(by_version.values())[1]
    seconds = (load.now - second[0].started_at).total_seconds()
    partly_known = _partly_known(load, workers)
    handed_back = sum(
        each.jobs for each in load.handed_back if any(each.name in one.names for one in workers)
    )
    described = [
        f"{name} ({counted(len(alike), 'worker')} on {listed(_hosts(alike))})"
        for name, alike in zip(_told_apart(by_version), by_version.values(), strict=True)
    ]
    sentence = (
        f"workers of {len(by_version)} versions have run side by side for {lasting(seconds)}:"
        f" {'; '.join(described)}"
    )
    if partly_known:
        sentence += f". Jobs wait that only some of them know: {listed(partly_known)}"
    if handed_back:
        jobs = at_least(handed_back, HANDED_BACK_LOOK_MAX, "job")
        sentence += f". {jobs} {_wait(handed_back)} after being handed back"
    is_over = seconds > DEPLOY_SECONDS_MAX or partly_known or handed_back
    report = warning if is_over else info
    return report(
        Check.VERSIONS,
        sentence,
        advice="finish the deploy, or roll it back: restart the workers of the version that you"
        " are replacing; to see them"
        if is_over
        else "no action needed while a deploy is in progress; to watch it",
        command="holdfast workers --app MODULE:NAME",
        versions=[
            {**version._asdict(), "workers": [each.id for each in alike], "hosts": _hosts(alike)}
            for version, alike in by_version.items()
        ],
        seconds=seconds,
        partly_known=partly_known,
        handed_back=handed_back,
    )


def _hosts(workers: Sequence[WorkerStatus]) -> list[str]:
    return sorted({each.host for each in workers})


def _partly_known(load: Workload, workers: Sequence[WorkerStatus]) -> list[str]:
    """The names of due jobs that some workers of their queue know, and others don't."""
    found = set()
    for due in load.due:
        knows = {due.name in each.names for each in serving(workers, due.queue)}
        if len(knows) > 1:
            found.add(due.name)
    return sorted(found)


def judge_handed_back(load: Workload) -> Iterator[Finding]:
    for each in load.handed_back:
        yield _handed_back(each)


def _handed_back(seen: HandedBack) -> Finding:
    jobs = at_least(seen.jobs, HANDED_BACK_LOOK_MAX, "job")
    return warning(
        Check.ARGUMENTS,
        f"{jobs} named {seen.name} in queue {seen.queue} {_wait(seen.jobs)} for a worker that"
        f" can run {'it' if seen.jobs == 1 else 'them'}: {seen.error_text}. Released"
        f" {seen.releases} of at most {RELEASES_MAX} times; after that, a job fails",
        advice="finish the deploy; give every worker the preset or secret key that is missing; or"
        " make the handler accept the arguments again, with a default for what is missing; to see"
        " the jobs",
        command=f"holdfast jobs list --app MODULE:NAME --state queued --code HANDED_BACK"
        f" --queue {shlex.quote(seen.queue)} --name {shlex.quote(seen.name)}",
        queue=seen.queue,
        name=seen.name,
        jobs=seen.jobs,
        releases=seen.releases,
        releases_max=RELEASES_MAX,
        error_text=seen.error_text,
    )


def _wait(jobs: int) -> str:
    return "waits" if jobs == 1 else "wait"
