"""Tells messengers whose messages accompany jobs what becomes of these jobs."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.job import Claimed, Lease, Lost, Settlement
from holdfast.wakeups.protocol import Escort, Look


class Escorts:
    """Most workers have none, and then nothing here costs more than a look at an empty list."""

    def __init__(self, each: Sequence[Escort], worker_id: str, look: Look) -> None:
        self._each = each
        for escort in each:
            escort.attach(worker_id, look)

    def started(self, jobs: Sequence[Claimed]) -> None:
        for escort in self._each:
            for job in jobs:
                escort.started(job)

    def settled(self, job: Claimed, settlement: Settlement) -> None:
        for escort in self._each:
            escort.settled(job, settlement)

    def lost(self, job: Claimed) -> None:
        for escort in self._each:
            escort.lost(job)

    def renewed(self, leases: Sequence[Lease], lost: Sequence[Lost]) -> None:
        for escort in self._each:
            gone = {Lease(entry.job_id, entry.fence) for entry in lost}
            escort.renewed([lease for lease in leases if lease not in gone])
