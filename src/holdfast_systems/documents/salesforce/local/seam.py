"""The organization's clock."""

from datetime import UTC, datetime


def now() -> datetime:
    """Return the time in whole seconds, which is the resolution of a record."""
    return datetime.now(UTC).replace(microsecond=0)
