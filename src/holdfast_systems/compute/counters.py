"""What the workers received, completed and abandoned, and how long the AppServer takes."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Counts(msgspec.Struct, frozen=True):
    """Attempts. What was received, but is not in the others, is running, or was stopped or lost."""

    received: int = 0
    completed: int = 0
    abandoned: int = 0  # failed, and to be retried
    failed: int = 0  # failed, and the job with it
    solved: int = 0  # completed by a call to the AppServer, not with a result that was there
    latency_ms: float = 0.0  # of all these calls

    @property
    def average_latency_ms(self) -> float | None:
        return round(self.latency_ms / self.solved, 1) if self.solved else None


RECEIVED = Counts(received=1)
ABANDONED = Counts(abandoned=1)
FAILED = Counts(failed=1)


def completed(latency_ms: float | None) -> Counts:
    """Without a latency, the result was there already."""
    if latency_ms is None:
        return Counts(completed=1)
    return Counts(completed=1, solved=1, latency_ms=latency_ms)


class DefinitionCounts(Counts, frozen=True, kw_only=True):
    definition: str
    version: str


def total(each: Iterable[Counts]) -> Counts:
    rows = list(each)
    return Counts(*(sum(getattr(row, name) for row in rows) for name in Counts.__struct_fields__))
