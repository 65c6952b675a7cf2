"""What a worker reports about itself, and what operators see of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from holdfast.domain.limits import WORKER_LOST_LEASES
from holdfast.domain.messengers import MessengerStatus

ALL_QUEUES: Final = "*"


class NewWorker(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker reports once, when it registers.

    `version` is Holdfast's, `app_version` the application's. `queues` are those that it serves,
    with their limits; `*` is any other queue, None is all. With `suspects_only`, it is the
    quarantine process of another worker. An API server has a concurrency of 0: it runs nothing
    itself, but leases the jobs with its names to workers over HTTP.
    """

    id: str
    host: str
    pid: int
    version: str
    app_version: str = ""
    queues: Mapping[str, int | None] | None
    names: tuple[str, ...]
    concurrency: int
    suspects_only: bool
    lease_seconds: float
    up_seconds: float


class Load(msgspec.Struct, frozen=True):
    """What a worker reports with every heartbeat: how many jobs it runs, which of its queues have
    reached their limits, and how its messengers are."""

    running: int = 0
    full_queues: tuple[str, ...] = ()
    messengers: tuple[MessengerStatus, ...] = ()


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, as of its last heartbeat. Times are the database's.

    A `lost` worker missed its heartbeats, and others have reclaimed its jobs: it was killed, it is
    frozen, or it can't reach the database.
    """

    id: str
    host: str
    pid: int
    version: str
    app_version: str = ""
    queues: dict[str, int | None] | None
    names: tuple[str, ...]
    concurrency: int
    running: int
    full_queues: tuple[str, ...]
    messengers: tuple[MessengerStatus, ...] = ()
    suspects_only: bool
    lease_seconds: float
    started_at: datetime
    seen_at: datetime
    unseen_seconds: float
    lost: bool

    @property
    def is_server(self) -> bool:
        """Whether it is an API server, which leases the jobs with its names over HTTP."""
        return self.concurrency == 0

    def serves(self, queue: str) -> bool:
        """Whether it takes jobs from this queue to run them itself."""
        if self.is_server:
            return False
        return self.queues is None or ALL_QUEUES in self.queues or queue in self.queues

    def has_room_for(self, queue: str) -> bool:
        """Whether it could run one more job of this queue."""
        return self.running < self.concurrency and queue not in self.full_queues


def serving(workers: Iterable[WorkerStatus], queue: str) -> list[WorkerStatus]:
    """Those that take jobs of the queue; a quarantine process only helps one of them."""
    return [each for each in workers if not each.suspects_only and each.serves(queue)]


def is_lost(unseen_seconds: float, lease_seconds: float) -> bool:
    return unseen_seconds > WORKER_LOST_LEASES * lease_seconds
