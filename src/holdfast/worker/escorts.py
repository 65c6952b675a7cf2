"""Tells messengers whose messages accompany jobs what becomes of these jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.domain.job import Claimed, Lease, Lost, Settlement

if TYPE_CHECKING:
    from holdfast.worker.setup import Setup


class Escorts:
    """Most workers have none, and then nothing here costs more than a look at an empty list."""

    def __init__(self, setup: Setup) -> None:
        self._each = setup.messengers.escorts
        self._worker_id = setup.worker_id

        def room() -> int:
            return 0 if setup.suspects_only else setup.slots.free  # suspects come without a message

        for escort in self._each:
            escort.attach(setup.worker_id, setup.store.get, room)

    def detach(self) -> None:
        """Take no more messages: the worker claims no more jobs."""
        for escort in self._each:
            escort.detach(self._worker_id)

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
        if not self._each:
            return
        gone = {Lease(entry.job_id, entry.fence) for entry in lost}
        kept = [lease for lease in leases if lease not in gone]
        for escort in self._each:
            escort.renewed(kept)
