"""Samples: how queues were doing every ten seconds, and more coarsely for longer.

A sample is taken of a bucket: a span of time that begins at a multiple of its length. Buckets of
ten seconds are rolled up into minutes, and these into quarters of an hour.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from holdfast.domain.errors import BadArguments
from holdfast.domain.limits import SAMPLE_POINTS_MAX
from holdfast.domain.states import State
from holdfast.domain.texts import check_range
from holdfast.domain.times import check_time

ALL_QUEUES: Final = ""


class Resolution(NamedTuple):
    """The length of a bucket, and how long its samples are kept."""

    seconds: int
    kept_seconds: int


RESOLUTIONS: Final = (
    Resolution(10, 2 * 3600),
    Resolution(60, 2 * 86400),
    Resolution(900, 30 * 86400),
)
FINEST: Final = RESOLUTIONS[0]
_COARSEST: Final = RESOLUTIONS[-1]


# Which of an attempt's outcomes a sample counts as what. The others leave a job as it was.
COUNTED_AS: Final[dict[str, str]] = {
    State.SUCCEEDED: "succeeded",
    "retried": "retried",
    State.FAILED: "failed",
    State.DEAD: "failed",
    State.CANCELED: "canceled",
}


class Ended(msgspec.Struct):
    """What the attempts of a queue came to. The percentiles are those of the attempts that were
    `timed`; `waits` are those of the jobs that were claimed."""

    queue: str
    succeeded: int = 0
    retried: int = 0
    failed: int = 0
    canceled: int = 0
    timed: int = 0
    p50_seconds: float = 0.0
    p95_seconds: float = 0.0
    waits: dict[int, int] = {}

    def add(self, other: Ended) -> None:
        """Add what other attempts of the same queue came to, as the database does."""
        timed = self.timed + other.timed
        if timed:
            total = self.p50_seconds * self.timed + other.p50_seconds * other.timed
            self.p50_seconds = total / timed
        self.p95_seconds = max(self.p95_seconds, other.p95_seconds)
        self.timed = timed
        self.succeeded += other.succeeded
        self.retried += other.retried
        self.failed += other.failed
        self.canceled += other.canceled
        self.waits = dict(Counter(self.waits) + Counter(other.waits))


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """How queues were doing in the span that begins at `at`: depths, the age of the oldest due job
    and the time that attempts took, in seconds, and what attempts came to.

    Depths, age and `p95_seconds` are the worst of the span. The median is that of its parts,
    weighted. The percentiles of waits are from when a job was due until it was claimed. All are
    None if nobody took a sample, and the times also if no attempt ended or no job was claimed.
    `covered_seconds` says how much of the span was sampled: divide counts by it to get rates.
    """

    at: datetime
    covered_seconds: int = 0
    ready: int | None = None
    scheduled: int | None = None
    parked: int | None = None
    running: int | None = None
    oldest_seconds: float | None = None
    succeeded: int | None = None
    retried: int | None = None
    failed: int | None = None
    canceled: int | None = None
    p50_seconds: float | None = None
    p95_seconds: float | None = None
    wait_p50_seconds: float | None = None
    wait_p95_seconds: float | None = None
    wait_p99_seconds: float | None = None


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of one queue, or of all queues together, without gaps in time: oldest first, each
    `step_seconds` after the one before."""

    queue: str | None
    since: datetime
    until: datetime
    step_seconds: int
    samples: Sequence[Sample]


class QueueSamples(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of all queues that had jobs, by queue."""

    since: datetime
    until: datetime
    step_seconds: int
    queues: dict[str, Sequence[Sample]]


class Span(NamedTuple):
    """Which samples to read, and how many seconds of them make one point. Times are in seconds
    since 1970."""

    resolution: Resolution
    since: int
    until: int
    step_seconds: int

    @property
    def starts(self) -> range:
        return range(self.since, self.until, self.step_seconds)


def bucket(moment: float, seconds: int) -> int:
    """When the bucket of this moment begins."""
    return math.floor(moment / seconds) * seconds


def choose_span(since: datetime, until: datetime, now: datetime, points: int) -> Span:
    """Choose the finest samples that reach back to `since`, and how many of them make one point, so
    that there are at most this many points. Ends with the newest samples that are complete."""
    check_range("points", points, 1, SAMPLE_POINTS_MAX, int, BadArguments)
    check_time("since", since)
    check_time("until", until)
    if until <= since:
        raise BadArguments("until must be after since")
    first, present = since.timestamp(), now.timestamp()
    resolution = next(
        (each for each in RESOLUTIONS if first >= present - each.kept_seconds), _COARSEST
    )
    first = max(first, present - resolution.kept_seconds)
    # A coarse sample is there once the first fine one after it has been taken.
    delay = 0 if resolution is FINEST else FINEST.seconds
    last = min(until.timestamp(), bucket(present - delay, resolution.seconds))
    parts = math.ceil((last - first) / points / resolution.seconds)
    step = resolution.seconds * max(parts, 1)
    begins, ends = bucket(first, step), -bucket(-last, step)
    return Span(resolution, max(begins, ends - step * points), max(ends, begins), step)


def moment_of(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def with_gaps(span: Span, found: Iterable[Sample]) -> list[Sample]:
    """One sample for each start in the span: without values where none was found."""
    known = {each.at: each for each in found}
    return [known.get(at) or Sample(at=at) for at in map(moment_of, span.starts)]


def rate(count: int | None, covered_seconds: int) -> float | None:
    """How many there were per second; None if no sample tells."""
    return None if count is None or covered_seconds <= 0 else count / covered_seconds
