"""What a subscriber of passports gets on the wire, and how often."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from uuid import UUID

import pytest

from holdfast.webhooks import Message
from holdfast_systems.passport import BPC
from tests.systems.passport.line import on_sqlite
from tests.webhooks.receiving import receiving
from tests.webhooks.shop import Shop

pytestmark = pytest.mark.heavy

SECRET = "0123456789abcdef0123456789abcdef"
MESSAGE = Message(
    saga_id=UUID(int=1),
    event_id=UUID(int=2),
    event_type="PASSPORT_SIGNED",
    aggregate_type="PassportVersion",
    aggregate_id="1001",
    occurred_at=datetime(2026, 11, 16, 3, 0, tzinfo=UTC),
    payload='{"pv":"x"}',
    now=datetime(2026, 11, 17, tzinfo=UTC),
)
BODY = (
    b'{"event_id":"00000000-0000-0000-0000-000000000002","event_type":"PASSPORT_SIGNED",'
    b'"aggregate_type":"PassportVersion","aggregate_id":"1001",'
    b'"occurred_at":"2026-11-16T03:00:00Z","payload":{"pv":"x"}}'
)


def test_the_body_is_signed_under_the_newest_secret_as_raw_bytes() -> None:
    request = BPC.sign(MESSAGE, ["older", SECRET])
    mac = hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()
    assert request.body == BODY
    assert list(request.headers.items()) == [
        ("X-BPC-Signature", f"sha256={mac}"),
        ("X-BPC-Event-Type", "PASSPORT_SIGNED"),
        ("X-BPC-Delivery-Id", "00000000-0000-0000-0000-000000000001"),
        ("Content-Type", "application/json"),
    ]


def test_it_is_tried_five_times_and_waits_2_4_8_16_seconds() -> None:
    retry = BPC.retry
    assert retry is not None
    assert retry.max_attempts == 5
    assert [retry.delay_seconds(attempts, 0.9) for attempts in (1, 2, 3, 4)] == [2, 4, 8, 16]
    assert BPC.refusals_are_permanent


@on_sqlite
async def test_the_delivery_id_is_the_same_in_every_attempt(store_url: str) -> None:
    async with receiving() as receiver, Shop.open(store_url, presets=[BPC]) as shop:
        receiver.answers = [503, 200]
        await shop.webhooks.subscribe(receiver.url, preset="bpc")
        event = await shop.publish(aggregate_type="order", aggregate_id="1001")
        await shop.hf.run_due()
        # The next attempt is due in two seconds.
        await shop.fetch("UPDATE holdfast.webhook_sagas SET next_attempt_at = created_at")
        await shop.hf.run_due()
        saga = await shop.saga(event)
        assert (saga.status, saga.attempt_count) == ("Delivered", 2)
        first, second = receiver.requests
        assert first.body == second.body
        ids = {request.headers["X-BPC-Delivery-Id"] for request in receiver.requests}
        assert ids == {str(saga.id)}
