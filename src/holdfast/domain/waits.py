"""How long jobs had been due when they were claimed, as counts on a scale with fixed steps.

Counts of two processes, or of two spans of time, are added to get those of both. So percentiles are
right for any span, up to the width of a step: no step is more than twice the one before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple

_STEPS: Final = 46  # five for each power of ten: 1 ms, 2, 3, 4, 6, 10 ... and at last 11 days
BOUNDS_MS: Final = tuple(round(10 ** (step / 5)) for step in range(_STEPS))
_BOUNDS: Final = tuple(each / 1000 for each in BOUNDS_MS[:-1])
_BELOW: Final = dict(zip(BOUNDS_MS, (0, *BOUNDS_MS), strict=False))

# How many jobs waited up to a number of milliseconds, and longer than the step below it.
Waits = Mapping[int, int]


class Percentiles(NamedTuple):
    p50_seconds: float
    p95_seconds: float
    p99_seconds: float


def step_of(seconds: float) -> int:
    """Where this wait is counted. The last step has all that are longer."""
    return bisect_left(_BOUNDS, seconds)


def percentiles(waits: Waits) -> Percentiles | None:
    """None if no job was claimed."""
    total = sum(waits.values())
    if total <= 0:
        return None
    return Percentiles(*(_percentile(waits, share * total) for share in (0.5, 0.95, 0.99)))


def _percentile(waits: Waits, rank: float) -> float:
    """The wait that `rank` jobs did not exceed, as if those of a step were spread evenly."""
    up_to_ms = 0
    for up_to_ms, jobs in sorted(waits.items()):
        if rank <= jobs:
            low = _BELOW[up_to_ms]
            return (low + (up_to_ms - low) * rank / jobs) / 1000
        rank -= jobs
    return up_to_ms / 1000
