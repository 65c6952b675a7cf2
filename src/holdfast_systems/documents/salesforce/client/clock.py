"""Salesforce's clock, which decides what is due and which locks have expired."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from holdfast.store_api import Seam

JUMP_SECONDS = 5.0
YEARS = range(2000, 3000)


class ServerClock:
    """Reads the Date header of every answer.

    A header has whole seconds and may be a little old, so it is never ahead of the server, and the
    highest reading is the most accurate. A much lower one means that a clock was set back.
    """

    def __init__(self, seam: Seam) -> None:
        self._seam = seam
        self._ahead_seconds: float | None = None  # of this machine's monotonic clock

    def read(self, date_header: str | None) -> None:
        date = _parse(date_header or "")
        if date is None:
            return
        ahead = date.timestamp() - self._seam.monotonic()
        known = self._ahead_seconds
        if known is None or ahead > known or ahead < known - JUMP_SECONDS:
            self._ahead_seconds = ahead

    def now(self) -> datetime:
        if self._ahead_seconds is None:
            return self._seam.now()
        return datetime.fromtimestamp(self._seam.monotonic() + self._ahead_seconds, UTC)


def _parse(date_header: str) -> datetime | None:
    """Parse a date; None if it is invalid or its year is implausible."""
    try:
        date = parsedate_to_datetime(date_header)
    except (ValueError, OverflowError):
        return None
    if date.year not in YEARS:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
