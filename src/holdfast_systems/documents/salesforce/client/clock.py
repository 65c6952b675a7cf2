"""Salesforce's clock, as far as its answers tell: it judges what is due and which lock ran out."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from holdfast.store_api import Seam

JUMP_SECONDS = 5.0
YEARS = range(2000, 3000)


class ServerClock:
    """Reads the Date header of every answer.

    A header tells whole seconds and may be a little old, so it is never ahead of the server: the
    highest reading is the nearest one. One that is far below says that a clock was set.
    """

    def __init__(self, seam: Seam) -> None:
        self._seam = seam
        self._ahead_seconds: float | None = None  # of this machine's monotonic clock

    def read(self, date_header: str | None) -> None:
        told = _moment(date_header or "")
        if told is None:
            return
        ahead = told.timestamp() - self._seam.monotonic()
        known = self._ahead_seconds
        if known is None or ahead > known or ahead < known - JUMP_SECONDS:
            self._ahead_seconds = ahead

    def now(self) -> datetime:
        if self._ahead_seconds is None:
            return self._seam.now()
        return datetime.fromtimestamp(self._seam.monotonic() + self._ahead_seconds, UTC)


def _moment(date_header: str) -> datetime | None:
    """None for what is no date, and for a year in which no such server can be."""
    try:
        told = parsedate_to_datetime(date_header)
    except (ValueError, OverflowError):
        return None
    if told.year not in YEARS:
        return None
    return told if told.tzinfo else told.replace(tzinfo=UTC)
