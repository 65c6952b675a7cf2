"""Whoever knows the secret can tell that a request is ours, and nobody else learns the secret."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from holdfast.webhooks import BadEndpoint, Message, NewSubscription, Preset
from holdfast.webhooks.presets import STANDARD_WEBHOOKS as STANDARD
from tests.webhooks.shop import ACME

pytestmark = pytest.mark.heavy

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
payloads = st.dictionaries(st.text(), json_values, max_size=4)


def message(payload: dict[str, Any], now: datetime | None = None) -> Message:
    return Message(
        saga_id=uuid4(),
        event_id=uuid4(),
        event_type="order.paid",
        aggregate_type="order",
        aggregate_id="1001",
        occurred_at=datetime(2026, 11, 16, 3, 0, tzinfo=UTC),
        payload=msgspec.json.encode(payload).decode(),
        now=now or datetime.now(UTC),
    )


@given(payload=payloads)
def test_standard_webhooks_accepts_the_signature_and_finds_the_payload(
    payload: dict[str, Any],
) -> None:
    secret = STANDARD.make_secret()
    sent = message(payload)
    request = STANDARD.sign(sent, [secret])
    told = Webhook(secret).verify(request.body, request.headers)
    assert told == {
        "type": "order.paid",
        "timestamp": "2026-11-16T03:00:00Z",
        "data": payload,
    }
    assert request.headers["webhook-id"] == str(sent.event_id)


def test_with_two_secrets_a_receiver_may_know_either() -> None:
    secrets = [STANDARD.make_secret(), STANDARD.make_secret()]
    request = STANDARD.sign(message({}), secrets)
    for secret in secrets:
        Webhook(secret).verify(request.body, request.headers)


@pytest.mark.parametrize("header", ["webhook-id", "webhook-timestamp"])
def test_what_was_changed_on_the_way_is_noticed(header: str) -> None:
    secret = STANDARD.make_secret()
    request = STANDARD.sign(message({"cents": 1}), [secret])
    changed = {**request.headers, header: request.headers[header][:-1] + "x"}
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(request.body, changed)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(request.body.replace(b"1", b"2"), request.headers)


def test_the_body_is_the_same_in_every_attempt() -> None:
    secret = STANDARD.make_secret()
    first = message({"a": 1, "b": [1.5, None]}, now=datetime(2026, 11, 16, tzinfo=UTC))
    later = msgspec.structs.replace(first, now=datetime(2026, 11, 17, tzinfo=UTC))
    assert STANDARD.sign(first, [secret]).body == STANDARD.sign(later, [secret]).body


@pytest.mark.parametrize(
    ("preset", "secret"),
    [
        (STANDARD, ""),
        (STANDARD, "abc"),
        (STANDARD, "whsec_"),
        (STANDARD, "whsec_###"),
        (STANDARD, "whsec_YWJj"),
        (STANDARD, "whsec_" + "\u00e9" * 32),
        (STANDARD, b"whsec_" + b"YWJj" * 10),
        (ACME, "weak"),
        (ACME, "\0" * 32),
        (ACME, "\ud800" * 32),
        (ACME, b"b" * 32),
        (ACME, "b" * 65),
    ],
)
def test_a_secret_that_can_not_sign_is_refused_and_not_repeated(
    preset: Preset, secret: Any
) -> None:
    with pytest.raises(BadEndpoint) as refused:
        preset.check_secret(secret)
    assert secret in ("", "whsec_") or repr(secret)[1:-1] not in str(refused.value)


def test_a_secret_is_not_shown() -> None:
    subscription = NewSubscription(
        id=UUID(int=0),
        tenant="default",
        url="https://example.org/",
        event_types=(),
        preset="standard",
        secret=STANDARD.make_secret(),
    )
    assert subscription.secret not in f"{subscription} {subscription!r} {[subscription]}"
