"""The charts of queues over time, made from samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from markupsafe import Markup

from holdfast.dashboard.charts import (
    Format,
    Line,
    Times,
    Values,
    bar_chart,
    counts,
    durations,
    line_chart,
    sparkline,
    stacked,
)
from holdfast.dashboard.format import duration, number
from holdfast.domain.errors import HoldfastError
from holdfast.domain.samples import QueueSamples, Sample, Samples, rate
from holdfast.operations.samples import SampleReader

MINUTE: Final = 60


class Range(NamedTuple):
    """How far back charts go, and in how many points."""

    key: str
    title: str
    span: timedelta
    points: int


RANGES: Final = (
    Range("1h", "1 hour", timedelta(hours=1), 120),
    Range("24h", "24 hours", timedelta(days=1), 144),
    Range("7d", "7 days", timedelta(days=7), 168),
    Range("30d", "30 days", timedelta(days=30), 180),
)


class Legend(NamedTuple):
    name: str
    tone: str


class Trend(NamedTuple):
    """A chart, with what it says now."""

    key: str
    title: str
    now: str
    unit: str
    svg: Markup
    legend: Sequence[Legend] = ()


class QueueTrend(NamedTuple):
    """What a row of the table of queues shows of its last hour."""

    per_minute: float | None
    failed_per_minute: float | None
    p95_seconds: float | None
    throughput: Markup
    waiting: Markup


def find_range(key: str | None) -> Range:
    return next((each for each in RANGES if each.key == key), RANGES[0])


async def read_samples(
    reader: SampleReader, chosen: Range, now: datetime, queue: str | None = None
) -> Samples | None:
    """None if this database keeps no samples, or not yet."""
    try:
        return await reader.get(queue, since=now - chosen.span, until=now, points=chosen.points)
    except HoldfastError:
        return None


async def read_queue_trends(reader: SampleReader) -> dict[str, QueueTrend]:
    try:
        found = await reader.by_queue()
    except HoldfastError:
        return {}
    return queue_trends(found)


def queue_trends(found: QueueSamples) -> dict[str, QueueTrend]:
    return {name: _queue_trend(name, samples) for name, samples in found.queues.items()}


def _queue_trend(name: str, samples: Sequence[Sample]) -> QueueTrend:
    worked = per_minute(samples, lambda each: each.succeeded)
    failed = per_minute(samples, lambda each: each.failed)
    return QueueTrend(
        _last(worked),
        _last(failed),
        _last([each.p95_seconds for each in samples]),
        sparkline(f"Succeeded per minute in {name}", worked),
        sparkline(f"Waiting in {name}", [each.ready for each in samples], "soft"),
    )


def trends(samples: Samples) -> list[Trend]:
    """What operators watch, in the order of the page."""
    each = samples.samples
    times = Times(samples.since, samples.step_seconds, len(each))
    return [
        _throughput(each, times),
        _failures(each, times),
        _run_times(each, times),
        _waits(each, times),
        _waiting(each, times),
        _oldest(each, times),
        _running(each, times),
    ]


def _throughput(samples: Sequence[Sample], times: Times) -> Trend:
    values = per_minute(samples, lambda each: each.succeeded)
    line = Line("Succeeded per minute", "main", values, is_area=True)
    svg = line_chart("Throughput", [line], times, counts([values]))
    return Trend("throughput", "Throughput", _now(values, number), "per minute", svg)


def _failures(samples: Sequence[Sample], times: Times) -> Trend:
    parts = [
        Line("Failed", "bad", per_minute(samples, lambda each: each.failed)),
        Line("Retried", "warn", per_minute(samples, lambda each: each.retried)),
    ]
    svg = bar_chart("Failures per minute", parts, times, counts(stacked(parts)))
    total = _sum_now(parts)
    return Trend("failures", "Failures", total, "per minute", svg, _legend(parts))


def _run_times(samples: Sequence[Sample], times: Times) -> Trend:
    lines = [
        Line("p95", "main", [each.p95_seconds for each in samples]),
        Line("Median", "soft", [each.p50_seconds for each in samples]),
    ]
    svg = line_chart("Run time", lines, times, durations([line.values for line in lines]))
    shown = _now(lines[0].values, duration)
    return Trend("run-time", "Run time", shown, "p95", svg, _legend(lines))


def _waits(samples: Sequence[Sample], times: Times) -> Trend:
    """How long jobs waited that were claimed, from when they were due."""
    lines = [
        Line("p99", "warn", [each.wait_p99_seconds for each in samples]),
        Line("p95", "main", [each.wait_p95_seconds for each in samples]),
        Line("Median", "soft", [each.wait_p50_seconds for each in samples]),
    ]
    svg = line_chart("Time to start", lines, times, durations([line.values for line in lines]))
    shown = _now(lines[1].values, duration)
    return Trend("wait", "Time to start", shown, "p95", svg, _legend(lines))


def _waiting(samples: Sequence[Sample], times: Times) -> Trend:
    lines = [
        Line("Ready", "main", [each.ready for each in samples], is_area=True),
        Line("Parked", "warn", [each.parked for each in samples]),
    ]
    svg = line_chart("Waiting jobs", lines, times, counts([line.values for line in lines]))
    shown = _now(lines[0].values, number)
    return Trend("waiting", "Waiting", shown, "jobs ready", svg, _legend(lines))


def _oldest(samples: Sequence[Sample], times: Times) -> Trend:
    values = [each.oldest_seconds for each in samples]
    line = Line("Longest wait", "main", values, is_area=True)
    svg = line_chart("Longest wait", [line], times, durations([values]))
    return Trend("oldest", "Longest wait", _now(values, duration), "of a job that is due", svg)


def _running(samples: Sequence[Sample], times: Times) -> Trend:
    values = [each.running for each in samples]
    line = Line("Running", "main", values, is_area=True)
    svg = line_chart("Running jobs", [line], times, counts([values]))
    return Trend("running", "Running", _now(values, number), "jobs", svg)


def per_minute(samples: Sequence[Sample], count: Callable[[Sample], int | None]) -> Values:
    rates = [rate(count(each), each.covered_seconds) for each in samples]
    return [None if each is None else each * MINUTE for each in rates]


def _last(values: Values) -> float | None:
    """The newest value that is known."""
    return next((value for value in reversed(values) if value is not None), None)


def _now(values: Values, show: Format) -> str:
    last = _last(values)
    return "\N{EN DASH}" if last is None else show(last)


def _sum_now(parts: Sequence[Line]) -> str:
    known = [last for part in parts if (last := _last(part.values)) is not None]
    return number(sum(known)) if known else "\N{EN DASH}"


def _legend(lines: Sequence[Line]) -> list[Legend]:
    return [Legend(line.name, line.tone) for line in lines]
