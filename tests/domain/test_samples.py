"""Which samples a chart reads, and where it has gaps: for every span that anybody may ask for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.samples import (
    FINEST,
    RESOLUTIONS,
    Ended,
    Sample,
    bucket,
    choose_span,
    moment_of,
    rate,
    with_gaps,
)

NOW = datetime(2026, 11, 18, 20, 0, 7, tzinfo=UTC)
SECONDS = st.integers(1, 40 * 86400)
COUNTS = st.integers(0, 1000)
ENDED = st.builds(
    Ended,
    queue=st.just("mail"),
    succeeded=COUNTS,
    retried=COUNTS,
    failed=COUNTS,
    canceled=COUNTS,
    timed=COUNTS,
    p50_seconds=st.floats(0, 1000),
    p95_seconds=st.floats(0, 1000),
    waits=st.dictionaries(st.sampled_from((1, 10, 1000)), st.integers(1, 1000)),
)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


@given(SECONDS, st.integers(0, 86400), st.integers(1, 1000))
def test_a_span_has_no_more_points_than_asked_for_and_only_whole_samples(
    length: int, end: int, points: int
) -> None:
    span = choose_span(ago(length + end), ago(end), NOW, points)
    assert len(span.starts) <= points
    assert span.resolution in RESOLUTIONS
    assert span.step_seconds % span.resolution.seconds == 0
    assert span.since % span.step_seconds == span.until % span.step_seconds == 0
    assert span.until <= NOW.timestamp() + span.step_seconds


@given(SECONDS, st.integers(1, 1000))
def test_a_span_reads_the_finest_samples_that_are_kept_so_long(length: int, points: int) -> None:
    span = choose_span(ago(length), NOW, NOW, points)
    kept = [each for each in RESOLUTIONS if length <= each.kept_seconds]
    assert span.resolution == (kept[0] if kept else RESOLUTIONS[-1])


def test_the_usual_charts_have_round_steps() -> None:
    steps = {
        hours: choose_span(ago(hours * 3600), NOW, NOW, 120).step_seconds
        for hours in (1, 24, 168, 720)
    }
    assert steps == {1: 30, 24: 720, 168: 5400, 720: 21600}


def test_a_span_in_the_future_is_empty() -> None:
    span = choose_span(ago(-3600), ago(-7200), NOW, 10)
    assert not span.starts


@given(st.sets(st.integers(0, 59)))
def test_what_was_not_sampled_stays_unknown(found: set[int]) -> None:
    span = choose_span(ago(600), NOW, NOW, 60)
    starts = list(span.starts)
    samples = [Sample(at=moment_of(starts[place]), ready=place) for place in sorted(found)]
    filled = with_gaps(span, samples)
    assert [each.at for each in filled] == [moment_of(start) for start in starts]
    ready = [each.ready for each in filled]
    assert ready == [place if place in found else None for place in range(60)]


@given(st.lists(ENDED, min_size=1, max_size=6))
def test_adding_keeps_every_count_and_the_median_between_those_of_its_parts(
    parts: list[Ended],
) -> None:
    total = Ended("mail")
    for part in parts:
        total.add(part)
    for name in ("succeeded", "retried", "failed", "canceled", "timed"):
        assert getattr(total, name) == sum(getattr(part, name) for part in parts)
    assert total.p95_seconds == max(part.p95_seconds for part in parts)
    for up_to_ms in (1, 10, 1000):
        jobs = sum(part.waits.get(up_to_ms, 0) for part in parts)
        assert total.waits.get(up_to_ms, 0) == jobs
    timed = [part.p50_seconds for part in parts if part.timed]
    if timed:
        assert min(timed) - 1e-6 <= total.p50_seconds <= max(timed) + 1e-6


def test_a_bucket_begins_at_a_multiple_of_its_length() -> None:
    assert [bucket(moment, 10) for moment in (0, 9.999, 10, 25, -0.5)] == [0, 0, 10, 20, -10]


def test_the_coarser_a_sample_the_longer_it_is_kept() -> None:
    for fine, coarse in pairwise(RESOLUTIONS):
        assert coarse.seconds % fine.seconds == 0
        assert fine.kept_seconds > coarse.seconds + 2 * FINEST.seconds
        assert coarse.kept_seconds > fine.kept_seconds
    points = sum(each.kept_seconds // each.seconds for each in RESOLUTIONS)
    assert points == 6480


def test_a_rate_needs_a_sample() -> None:
    assert (rate(30, 10), rate(None, 0), rate(3, 0)) == (3.0, None, None)
