"""Times as people say and write them."""

from __future__ import annotations

from datetime import UTC, datetime

UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))


def relative(then: datetime, now: datetime) -> str:
    """A distance in time as people say it: "3 s ago", "in 5 min"."""
    seconds = (then - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"in {distance(seconds)}" if seconds > 0 else f"{distance(-seconds)} ago"


def distance(seconds: float) -> str:
    """A length of time of a second or more, in its largest unit."""
    unit, length = next((pair for pair in UNITS if seconds >= pair[1]), UNITS[-1])
    return f"{int(seconds // length)} {unit}"


def exact(moment: datetime) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
