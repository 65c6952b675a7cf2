"""Group jobs that ended without success by what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec

from holdfast.domain.fingerprint import fingerprint, shape
from holdfast.domain.job import Job


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one name whose errors have the same shape. The example is the newest."""

    fingerprint: str
    name: str
    error_code: str | None
    shape: str
    jobs: int
    first_seen: datetime
    last_seen: datetime
    queues: tuple[str, ...]
    example_id: UUID
    example_text: str | None


class ErrorGroups(NamedTuple):
    """The groups, largest first. `is_all` is False if only the newest jobs were looked at."""

    groups: Sequence[ErrorGroup]
    looked_at: int
    is_all: bool


def fingerprint_of(job: Job) -> str:
    return fingerprint(job.name, job.error_code, job.error_text)


class Gathering:
    def __init__(self) -> None:
        self._groups: dict[str, ErrorGroup] = {}

    def add(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            key = fingerprint_of(job)
            known = self._groups.get(key)
            self._groups[key] = _first(key, job) if known is None else _grown(known, job)

    def groups(self) -> list[ErrorGroup]:
        """Largest first; among equals, the one that was seen last."""
        return sorted(
            self._groups.values(), key=lambda group: (group.jobs, group.last_seen), reverse=True
        )


def _first(key: str, job: Job) -> ErrorGroup:
    seen = job.finished_at or job.created_at
    return ErrorGroup(
        fingerprint=key,
        name=job.name,
        error_code=job.error_code,
        shape=shape(job.error_text),
        jobs=1,
        first_seen=seen,
        last_seen=seen,
        queues=(job.queue,),
        example_id=job.id,
        example_text=job.error_text,
    )


def _grown(group: ErrorGroup, job: Job) -> ErrorGroup:
    seen = job.finished_at or job.created_at
    changes = {
        "jobs": group.jobs + 1,
        "first_seen": min(group.first_seen, seen),
        "last_seen": max(group.last_seen, seen),
    }
    if seen > group.last_seen:
        changes |= {"example_id": job.id, "example_text": job.error_text}
    if job.queue not in group.queues:
        changes["queues"] = tuple(sorted((*group.queues, job.queue)))
    return msgspec.structs.replace(group, **changes)
