"""A receiver says when to try again, within limits."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.webhooks.limits import RETRY_AFTER_SECONDS_MAX
from holdfast.webhooks.policy import GiveUp, TryAgain, decide
from holdfast.webhooks.retry_after import read_retry_after
from tests.webhooks.receiving import Receiver
from tests.webhooks.shop import Shop, both_stores, make_policy

DATE = "Mon, 16 Nov 2026 03:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "120"}, 120),
        ({"Retry-After": " 7 "}, 7),
        ({"Retry-After": "0"}, 0),
        ({"Retry-After": "9" * 10}, RETRY_AFTER_SECONDS_MAX),
        ({"Retry-After": "9" * 400}, RETRY_AFTER_SECONDS_MAX),
        ({"Retry-After": "9" * 5000}, RETRY_AFTER_SECONDS_MAX),
        ({"Retry-After": "-1"}, None),
        ({"Retry-After": "1.5"}, None),
        ({"Retry-After": "\u0667"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "Mon, 16 Nov 2026 03:01:30 GMT", "Date": DATE}, 90),
        ({"Retry-After": "Mon, 16 Nov 2026 02:00:00 GMT", "Date": DATE}, 0),
        ({"Retry-After": "Mon, 16 Nov 2036 03:00:00 GMT", "Date": DATE}, RETRY_AFTER_SECONDS_MAX),
        ({"Retry-After": "Mon, 16 Nov 2026 03:01:30 GMT"}, None),
        ({"Retry-After": "Mon, 99 Nov 2026 03:01:30 GMT", "Date": DATE}, None),
    ],
)
def test_seconds_and_dates_are_read_up_to_a_limit(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert read_retry_after(headers) == seconds


def test_the_longer_of_the_schedule_and_the_receivers_wish_counts() -> None:
    policy = make_policy()
    for wish, delay in ((None, 0.0), (120.0, 120.0), (1e12, RETRY_AFTER_SECONDS_MAX)):
        assert decide(policy, 1, 1, 503, "HTTP_503", 0.5, wish) == TryAgain(delay)
    assert decide(policy, 3, 3, 503, "HTTP_503", 0.5, 120.0) == GiveUp("HTTP_503")


@pytest.mark.heavy
@both_stores
async def test_an_attempt_waits_as_long_as_the_receiver_asks(
    shop: Shop, receiver: Receiver
) -> None:
    receiver.answers, receiver.headers = [429], {"Retry-After": "1800"}
    await shop.webhooks.subscribe(receiver.url)
    event = await shop.publish()
    await shop.hf.run_due()
    saga = await shop.saga(event)
    (attempt,) = await shop.webhooks.attempts(saga.id)
    assert saga.next_attempt_at is not None
    assert attempt.ended_at is not None
    waits = saga.next_attempt_at - attempt.ended_at
    assert timedelta(seconds=1799) < waits < timedelta(seconds=1900)
