"""What a store reads of its database for an examination.

A part that a store does not have is None. One that it could not read is None, too, and `unread`
says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from enum import StrEnum
from typing import Final

import msgspec

from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.states import State
from holdfast.domain.workers import WorkerStatus

LATELY_SECONDS: Final = 3600.0


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a transaction may be open, and how long a lease may have run out, without being
    told of."""

    transaction_seconds: float
    stuck_seconds: float


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """The database's clock against this machine's, as exactly as the network lets it be known."""

    ahead_seconds: float
    error_seconds: float


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps vacuum from removing dead rows: a session, a prepared transaction, or a slot of
    replication, which has no age of its own but holds `xids` transactions."""

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
    """`hidden` sessions of other users hold something of which this one may not know more."""

    holders: Sequence[Holder]
    hidden: int
    user: str


class JobsTable(msgspec.Struct, frozen=True, kw_only=True):
    live: int
    dead: int
    autovacuum: bool
    vacuumed_at: datetime | None


class IndexStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An index that the migrations make; `create` is how to make it again."""

    name: str
    create: str
    there: bool
    valid: bool = True
    size_bytes: int = 0
    entries: float | None = None  # None if nobody has counted them yet


class Pooler(StrEnum):
    NONE = "none"
    SESSION = "session"
    TRANSACTION = "transaction"


class WakeupTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A wake-up that was sent to ourselves: how long it took, or why it did not come."""

    seconds: float | None
    because: str | None = None


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    used: int
    usable: int


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """Due jobs of one queue and name. Only the first of each lane are counted, so there may be
    more."""

    queue: str
    name: str
    jobs: int
    oldest_seconds: float


class Stuck(msgspec.Struct, frozen=True, kw_only=True):
    """Leases that ran out long ago and that nobody took back; at most so many are counted."""

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
    stuck: Stuck
    paused: Sequence[Paused]
    capped: Sequence[Capped]
    breakers: Sequence[BreakerStatus]


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue ended, and in which state; lately, or before."""

    queue: str
    state: State
    lately: bool
    jobs: int


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A job that failed or died lately; its error text may be cut."""

    queue: str
    name: str
    error_code: str | None
    error_text: str | None


class EndedLately(msgspec.Struct, frozen=True, kw_only=True):
    """The newest jobs that have ended, at most ENDED_LOOK_MAX of them, and the newest failures, at
    most FAILURES_LOOK_MAX. What ended within LATELY_SECONDS did so lately."""

    ends: Sequence[Ends]
    failures: Sequence[Failure]


class LeftHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What upkeep should have done: days without a partition, past ones that are still there, ended
    jobs that stand among the live ones or outlived their time."""

    missing_days: Sequence[date] = ()
    past_days: Sequence[date] = ()
    rest_bytes: int = 0
    leftovers: int = 0
    outlived: int = 0


class FileStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What can't be read of a file that can't be opened is None. `damage` are the first words of
    SQLite's check, if there was time for it to end."""

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
    file: FileStatus | None = None
    unread: Mapping[str, str] = {}

    @property
    def schema_fits(self) -> bool:
        return self.schema_version in (self.schema_known, self.schema_known + 1)
