"""Each messenger over all live workers: live or down, its last message, what finds jobs without
it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from holdfast.domain.diagnosis.words import counted, lasting
from holdfast.domain.messengers import MessengerStatus
from holdfast.domain.workers import WorkerStatus


class MessengerOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A messenger as `workers` see it, those in `down` without it. `last_seconds` have passed since
    the last message of any of them; None if there was none."""

    name: str
    address: str
    workers: Sequence[str]
    down: Sequence[str] = ()
    down_seconds: float = 0.0
    because: str | None = None
    fallback: str | None = None
    last_seconds: float | None = None

    @property
    def sentence(self) -> str:
        where = f"{self.name} ({self.address})" if self.address else self.name
        if not self.down:
            return f"{where} is live on {counted(len(self.workers), 'worker')}; {self.last}"
        because = f": {self.because}" if self.because else ""
        return (
            f"{where} is down on {len(self.down):,} of {counted(len(self.workers), 'worker')}, for"
            f" {lasting(self.down_seconds)}{because}; fallback: {self.fallback or 'polling'};"
            f" {self.last}"
        )

    @property
    def brief(self) -> str:
        """The same for a narrow line: what matters most comes first."""
        if not self.down:
            live = f"{self.name}: live on {counted(len(self.workers), 'worker')}"
            return "; ".join(filter(None, (live, self.last, self.address)))
        down = f"{self.name}: down on {len(self.down):,} of {counted(len(self.workers), 'worker')}"
        parts = (down, self.fallback or "polling", self.last, self.because, self.address)
        return "; ".join(filter(None, parts))

    @property
    def last(self) -> str:
        if self.last_seconds is None:
            return "no message yet"
        return f"last message {lasting(self.last_seconds)} ago"


def messenger_overviews(workers: Iterable[WorkerStatus]) -> list[MessengerOverview]:
    """Sum up what live workers report, those that are down first. A worker that was lost says
    nothing about the broker."""
    found: defaultdict[tuple[str, str], list[tuple[WorkerStatus, MessengerStatus]]]
    found = defaultdict(list)
    for worker in workers:
        for status in worker.messengers:
            if status.used and not worker.lost:
                found[status.name, status.address].append((worker, status))
    overviews = [_overview(*key, reports) for key, reports in found.items()]
    return sorted(overviews, key=lambda each: (not each.down, each.name, each.address))


def _overview(
    name: str, address: str, reports: Sequence[tuple[WorkerStatus, MessengerStatus]]
) -> MessengerOverview:
    last = [
        status.last_seconds + max(worker.unseen_seconds, 0.0)
        for worker, status in reports
        if status.last_seconds is not None
    ]
    overview: dict[str, Any] = {
        "name": name,
        "address": address,
        "workers": [worker.id for worker, _ in reports],
        "last_seconds": min(last, default=None),
    }
    down = [(worker, status) for worker, status in reports if status.is_down]
    if down:
        worker, longest = max(down, key=lambda each: each[1].since_seconds)
        overview |= {
            "down": [worker.id for worker, _ in down],
            "down_seconds": longest.since_seconds + max(worker.unseen_seconds, 0.0),
            "because": longest.because,
            "fallback": longest.fallback,
        }
    return MessengerOverview(**overview)
