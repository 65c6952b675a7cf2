"""Rows of the tables of error groups."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from holdfast.domain.fingerprint import fingerprint, shape
from holdfast.domain.groups import ErrorGroup, Failure, GroupState, TenantJobs

ALL_TENANTS: Final = ""  # of the rows that count the jobs of all tenants together


class GroupKey(NamedTuple):
    tenant: str
    fingerprint: str


class KeyRow(msgspec.Struct, frozen=True):
    tenant: str
    fingerprint: str

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.tenant, self.fingerprint)


class PlaceRow(msgspec.Struct, frozen=True):
    """How far the groups follow the history."""

    ended_at: datetime
    job_id: UUID
    turn: int
    read_at: datetime


class FailureRow(msgspec.Struct, frozen=True, kw_only=True):
    """A dead or failed job. If a group counts it, its error text is left out."""

    job_id: UUID
    tenant: str
    name: str
    queue: str
    state: str
    error_code: str | None
    error_text: str | None
    ended_at: datetime
    kept_until: datetime
    version: str | None
    is_counted: bool = False
    is_last: bool = False

    def failure(self) -> Failure:
        return Failure(
            job_id=self.job_id,
            tenant=self.tenant,
            name=self.name,
            queue=self.queue,
            error_code=self.error_code,
            shape=shape(self.error_text),
            fingerprint=fingerprint(self.name, self.error_code, self.error_text),
            ended_at=self.ended_at,
            version=self.version,
        )


class PlacedRow(msgspec.Struct, frozen=True):
    """A group in a list, and what the list is sorted by."""

    fingerprint: str
    is_match: bool
    is_last: bool
    place: int


class EndRow(msgspec.Struct, frozen=True):
    ended_at: datetime


class CountRow(msgspec.Struct, frozen=True):
    state: GroupState
    error_groups: int


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str
    fingerprint: str
    name: str
    error_code: str | None
    shape: str
    jobs: int
    jobs_ever: int
    first_seen: datetime
    last_seen: datetime
    example_id: UUID
    queues: str
    state: GroupState
    state_since: datetime | None
    state_by: str | None
    note: str | None
    resolved_in: str | None
    tenants: str = "[]"

    @property
    def key(self) -> GroupKey:
        return GroupKey(self.tenant, self.fingerprint)

    def group(self) -> ErrorGroup:
        values = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name in ErrorGroup.__struct_fields__
        }
        values["queues"] = msgspec.json.decode(self.queues, type=tuple[str, ...])
        values["tenants"] = msgspec.json.decode(self.tenants, type=tuple[TenantJobs, ...])
        return ErrorGroup(**values)


def job_values(rows: Iterable[tuple[FailureRow, Failure]]) -> str:
    """The `jobs` of `insert_error_group_jobs`."""
    return _encoded(
        {
            "job_id": row.job_id,
            "tenant": row.tenant,
            "fingerprint": failure.fingerprint,
            "state": row.state,
            "queue": row.queue,
            "ended_at": _words(row.ended_at),
            "kept_until": _words(row.kept_until),
        }
        for row, failure in rows
    )


def key_values(keys: Iterable[GroupKey]) -> str:
    """The `keys` of `locked_error_groups`."""
    return _encoded(key._asdict() for key in keys)


def group_values(groups: Iterable[tuple[GroupKey, ErrorGroup]]) -> str:
    """The `groups` of `save_error_groups`."""
    return _encoded(
        {
            "tenant": key.tenant,
            "fingerprint": key.fingerprint,
            "name": group.name,
            "error_code": group.error_code,
            "shape": group.shape,
            "jobs": group.jobs,
            "jobs_ever": group.jobs_ever,
            "first_seen": _words(group.first_seen),
            "last_seen": _words(group.last_seen),
            "example_id": group.example_id,
            "queues": msgspec.json.encode(group.queues).decode(),
            "state": group.state,
            "state_since": group.state_since and _words(group.state_since),
            "state_by": group.state_by,
            "note": group.note,
            "resolved_in": group.resolved_in,
        }
        for key, group in groups
    )


def _encoded(rows: Iterable[dict[str, object]]) -> str:
    return msgspec.json.encode(list(rows)).decode()


def _words(moment: datetime) -> str:
    """As SQLite stores times: of one length, so that they sort."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
