"""Whoever knows the secret can tell that a request is ours, and nobody else learns the secret."""

from __future__ import annotations

import hashlib
import hmac
import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from holdfast.webhooks import BadEndpoint, NewSubscription
from holdfast.webhooks.rows import Preset
from holdfast.webhooks.signing import Message, check_secret, make_secret, sign

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
    secret = make_secret("standard")
    sent = message(payload)
    request = sign("standard", sent, [secret])
    told = Webhook(secret).verify(request.body, request.headers)
    assert told == {
        "type": "order.paid",
        "timestamp": "2026-11-16T03:00:00Z",
        "data": payload,
    }
    assert request.headers["webhook-id"] == str(sent.event_id)


def test_with_two_secrets_a_receiver_may_know_either() -> None:
    secrets = [make_secret("standard"), make_secret("standard")]
    request = sign("standard", message({}), secrets)
    for secret in secrets:
        Webhook(secret).verify(request.body, request.headers)


@pytest.mark.parametrize("header", ["webhook-id", "webhook-timestamp"])
def test_what_was_changed_on_the_way_is_noticed(header: str) -> None:
    secret = make_secret("standard")
    request = sign("standard", message({"cents": 1}), [secret])
    changed = {**request.headers, header: request.headers[header][:-1] + "x"}
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(request.body, changed)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(request.body.replace(b"1", b"2"), request.headers)


def test_bpc_signs_the_body_under_the_secret_as_raw_bytes() -> None:
    secret = "0123456789abcdef0123456789abcdef"
    sent = message({"pv": "x"})
    request = sign("bpc", sent, [secret])
    expected = hmac.new(secret.encode(), request.body, hashlib.sha256).hexdigest()
    assert request.headers["X-BPC-Signature"] == f"sha256={expected}"
    assert request.headers["X-BPC-Event-Type"] == "order.paid"
    assert request.headers["X-BPC-Delivery-Id"] == str(sent.saga_id)
    assert json.loads(request.body) == {
        "event_id": str(sent.event_id),
        "event_type": "order.paid",
        "aggregate_type": "order",
        "aggregate_id": "1001",
        "occurred_at": "2026-11-16T03:00:00Z",
        "payload": {"pv": "x"},
    }


def test_the_body_is_the_same_in_every_attempt() -> None:
    secret = make_secret("standard")
    first = message({"a": 1, "b": [1.5, None]}, now=datetime(2026, 11, 16, tzinfo=UTC))
    later = msgspec.structs.replace(first, now=datetime(2026, 11, 17, tzinfo=UTC))
    assert sign("standard", first, [secret]).body == sign("standard", later, [secret]).body


@pytest.mark.parametrize(
    ("preset", "secret"),
    [
        ("standard", ""),
        ("standard", "abc"),
        ("standard", "whsec_"),
        ("standard", "whsec_###"),
        ("standard", "whsec_YWJj"),
        ("standard", "whsec_" + "\u00e9" * 32),
        ("standard", b"whsec_" + b"YWJj" * 10),
        ("bpc", "weak"),
        ("bpc", "\0" * 32),
        ("bpc", "\ud800" * 32),
        ("bpc", b"b" * 32),
        ("bpc", "b" * 65),
    ],
)
def test_a_secret_that_can_not_sign_is_refused_and_not_repeated(
    preset: Preset, secret: Any
) -> None:
    with pytest.raises(BadEndpoint) as refused:
        check_secret(preset, secret)
    assert secret in ("", "whsec_") or repr(secret)[1:-1] not in str(refused.value)


def test_a_secret_is_not_shown() -> None:
    subscription = NewSubscription(
        id=UUID(int=0),
        tenant=None,
        url="https://example.org/",
        event_types=(),
        preset="standard",
        secret=make_secret("standard"),
    )
    assert subscription.secret not in f"{subscription} {subscription!r} {[subscription]}"
