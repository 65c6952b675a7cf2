"""Check times that callers pass, read them from text, and format them for people."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.domain.errors import BadArguments
from holdfast.domain.limits import YEAR_MAX, YEAR_MIN

EARLIEST: Final = datetime(YEAR_MIN, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(YEAR_MAX + 1, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)
# Times from a database are clamped to these: a day from Python's limits, so that they can be
# converted to any time zone.
FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)
LAST: Final = datetime(9999, 12, 30, tzinfo=UTC)

UNITS = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
SECONDS_OF: Final = {**dict(UNITS), "m": 60}


def check_time(name: str, value: object) -> None:
    """Reject a time that has no time zone, or is too far away to be meant."""
    if not isinstance(value, datetime):
        raise BadArguments(f"{name} must be a datetime, not {value!r}")
    if value.utcoffset() is None:
        raise BadArguments(f"{name} needs a time zone: datetime(..., tzinfo=...)")
    if not EARLIEST <= value <= LATEST:
        raise BadArguments(
            f"{name} must be between the years {YEAR_MIN} and {YEAR_MAX}, not {value.isoformat()}"
        )


def parse_seconds(text: str) -> float | None:
    """Parse a length of time such as 90s, 15min, 2h or 3d."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|m|h|d)", text)
    return float(match[1]) * SECONDS_OF[match[2]] if match else None


def parse_time(text: str) -> datetime | None:
    """Parse a time in ISO 8601; UTC if it names no time zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time


def parse_moment(text: str, now: datetime) -> datetime | None:
    """Parse a time, or an age: 2h is two hours before `now`."""
    seconds = parse_seconds(text)
    if seconds is None:
        return parse_time(text)
    return now - timedelta(seconds=min(seconds, (now - EARLIEST).total_seconds()))


def relative(then: datetime, now: datetime) -> str:
    """A time relative to now: "3 s ago", "in 5 min"."""
    seconds = (then - now).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"in {distance(seconds)}" if seconds > 0 else f"{distance(-seconds)} ago"


def distance(seconds: float) -> str:
    """A duration of at least a second, in its largest unit."""
    unit, length = next((pair for pair in UNITS if seconds >= pair[1]), UNITS[-1])
    return f"{int(seconds // length)} {unit}"


def exact(moment: datetime) -> str:
    """ISO 8601 in UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
