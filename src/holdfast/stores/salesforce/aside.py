"""Records that can't be claimed: they are left out for a while, and the others move up."""

from __future__ import annotations

from holdfast.seam import Seam
from holdfast.stores.salesforce.limits import ASIDE_MAX, ASIDE_SECONDS
from holdfast.stores.salesforce.records import Record


class Aside:
    def __init__(self, seam: Seam) -> None:
        self._seam = seam
        self._until: dict[str, float] = {}
        self._refused: dict[str, float] = {}
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

    def refuse(self, record: Record, reason: str) -> None:
        """Its claim was refused. Once may be a race; twice at the same version is none."""
        if self._refused.get(record.id) == record.raised_version:
            self.put(record.id, reason)
        else:
            _bound(self._refused)
            self._refused[record.id] = record.raised_version

    def take_news(self) -> str:
        """The latest that was put aside since the last question."""
        news, self._news = self._news, ""
        return news


def _bound(kept: dict[str, float]) -> None:
    while len(kept) >= ASIDE_MAX:
        del kept[next(iter(kept))]
