"""What follows from an attempt."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Retry
from holdfast.webhooks import STANDARD, limits
from holdfast.webhooks.policy import GONE, Delivered, GiveUp, TryAgain, decide, is_refusal
from tests.support.processes import ROOT
from tests.webhooks.shop import make_policy

pytestmark = pytest.mark.heavy

MINUTE = 60
HOUR = 3600


def test_by_default_a_saga_is_tried_eight_times_over_a_day_with_a_fifth_of_jitter() -> None:
    plain = [5, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 10 * HOUR]
    assert STANDARD.max_attempts == 8
    for attempts, seconds in enumerate(plain, 1):
        assert STANDARD.delay_seconds(attempts, 0.5) == pytest.approx(seconds)
        assert STANDARD.delay_seconds(attempts, 0.0) == pytest.approx(seconds * 0.8)
        assert STANDARD.delay_seconds(attempts, 1.0) == pytest.approx(seconds * 1.2)


@pytest.mark.parametrize(
    ("status", "is_about_the_request"),
    [
        (301, True),
        (302, True),
        (400, True),
        (401, True),
        (404, True),
        (408, False),
        (410, False),
        (422, True),
        (425, False),
        (429, False),
        (499, True),
        (500, False),
        (503, False),
        (None, False),
    ],
)
def test_a_refusal_is_an_answer_about_the_request(
    status: int | None, is_about_the_request: bool
) -> None:
    assert is_refusal(status) is is_about_the_request


@given(
    permanent=st.booleans(),
    max_attempts=st.integers(1, 20),
    attempts=st.integers(1, 30),
    status=st.none() | st.integers(100, 599),
    code=st.none() | st.just("HTTP_500"),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_an_attempt_is_delivered_tried_again_or_given_up(
    permanent: bool,
    max_attempts: int,
    attempts: int,
    status: int | None,
    code: str | None,
    chance: float,
) -> None:
    retry = Retry.schedule([1.0], max_attempts=max_attempts, jitter=0.2)
    policy = make_policy(retry=retry, refusals_are_permanent=permanent)
    match decide(policy, attempts, attempts, status, code, chance):
        case Delivered():
            assert code is None
        case GiveUp(final):
            assert final == code
            assert attempts >= max_attempts or status == GONE or (permanent and is_refusal(status))
        case TryAgain(delay_seconds):
            assert code is not None
            assert attempts < max_attempts
            assert not (permanent and is_refusal(status))
            assert 0.8 <= delay_seconds <= 1.2


def test_a_limit_for_a_code_ends_a_saga_earlier() -> None:
    policy = make_policy(retry=STANDARD.limit("HTTP_404", 2))
    assert isinstance(decide(policy, 5, 1, 404, "HTTP_404", 0.5), TryAgain)
    assert decide(policy, 5, 2, 404, "HTTP_404", 0.5) == GiveUp("HTTP_404")
    assert isinstance(decide(policy, 5, 2, 500, "HTTP_500", 0.5), TryAgain)


def test_every_limit_is_documented_with_its_value() -> None:
    page = (ROOT / "docs/systems/webhooks.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `([A-Z_]+)` \| ([\d,.]+) \|", page, re.MULTILINE))
    named = {
        name: f"{value:,g}" if isinstance(value, float) else f"{value:,}"
        for name, value in vars(limits).items()
        if name.isupper()
    }
    assert documented == named
