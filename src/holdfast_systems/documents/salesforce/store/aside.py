"""Records that can't be claimed: they are left out for a while, and the others move up."""

from __future__ import annotations

from typing import Any

from holdfast.store_api import Seam
from holdfast_systems.documents.salesforce.store.limits import ASIDE_MAX, ASIDE_SECONDS
from holdfast_systems.documents.salesforce.store.records import Record


class Aside:
    def __init__(self, seam: Seam) -> None:
        self._seam = seam
        self._until: dict[str, float] = {}
        self._refused: dict[str, tuple[float, int]] = {}
        self._looks = 0
        self._news = ""

    def ids(self) -> list[str]:
        now = self._seam.monotonic()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return list(self._until)

    def put(self, record_id: str, reason: str) -> None:
        _bound(self._until)
        self._until[record_id] = self._seam.monotonic() + ASIDE_SECONDS
        self._refused.pop(record_id, None)
        minutes = round(ASIDE_SECONDS / 60)
        self._news = f"record {record_id} can't be claimed; next try in {minutes} minutes: {reason}"

    def begin_look(self) -> int:
        """A number for what is read from now on."""
        self._looks += 1
        return self._looks

    def refuse(self, record: Record, look: int, reason: str) -> None:
        """Its claim was refused. Once may be a race; again at the same version is none, unless the
        record was read before the first refusal, by a claim beside that one."""
        version, looks = self._refused.get(record.id, (None, 0))
        if version == record.raised_version and look > looks:
            self.put(record.id, reason)
        elif version != record.raised_version:
            _bound(self._refused)
            self._refused[record.id] = record.raised_version, self._looks

    def take_news(self) -> str:
        """The latest that was put aside since the last question."""
        news, self._news = self._news, ""
        return news


def _bound(kept: dict[str, Any]) -> None:
    while len(kept) >= ASIDE_MAX:
        del kept[next(iter(kept))]
