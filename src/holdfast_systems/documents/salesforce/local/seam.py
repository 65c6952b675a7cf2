"""The organization's clock."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    """Tell the time in whole seconds, as fine as a record keeps it."""
    return datetime.now(UTC).replace(microsecond=0)
