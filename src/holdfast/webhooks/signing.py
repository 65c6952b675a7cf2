"""The request that carries an event: its body, its headers, its signature."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from holdfast.domain.texts import UNSTORABLE
from holdfast.webhooks.errors import BadEndpoint
from holdfast.webhooks.limits import SECRET_BYTES, SECRET_BYTES_MAX, SECRET_BYTES_MIN
from holdfast.webhooks.rows import Preset

PREFIX: Final = "whsec_"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What one request tells. It is the same in every attempt, but for `now`."""

    saga_id: UUID
    event_id: UUID
    event_type: str
    aggregate_type: str | None
    aggregate_id: str | None
    occurred_at: datetime
    payload: str
    now: datetime


class Request(msgspec.Struct, frozen=True):
    headers: dict[str, str]
    body: bytes


def make_secret(preset: Preset) -> str:
    if preset == "bpc":
        return secrets.token_urlsafe(SECRET_BYTES)
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def check_secret(preset: Preset, secret: str) -> None:
    """Refuse a secret that can't sign or can't be stored, without repeating it."""
    if not isinstance(secret, str):
        raise BadEndpoint(f"a secret is a str, not {type(secret).__name__}")
    if UNSTORABLE.search(secret):
        raise BadEndpoint("a secret has no NUL characters and no lone surrogates")
    size = len(_key(preset, secret))
    if not SECRET_BYTES_MIN <= size <= SECRET_BYTES_MAX:
        raise BadEndpoint(
            f"a secret has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, not {size}"
        )


def sign(preset: Preset, message: Message, known_secrets: Sequence[str]) -> Request:
    """Make the request; with several secrets a receiver may know any of them."""
    make = _bpc if preset == "bpc" else _standard
    request = make(message, [_key(preset, secret) for secret in known_secrets])
    request.headers["Content-Type"] = "application/json"
    return request


def _key(preset: Preset, secret: str) -> bytes:
    if preset == "bpc":
        return secret.encode()
    if not secret.startswith(PREFIX):
        raise BadEndpoint(f"a secret begins with {PREFIX}")
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        raise BadEndpoint(f"a secret is {PREFIX} and base64") from None


def _standard(message: Message, keys: Sequence[bytes]) -> Request:
    body = msgspec.json.encode(
        {
            "type": message.event_type,
            "timestamp": message.occurred_at,
            "data": msgspec.Raw(message.payload.encode()),
        }
    )
    timestamp = str(int(message.now.timestamp()))
    signed = b".".join([str(message.event_id).encode(), timestamp.encode(), body])
    signatures = [base64.b64encode(_mac(key, signed)).decode() for key in keys]
    headers = {
        "webhook-id": str(message.event_id),
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }
    return Request(headers, body)


def _bpc(message: Message, keys: Sequence[bytes]) -> Request:
    body = msgspec.json.encode(
        {
            "event_id": message.event_id,
            "event_type": message.event_type,
            "aggregate_type": message.aggregate_type,
            "aggregate_id": message.aggregate_id,
            "occurred_at": message.occurred_at,
            "payload": msgspec.Raw(message.payload.encode()),
        }
    )
    headers = {
        "X-BPC-Signature": f"sha256={_mac(keys[-1], body).hex()}",
        "X-BPC-Event-Type": message.event_type,
        "X-BPC-Delivery-Id": str(message.saga_id),
    }
    return Request(headers, body)


def _mac(key: bytes, data: bytes) -> bytes:
    return hmac.new(key, data, hashlib.sha256).digest()
