"""How long jobs waited: counts on a scale. Percentiles are right up to the width of a step."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.waits import BOUNDS_MS, percentiles, step_of

SECONDS = st.one_of(st.floats(0, 0.01), st.floats(0, 10), st.floats(0, BOUNDS_MS[-1] / 1000))


def counted(seconds: list[float]) -> Counter[int]:
    return Counter(BOUNDS_MS[step_of(each)] for each in seconds)


@given(st.lists(SECONDS, min_size=1, max_size=200))
def test_percentiles_are_within_the_step_of_the_real_ones(seconds: list[float]) -> None:
    ordered = sorted(seconds)
    found = percentiles(counted(seconds))
    assert found is not None
    for share, value in zip((0.5, 0.95, 0.99), found, strict=True):
        real = ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
        assert real / 2 - 0.001 <= value <= real * 2 + 0.001


@given(st.lists(SECONDS, min_size=1), st.lists(SECONDS, min_size=1))
def test_counts_of_two_spans_add_up_to_those_of_both(one: list[float], two: list[float]) -> None:
    assert percentiles(counted(one) + counted(two)) == percentiles(counted(one + two))


@pytest.mark.parametrize(
    ("seconds", "up_to_ms"),
    [(-1.0, 1), (0.0, 1), (0.001, 1), (0.0011, 2), (1.0, 1000), (float("inf"), BOUNDS_MS[-1])],
)
def test_every_wait_has_a_step(seconds: float, up_to_ms: int) -> None:
    assert BOUNDS_MS[step_of(seconds)] == up_to_ms


def test_no_step_is_more_than_twice_the_one_before() -> None:
    assert all(low < high <= 2 * low for low, high in pairwise(BOUNDS_MS))
    assert BOUNDS_MS[-1] < 2**31  # what the column holds


def test_without_jobs_there_are_no_percentiles() -> None:
    assert percentiles({}) is None
