"""Records that can't be claimed are set aside for a while, so that others can be."""

from __future__ import annotations

from typing import Any

from holdfast.store_api import Seam
from holdfast_systems.documents.salesforce.store.limits import ASIDE_MAX, ASIDE_SECONDS
from holdfast_systems.documents.salesforce.store.records import Record


class Aside:
    """The records that this process has set aside."""

    def __init__(self, seam: Seam) -> None:
        self._seam = seam
        self._until: dict[str, float] = {}
        self._refused: dict[str, tuple[float, int]] = {}
        self._polls = 0
        self._news = ""

    def ids(self) -> list[str]:
        now = self._seam.monotonic()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return list(self._until)

    def add(self, record_id: str, reason: str) -> None:
        _bound(self._until)
        self._until[record_id] = self._seam.monotonic() + ASIDE_SECONDS
        self._refused.pop(record_id, None)
        minutes = round(ASIDE_SECONDS / 60)
        self._news = f"record {record_id} can't be claimed; next try in {minutes} minutes: {reason}"

    def begin_poll(self) -> int:
        """Number the next poll of the queue."""
        self._polls += 1
        return self._polls

    def refuse(self, record: Record, poll: int, reason: str) -> None:
        """Note a refused claim, and set the record aside if this was no race.

        The first refusal may be one. A second one at the same version is not, unless a concurrent
        claim read the record before the first refusal.
        """
        version, polls = self._refused.get(record.id, (None, 0))
        if version == record.raised_version and poll > polls:
            self.add(record.id, reason)
        elif version != record.raised_version:
            _bound(self._refused)
            self._refused[record.id] = record.raised_version, self._polls

    def take_news(self) -> str:
        """Return a sentence about the latest record set aside, once."""
        news, self._news = self._news, ""
        return news


def _bound(kept: dict[str, Any]) -> None:
    while len(kept) >= ASIDE_MAX:
        del kept[next(iter(kept))]
