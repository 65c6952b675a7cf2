"""Workers, as they tell of themselves and as others see them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from holdfast.domain.limits import WORKER_LOST_LEASES

ALL_QUEUES: Final = "*"


class NewWorker(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says once, when it comes.

    `queues` are those that it serves, with their limits; `*` stands for all others, None for all.
    One that is `suspects_only` is another worker's process for suspects.
    """

    id: str
    host: str
    pid: int
    version: str
    queues: Mapping[str, int | None] | None
    names: tuple[str, ...]
    concurrency: int
    suspects_only: bool
    lease_seconds: float
    up_seconds: float


class Load(msgspec.Struct, frozen=True):
    """What a worker says again and again: how many jobs it runs, and which of its queues have
    reached their limits."""

    running: int = 0
    full_queues: tuple[str, ...] = ()


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, as the database saw it last. Times are the database's.

    One that is `lost` has not been seen for some leases, and others have taken back what it had:
    it was killed, it stands still, or it can't reach the database.
    """

    id: str
    host: str
    pid: int
    version: str
    queues: dict[str, int | None] | None
    names: tuple[str, ...]
    concurrency: int
    running: int
    full_queues: tuple[str, ...]
    suspects_only: bool
    lease_seconds: float
    started_at: datetime
    seen_at: datetime
    unseen_seconds: float
    lost: bool

    def serves(self, queue: str) -> bool:
        return self.queues is None or ALL_QUEUES in self.queues or queue in self.queues

    def has_room_for(self, queue: str) -> bool:
        return self.running < self.concurrency and queue not in self.full_queues


def is_lost(unseen_seconds: float, lease_seconds: float) -> bool:
    return unseen_seconds > WORKER_LOST_LEASES * lease_seconds
