"""Read the Retry-After header of a response (RFC 9110): seconds, or a date."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from holdfast.webhooks.limits import RETRY_AFTER_SECONDS_MAX

_SECONDS: Final = re.compile(r"[0-9]+")


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how long the receiver asks to wait, up to a limit, or None if it does not say.

    A date counts from the response's own Date, so that the receiver's clock need not be right.
    """
    text = headers.get("Retry-After", "").strip()
    if _SECONDS.fullmatch(text):
        seconds = float(text[:400])  # more digits would be infinite, too
    else:
        until, sent = _date(text), _date(headers.get("Date", ""))
        if until is None or sent is None:
            return None
        seconds = (until - sent).total_seconds()
    return min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX)


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return date.replace(tzinfo=UTC) if date.tzinfo is None else date
