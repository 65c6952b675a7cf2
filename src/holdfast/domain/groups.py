"""Group jobs that did not succeed by what went wrong, and follow what becomes of each group.

new, back -> acknowledged
new, acknowledged, back -> resolved
resolved -> back, when a job of the group fails again
acknowledged, resolved, back -> new, when an operator reopens it
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from holdfast.domain.errors import WrongState
from holdfast.domain.fingerprint import fingerprint, shape
from holdfast.domain.job import Job
from holdfast.domain.limits import GROUP_QUEUES_MAX


class GroupState(StrEnum):
    """What became of a group of errors. Operators change it; a new failure makes it `back`."""

    NEW = "new"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"
    BACK = "back"


class GroupVerb(NamedTuple):
    """What an operator does to a group: from which states, and to which one. In the target it does
    nothing, so it can be repeated."""

    name: str
    sources: tuple[GroupState, ...]
    target: GroupState


ACKNOWLEDGE: Final = GroupVerb(
    "acknowledge", (GroupState.NEW, GroupState.BACK), GroupState.ACKNOWLEDGED
)
# Resolving it again sets another version.
RESOLVE: Final = GroupVerb("resolve", tuple(GroupState), GroupState.RESOLVED)
REOPEN: Final = GroupVerb(
    "reopen", (GroupState.ACKNOWLEDGED, GroupState.RESOLVED, GroupState.BACK), GroupState.NEW
)


class GroupOrder(StrEnum):
    """Which groups come first: the ones seen last, or those with most jobs."""

    RECENT = "recent"
    LARGEST = "largest"


class TenantJobs(msgspec.Struct, frozen=True):
    """How many jobs of a group belong to a tenant."""

    tenant: str
    jobs: int


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one name whose errors have the same shape. The example is the newest.

    `jobs` are those that are still in the history; `jobs_ever` also counts those that have left it
    since `first_seen`. `tenants` are the ones with most jobs.
    """

    fingerprint: str
    name: str
    error_code: str | None
    shape: str
    state: GroupState = GroupState.NEW
    jobs: int
    jobs_ever: int
    first_seen: datetime
    last_seen: datetime
    queues: tuple[str, ...]
    tenants: tuple[TenantJobs, ...] = ()
    example_id: UUID
    state_since: datetime | None = None
    state_by: str | None = None  # None if a failure brought it back
    note: str | None = None
    resolved_in: str | None = None  # a version of the application


class ErrorGroups(NamedTuple):
    """The groups of some jobs, largest first; `jobs` and `tenants` count only those. `is_all` is
    False if only the newest jobs were looked at."""

    groups: Sequence[ErrorGroup]
    looked_at: int
    is_all: bool


class GroupPage(NamedTuple):
    """Groups of errors. Pass `after` to get the next page; it is None on the last one."""

    groups: Sequence[ErrorGroup]
    after: UUID | None


class GroupCounts(NamedTuple):
    """How many groups are in each state. `capped` is True if there are more."""

    groups: dict[GroupState, int]
    capped: bool


class GroupJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a group; `requeued_as` is the job that it was last requeued as."""

    job_id: UUID
    tenant: str
    state: str
    queue: str
    ended_at: datetime
    requeued_as: UUID | None = None


class GroupJobs(NamedTuple):
    """Jobs of a group, newest first. Pass `after` to get the next page."""

    jobs: Sequence[GroupJob]
    after: UUID | None


class GroupFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which groups to find: those that match all of these."""

    state: GroupState | None = None
    queue: str | None = None
    name: str | None = None
    error_code: str | None = None
    text: str | None = None  # in the name, the error code or the shape; case is ignored


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A job that died or failed, as far as its group needs it."""

    job_id: UUID
    tenant: str
    name: str
    queue: str
    error_code: str | None
    shape: str
    fingerprint: str
    ended_at: datetime
    version: str | None = None  # of the application, where the job ran; None if unknown


def fingerprint_of(job: Job) -> str:
    return fingerprint(job.name, job.error_code, job.error_text)


def failure_of(job: Job) -> Failure:
    return Failure(
        job_id=job.id,
        tenant=job.tenant,
        name=job.name,
        queue=job.queue,
        error_code=job.error_code,
        shape=shape(job.error_text),
        fingerprint=fingerprint_of(job),
        ended_at=job.finished_at or job.created_at,
    )


class Gathering:
    """Groups some jobs, without the life of the groups."""

    def __init__(self) -> None:
        self._groups: dict[str, ErrorGroup] = {}
        self._tenants: dict[str, dict[str, int]] = {}

    def add(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            key = fingerprint_of(job)
            self._groups[key] = grown(self._groups.get(key), failure_of(job))
            tenants = self._tenants.setdefault(key, {})
            tenants[job.tenant] = tenants.get(job.tenant, 0) + 1

    def groups(self) -> list[ErrorGroup]:
        """Largest first; among equals, the one that was seen last."""
        groups = [
            msgspec.structs.replace(group, tenants=_largest(self._tenants[key]))
            for key, group in self._groups.items()
        ]
        return sorted(groups, key=lambda group: (group.jobs, group.last_seen), reverse=True)


def _largest(tenants: dict[str, int]) -> tuple[TenantJobs, ...]:
    by_jobs = sorted(tenants.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(TenantJobs(*pair) for pair in by_jobs)


def grown(group: ErrorGroup | None, failure: Failure) -> ErrorGroup:
    """The group with one more job. Failures may come in any order."""
    if group is None:
        return _first(failure)
    is_newest = failure.ended_at >= group.last_seen
    queues = group.queues
    if failure.queue not in queues and len(queues) < GROUP_QUEUES_MAX:
        queues = tuple(sorted((*queues, failure.queue)))
    larger = msgspec.structs.replace(
        group,
        jobs=group.jobs + 1,
        jobs_ever=group.jobs_ever + 1,
        first_seen=min(group.first_seen, failure.ended_at),
        last_seen=max(group.last_seen, failure.ended_at),
        example_id=failure.job_id if is_newest else group.example_id,
        queues=queues,
    )
    if not _comes_back(group, failure):
        return larger
    return msgspec.structs.replace(
        larger, state=GroupState.BACK, state_since=failure.ended_at, state_by=None
    )


def shrunk(group: ErrorGroup, jobs: int) -> ErrorGroup:
    """The group when this many of its jobs have left the history."""
    return msgspec.structs.replace(group, jobs=max(0, group.jobs - jobs))


def _first(failure: Failure) -> ErrorGroup:
    return ErrorGroup(
        fingerprint=failure.fingerprint,
        name=failure.name,
        error_code=failure.error_code,
        shape=failure.shape,
        jobs=1,
        jobs_ever=1,
        first_seen=failure.ended_at,
        last_seen=failure.ended_at,
        queues=(failure.queue,),
        example_id=failure.job_id,
    )


def changed(
    group: ErrorGroup,
    verb: GroupVerb,
    *,
    now: datetime,
    by: str | None,
    note: str | None,
    version: str | None,
) -> ErrorGroup:
    """The group as an operator leaves it, or WrongState. Without a note, it keeps the last one."""
    if group.state not in verb.sources:
        if group.state is verb.target:
            return group
        raise WrongState(
            f"error group {group.fingerprint} is {group.state}, so you can't {verb.name} it;"
            " reopen it first"
        )
    return msgspec.structs.replace(
        group,
        state=verb.target,
        # What was counted before belongs to what was resolved, whatever the clocks say.
        state_since=max(now, group.last_seen),
        state_by=by,
        note=note or group.note,
        resolved_in=version if verb is RESOLVE else None,
    )


def _comes_back(group: ErrorGroup, failure: Failure) -> bool:
    """A job that ended after its group was resolved brings it back, unless the job ran in a version
    of the application that is older than the one in which the group was resolved."""
    if group.state is not GroupState.RESOLVED or group.state_since is None:
        return False
    if failure.ended_at <= group.state_since:
        return False
    return not _is_older(failure.version, group.resolved_in)


_NUMBERS: Final = re.compile(r"v?(\d+(?:\.\d+)*)")


def _is_older(version: str | None, than: str | None) -> bool:
    """Compare dotted numbers, such as 1.9 and 1.10. Of other versions, none is older."""
    ours, theirs = _numbers(version), _numbers(than)
    return ours is not None and theirs is not None and ours < theirs


def _numbers(version: str | None) -> tuple[int, ...] | None:
    match = _NUMBERS.fullmatch(version or "")
    if match is None:
        return None
    numbers = [int(number) for number in match[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
