"""Which records run beside each other here. A record that was in two crashes runs alone, so that it
can take no innocent one along, and is not ended by the crash of another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from uuid import UUID

from holdfast.store_api import Lease, Seam
from holdfast_systems.documents.salesforce.store.limits import COMPANY_SECONDS_MAX
from holdfast_systems.documents.salesforce.store.records import Record


class Company:
    """The records that this process runs. Suspects take turns with the others."""

    def __init__(self, seam: Seam) -> None:
        self._seam = seam
        self._until: dict[Lease, float] = {}
        self._is_alone = False
        self._is_turn_of_suspects = True
        self._is_somebody_waiting = False

    def choose(self, due: Sequence[Record]) -> list[Record]:
        """Return those of these records that may start now."""
        suspects = [record for record in due if record.is_suspect]
        others = [record for record in due if not record.is_suspect]
        self._forget({record.job_id for record in due})
        is_busy = self._is_busy()
        self._is_somebody_waiting = is_busy and bool(suspects or (due and self._is_alone))
        if is_busy and self._is_alone:
            return []
        if not suspects or (others and not self._is_turn_of_suspects):
            self._is_turn_of_suspects = True
            return others
        return [] if is_busy else suspects[:1]

    def began(self, records: Iterable[tuple[Record, Lease]]) -> None:
        for record, lease in records:
            self._until[lease] = self._seam.monotonic() + COMPANY_SECONDS_MAX
            self._is_alone = record.is_suspect
            if record.is_suspect:
                self._is_turn_of_suspects = False

    def ended(self, leases: Iterable[Lease]) -> bool:
        """Return whether records that were not chosen may start now."""
        for lease in leases:
            self._until.pop(lease, None)
        return self._is_somebody_waiting and not self._is_busy()

    def _forget(self, waiting: Set[UUID]) -> None:
        """A record that waits does not run: its lease was lost."""
        self._until = {
            lease: until for lease, until in self._until.items() if lease.job_id not in waiting
        }

    def _is_busy(self) -> bool:
        """A lease that was lost is never settled, so it counts only for as long as one can run."""
        now = self._seam.monotonic()
        self._until = {lease: until for lease, until in self._until.items() if until > now}
        return bool(self._until)
