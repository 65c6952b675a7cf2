"""When a failed job is tried again: the policies that people run, and bounds for all others."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.limits import ATTEMPTS_MAX, DELAY_SECONDS_MAX
from holdfast.domain.retry import Retry

MINUTE = 60.0
HOUR = 3600.0
ALMOST_ONE = 1 - 2**-53

PASSPORT = Retry.exponential(max_attempts=5, base=2, factor=2, cap=1024, jitter=0)
WEBHOOKS = Retry.schedule(
    [5, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 10 * HOUR], jitter=0.2
)
CONVERT = Retry.exponential(max_attempts=3, base=10, factor=2, jitter=0, jitter_seconds=5).limit(
    "IO_ERROR", 2
)
COMPUTE = Retry.exponential(max_attempts=5)
DOCUMENTS = Retry.schedule([MINUTE, 5 * MINUTE, 15 * MINUTE])


def delays(retry: Retry, chance: float) -> list[float]:
    """The waits between the first attempt and the last."""
    return [retry.delay_seconds(failed, chance) for failed in range(1, retry.max_attempts)]


@pytest.mark.parametrize(
    ("retry", "least", "middle", "most"),
    [
        (PASSPORT, [2, 4, 8, 16], [2, 4, 8, 16], [2, 4, 8, 16]),
        (
            WEBHOOKS,
            [4, 240, 1440, 5760, 14400, 28800, 28800],
            [5, 300, 1800, 7200, 18000, 36000, 36000],
            [6, 360, 2160, 8640, 21600, 43200, 43200],
        ),
        (CONVERT, [10, 20], [12.5, 22.5], [15, 25]),
        (COMPUTE, [1.8, 3.6, 7.2, 14.4], [2, 4, 8, 16], [2.2, 4.4, 8.8, 17.6]),
        (DOCUMENTS, [60, 300, 900], [60, 300, 900], [60, 300, 900]),
    ],
    ids=["passport", "webhooks", "convert", "compute", "documents"],
)
def test_the_policies_of_the_systems(
    retry: Retry, least: list[float], middle: list[float], most: list[float]
) -> None:
    assert delays(retry, 0.0) == pytest.approx(least)
    assert delays(retry, 0.5) == pytest.approx(middle)
    assert delays(retry, ALMOST_ONE) == pytest.approx(most)


def test_the_passport_delay_stops_growing_at_1024_seconds() -> None:
    assert [PASSPORT.delay_seconds(n, 0.5) for n in (9, 10, 11, 1000)] == [512, 1024, 1024, 1024]


def test_each_code_can_have_a_limit_of_its_own() -> None:
    assert CONVERT.limit_for("IO_ERROR") == 2
    assert CONVERT.limit_for("GW_5XX") is None
    both = CONVERT.limit("GW_5XX", 1)
    assert (both.limit_for("GW_5XX"), both.limit_for("IO_ERROR")) == (1, 2)


def test_four_document_attempts_can_be_three() -> None:
    assert DOCUMENTS.max_attempts == 4
    delays_seconds = [MINUTE, 5 * MINUTE, 15 * MINUTE]
    assert delays(Retry.schedule(delays_seconds, max_attempts=3), 0.5) == [60, 300]


def test_the_last_delay_of_a_schedule_repeats() -> None:
    assert delays(Retry.schedule([1, 5], max_attempts=5), 0.5) == [1, 5, 5, 5]


def test_none_tries_once() -> None:
    assert Retry.none().max_attempts == 1


seconds = st.floats(0, DELAY_SECONDS_MAX)
attempts = st.integers(1, ATTEMPTS_MAX)
chances = st.floats(0, 1, exclude_max=True)
policies = st.builds(
    Retry.exponential,
    max_attempts=attempts,
    base=seconds,
    factor=st.floats(1, allow_infinity=False),
    cap=seconds,
    jitter=st.floats(0, 1),
    jitter_seconds=seconds,
) | st.builds(
    Retry.schedule,
    st.lists(seconds, min_size=1, max_size=20),
    max_attempts=attempts,
    jitter=st.floats(0, 1),
    jitter_seconds=seconds,
)


@settings(deadline=None)
@given(policies, attempts, chances)
def test_every_delay_is_bounded(retry: Retry, failed_attempts: int, chance: float) -> None:
    delay = retry.delay_seconds(failed_attempts, chance)
    assert 0 <= delay <= DELAY_SECONDS_MAX


@settings(deadline=None)
@given(policies, attempts, chances)
def test_jitter_stays_within_its_share(retry: Retry, failed: int, chance: float) -> None:
    plain = Retry(
        max_attempts=retry.max_attempts,
        base_seconds=retry.base_seconds,
        factor=retry.factor,
        cap_seconds=retry.cap_seconds,
        delays=retry.delays,
    ).delay_seconds(failed, 0.5)
    most = plain * (1 + retry.jitter) + retry.jitter_seconds
    slack = 1e-6
    assert plain * (1 - retry.jitter) - slack <= retry.delay_seconds(failed, chance) <= most + slack


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_attempts": 0}, "max_attempts must be 1 to 1000, not 0"),
        ({"max_attempts": 1001}, "max_attempts must be 1 to 1000, not 1001"),
        ({"jitter": -0.1}, "jitter must be 0 to 1"),
        ({"jitter": 1.1}, "jitter must be 0 to 1"),
        ({"jitter": math.nan}, "jitter must be 0 to 1"),
        ({"factor": 0.5}, "factor must be finite and at least 1, not 0.5"),
        ({"factor": math.nan}, "factor must be finite and at least 1, not nan"),
        ({"factor": math.inf}, "factor must be finite and at least 1, not inf"),
        ({"base": -1}, "delays must be 0 to"),
        ({"base": math.nan}, "delays must be 0 to"),
        ({"cap": math.inf}, "delays must be 0 to"),
        ({"jitter_seconds": DELAY_SECONDS_MAX + 1}, "delays must be 0 to"),
    ],
)
def test_a_policy_that_cannot_be_right_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Retry.exponential(**values)


def test_a_schedule_that_cannot_be_right_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="needs at least one delay"):
        Retry.schedule([])
    with pytest.raises(ConfigurationError, match="delays must be 0 to"):
        Retry.schedule([1, -1])


@pytest.mark.parametrize("limit", [0, 4])
def test_a_limit_outside_of_the_policy_is_refused(limit: int) -> None:
    with pytest.raises(ConfigurationError, match=f"the limit for X must be 1 to 3, not {limit}"):
        CONVERT.limit("X", limit)
