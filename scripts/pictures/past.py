"""The shop's past: a month of samples, as if it had been open for so long."""

from __future__ import annotations

import math
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.domain.samples import ALL_QUEUES, RESOLUTIONS, Resolution, bucket
from holdfast.domain.waits import BOUNDS_MS, step_of

DAY_SECONDS: Final = 86400
BUSIEST_HOUR: Final = 14  # UTC
INCIDENT: Final = (25 * 60, 19 * 60)  # how long ago the mail server failed, and was back
FIRST_ERRORS_AGO: Final = timedelta(days=3, hours=5)
SPREAD: Final = {-2: 0.05, -1: 0.2, 0: 0.45, 1: 0.2, 2: 0.07, 3: 0.03}  # of waits, by steps
SAMPLE: Final = """
INSERT OR REPLACE INTO samples (
    seconds, queue, at, ready, scheduled, running, oldest_seconds, succeeded, retried, failed,
    timed, p50_seconds, p95_seconds
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
WAITS: Final = """
INSERT OR REPLACE INTO sample_waits (seconds, queue, at, up_to_ms, jobs) VALUES (?, ?, ?, ?, ?)
"""


class Queue(NamedTuple):
    """How many jobs come in a second, how many of them fail, and how long they take."""

    name: str
    per_second: float
    failing: float
    p50_seconds: float
    p95_seconds: float
    scheduled: int = 0


# As they are while the pictures are taken.
QUEUES: Final = (
    Queue("mail", 52, 0.027, 0.019, 0.031),
    Queue("images", 2, 0.019, 0.23, 0.39),
    Queue("reports", 2, 0.14, 1.25, 1.92, scheduled=30),
    Queue("payments", 2, 0.004, 0.2, 0.29),
)


class Sample(NamedTuple):
    ready: int
    scheduled: int
    running: int
    oldest_seconds: float
    succeeded: int
    retried: int
    failed: int
    p50_seconds: float
    p95_seconds: float
    waits: Counter[int]  # by the end of their step


def write_samples(database: Path, now: datetime) -> None:
    """Write all samples up to this time, over those of a shop that was just opened."""
    chance = random.Random(2026)
    present = now.timestamp()
    with sqlite3.connect(database, timeout=30) as connection:
        for resolution in RESOLUTIONS:
            for at in _starts(resolution, present):
                samples = {
                    each.name: _sample(each, resolution, at, present, chance) for each in QUEUES
                }
                samples[ALL_QUEUES] = _together(list(samples.values()))
                for queue, sample in samples.items():
                    _write(connection, resolution, queue, at, sample)


def age_errors(database: Path, now: datetime) -> None:
    """Let the groups of errors be as old as the samples suggest."""
    first_seen = (now - FIRST_ERRORS_AGO).astimezone(UTC).isoformat(timespec="microseconds")
    with sqlite3.connect(database, timeout=30) as connection:
        connection.execute(
            "UPDATE error_groups SET first_seen = ?", (first_seen.replace("+00:00", "Z"),)
        )


def _starts(resolution: Resolution, present: float) -> range:
    last = bucket(present, resolution.seconds)
    return range(last - resolution.kept_seconds, last, resolution.seconds)


def _demand(at: float) -> float:
    """How busy the shop is: less at night, and on weekends."""
    time = datetime.fromtimestamp(at, UTC)
    hour = time.hour + time.minute / 60
    day = 1 + 0.6 * math.cos((hour - BUSIEST_HOUR) / 24 * 2 * math.pi)
    return day * (0.7 if time.weekday() >= 5 else 1)


def _sample(
    queue: Queue, resolution: Resolution, at: int, present: float, chance: random.Random
) -> Sample:
    began, ended = INCIDENT
    ago = present - at
    trouble = queue.name == "mail" and ended < ago <= began
    # What had to wait meanwhile is done soon after.
    catching_up = queue.name == "mail" and ended - 240 < ago <= ended
    rate = queue.per_second * _demand(at) / _demand(present) * chance.uniform(0.9, 1.1)
    rate *= 0.35 if trouble else 1.5 if catching_up else 1
    jobs = _round(rate * resolution.seconds, chance)
    failed = _round(jobs * queue.failing * (8 if trouble else 1), chance)
    retried = _round(jobs * (0.15 if trouble else 0.004), chance)
    backlog = (began - ago) * 20 if trouble else (ago - ended + 240) * 30 if catching_up else 0
    oldest = backlog / 150 + chance.uniform(0.01, 0.2) * queue.p95_seconds
    slower = chance.uniform(0.92, 1.12) * (2.4 if trouble else 1)
    in_bursts = chance.uniform(0.5, 1.5) if chance.random() < 0.6 else chance.uniform(3, 15)
    return Sample(
        ready=_round(backlog + chance.uniform(0, rate / 4), chance),
        scheduled=queue.scheduled,
        running=min(_round(rate * queue.p50_seconds * slower * in_bursts, chance), 20),
        oldest_seconds=oldest,
        succeeded=max(jobs - failed, 0),
        retried=retried,
        failed=failed,
        p50_seconds=queue.p50_seconds * slower,
        p95_seconds=queue.p95_seconds * slower * chance.uniform(0.95, 1.1),
        waits=_waits(jobs, 0.004 * chance.uniform(0.9, 1.8) + backlog / 400, chance),
    )


def _round(number: float, chance: random.Random) -> int:
    """A whole number that is right on average."""
    return int(number) + (chance.random() < number % 1)


def _waits(jobs: int, median_seconds: float, chance: random.Random) -> Counter[int]:
    middle = step_of(median_seconds)
    waits: Counter[int] = Counter()
    for step, share in SPREAD.items():
        waits[BOUNDS_MS[max(middle + step, 0)]] += _round(jobs * share, chance)
    return waits


def _together(samples: Sequence[Sample]) -> Sample:
    jobs = [each.succeeded + each.failed for each in samples]
    medians = zip(samples, jobs, strict=True)
    return Sample(
        ready=sum(each.ready for each in samples),
        scheduled=sum(each.scheduled for each in samples),
        running=sum(each.running for each in samples),
        oldest_seconds=max(each.oldest_seconds for each in samples),
        succeeded=sum(each.succeeded for each in samples),
        retried=sum(each.retried for each in samples),
        failed=sum(each.failed for each in samples),
        p50_seconds=sum(each.p50_seconds * weight for each, weight in medians) / max(sum(jobs), 1),
        p95_seconds=0.31 / 0.29 * samples[-1].p95_seconds,
        waits=sum((each.waits for each in samples), Counter()),
    )


def _write(
    connection: sqlite3.Connection, resolution: Resolution, queue: str, at: int, sample: Sample
) -> None:
    *values, p50_seconds, p95_seconds, waits = sample
    timed = sample.succeeded + sample.failed
    connection.execute(
        SAMPLE, (resolution.seconds, queue, at, *values, timed, p50_seconds, p95_seconds)
    )
    connection.executemany(WAITS, _rows(resolution, queue, at, waits))


def _rows(
    resolution: Resolution, queue: str, at: int, waits: Counter[int]
) -> Iterator[tuple[int, str, int, int, int]]:
    for up_to_ms, jobs in waits.items():
        if jobs:
            yield resolution.seconds, queue, at, up_to_ms, jobs
