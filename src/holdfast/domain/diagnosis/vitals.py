"""What a store reads from its database for an examination.

A part that the store doesn't have is None. So is one that it could not read: `unread` says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.roles import RoleDifference
from holdfast.domain.states import State
from holdfast.domain.workers import WorkerStatus

LATELY_SECONDS: Final = 3600.0


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a transaction may be open, and a lease expired, before they are reported."""

    transaction_seconds: float
    stuck_seconds: float


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """How far the database's clock is ahead of this machine's."""

    ahead_seconds: float
    error_seconds: float


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps vacuum from removing dead rows: a session, a prepared transaction, or a
    replication slot, which has no age but holds back `xids` transactions."""

    kind: str
    id: str
    user: str | None = None
    application: str | None = None
    state: str | None = None
    since: datetime | None = None
    age_seconds: float | None = None
    xids: int | None = None
    query: str | None = None


class Holders(msgspec.Struct, frozen=True, kw_only=True):
    """`hidden` counts the sessions of other users that this user may not inspect."""

    holders: Sequence[Holder]
    hidden: int
    user: str


class JobsTable(msgspec.Struct, frozen=True, kw_only=True):
    live: int
    dead: int
    autovacuum: bool
    vacuumed_at: datetime | None


class IndexStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An index of the migrations; `create` is the statement that creates it."""

    name: str
    create: str
    there: bool
    valid: bool = True
    size_bytes: int = 0
    entries: float | None = None  # None if they were never counted


class Pooler(StrEnum):
    NONE = "none"
    SESSION = "session"
    TRANSACTION = "transaction"


class WakeupTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A wake-up that we sent to ourselves: how long it took, or why it did not arrive."""

    seconds: float | None
    because: str | None = None


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    used: int
    usable: int


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """Due jobs of one queue and name. Only the first of each lane are counted."""

    queue: str
    name: str
    jobs: int
    oldest_seconds: float


class HandedBack(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of one queue and name that workers handed back and that wait for another worker; the
    text of one of them. Only the first of each lane are counted."""

    queue: str
    name: str
    jobs: int
    releases: int  # of the job that was handed back most often
    error_text: str | None


class Stuck(msgspec.Struct, frozen=True, kw_only=True):
    """Leases that expired long ago and that nobody reclaimed; at most STUCK_COUNTED_MAX."""

    jobs: int
    oldest_seconds: float
    workers: Sequence[str]


class Paused(msgspec.Struct, frozen=True, kw_only=True):
    queue: str
    since: datetime
    by: str | None
    because: str | None


class Capped(msgspec.Struct, frozen=True, kw_only=True):
    queue: str
    running: int
    running_max: int

    @property
    def is_reached(self) -> bool:
        return self.running >= self.running_max


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    now: datetime
    workers: Sequence[WorkerStatus]
    due: Sequence[Due]
    handed_back: Sequence[HandedBack]
    stuck: Stuck
    paused: Sequence[Paused]
    capped: Sequence[Capped]
    breakers: Sequence[BreakerStatus]


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue ended in a state, within LATELY_SECONDS or before."""

    queue: str
    state: State
    lately: bool
    jobs: int


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A job that failed or died lately; its error text may be truncated."""

    queue: str
    name: str
    error_code: str | None
    error_text: str | None


class EndedLately(msgspec.Struct, frozen=True, kw_only=True):
    """The newest ENDED_LOOK_MAX ended jobs, counted, and the newest FAILURES_LOOK_MAX failures."""

    ends: Sequence[Ends]
    failures: Sequence[Failure]


class LeftHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What upkeep left undone: days without a partition, past days that were not dropped, ended
    jobs that are still among the live ones or were kept for too long."""

    missing_days: Sequence[date] = ()
    past_days: Sequence[date] = ()
    rest_bytes: int = 0
    leftovers: int = 0
    outlived: int = 0


class FileStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`damage` holds the first messages of SQLite's check, if it finished in time. A part that
    can't be read is None."""

    path: str
    size_bytes: int
    log_bytes: int
    free_bytes: int
    disk_bytes: int
    journal_mode: str | None
    file_system: str | None
    check_ended: bool | None
    damage: Sequence[str] = ()


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    product: str
    answer_seconds: float
    schema_version: int | None = None
    schema_known: int = 0
    encoding: str | None = None  # PostgreSQL's
    writable: bool | None = None
    read_only_because: str | None = None
    behind_seconds: float | None = None  # a replica, for those who only read
    settings: Mapping[str, str] | None = None
    clock: Clock | None = None
    connections: Connections | None = None
    pooler: Pooler | None = None
    wakeups: WakeupTrial | None = None
    holders: Holders | None = None
    jobs_table: JobsTable | None = None
    indexes: Sequence[IndexStatus] | None = None
    workload: Workload | None = None
    ended: EndedLately | None = None
    history: LeftHistory | None = None
    role_differences: Sequence[RoleDifference] | None = None  # None without roles
    file: FileStatus | None = None
    unread: Mapping[str, str] = {}
