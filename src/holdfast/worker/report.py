"""Counts of what a worker did."""

from __future__ import annotations

from dataclasses import dataclass, fields

from holdfast.domain.job import Settlement
from holdfast.domain.outcomes import HANDED_BACK
from holdfast.domain.states import State

SUCCEEDED = State.SUCCEEDED  # looked up once: that takes longer than to count


@dataclass(slots=True)
class WorkerReport:
    """How many attempts of a worker ended in which way."""

    succeeded: int = 0
    failed: int = 0
    dead: int = 0
    canceled: int = 0
    retried: int = 0
    snoozed: int = 0
    parked: int = 0
    released: int = 0
    handed_back: int = 0
    lost: int = 0

    def count(self, what: str) -> None:
        """Add one to this count."""
        setattr(self, what, getattr(self, what) + 1)

    def __iadd__(self, other: WorkerReport) -> WorkerReport:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
        return self

    def __str__(self) -> str:
        counts = [(each.name.replace("_", " "), getattr(self, each.name)) for each in fields(self)]
        return ", ".join(f"{count} {name}" for name, count in counts if count) or "nothing to do"


def verb(settlement: Settlement) -> str:
    """Name a settlement: its end state, or why the job went back to its queue."""
    if settlement.state is SUCCEEDED:
        return "succeeded"
    if settlement.state is not State.QUEUED:
        return str(settlement.state)
    if settlement.snoozed:
        return "snoozed" if settlement.error_code is None else "parked"
    if settlement.error_code == HANDED_BACK:
        return "handed_back"
    return "released" if settlement.attempt_back else "retried"
