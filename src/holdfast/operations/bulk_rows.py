"""Rows of the bulk change tables."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast.domain.bulk import BulkAction, BulkChange, BulkCount, BulkState, measured_rate
from holdfast.domain.job import Filter

_INSERTED: Final = (
    "id", "tenant", "action", "again", "jobs_per_second", "because", "total", "capped",
    "requeued_before",
)  # fmt: skip


class JobIdRow(msgspec.Struct, frozen=True):
    job_id: UUID


class BulkRow(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    tenant: str | None
    action: BulkAction
    state: BulkState
    filter: str | None
    again: bool
    jobs_per_second: float | None
    made_by: str | None
    because: str | None
    total: int
    capped: bool
    requeued_before: int
    counts: str
    done: int
    changed: int
    requeued_already: int
    moved_on: int
    refused: int
    created_at: datetime
    started_at: datetime | None
    running_since: datetime | None
    running_from: int
    ended_at: datetime | None
    error_text: str | None
    next_step_at: datetime | None
    read_at: datetime

    def change(self) -> BulkChange:
        values = {
            name: getattr(self, name)
            for name in self.__struct_fields__
            if name in BulkChange.__struct_fields__
        }
        values["filter"] = self.filter and msgspec.json.decode(self.filter, type=Filter)
        values["counts"] = msgspec.json.decode(self.counts, type=tuple[BulkCount, ...])
        rate = self._rate()
        left = self._seconds_left(rate or self.jobs_per_second)
        return BulkChange(**values, by=self.made_by, rate=rate, seconds_left=left)

    def _rate(self) -> float | None:
        if self.running_since is None or self.state is not BulkState.RUNNING:
            return None
        seconds = (self.read_at - self.running_since).total_seconds()
        return measured_rate(self.done - self.running_from, seconds)

    def _seconds_left(self, rate: float | None) -> float | None:
        if rate is None or self.ended_at is not None:
            return None
        return (self.total - self.done) / rate


def values_of(change: BulkChange, kept_seconds: float) -> dict[str, Any]:
    """The values of `insert_bulk_change`."""
    return {
        **{name: getattr(change, name) for name in _INSERTED},
        "made_by": change.by,
        "filter": change.filter and msgspec.json.encode(change.filter).decode(),
        "counts": msgspec.json.encode(change.counts).decode(),
        "kept_seconds": kept_seconds,
    }
