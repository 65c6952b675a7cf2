"""Presets: how to build and sign the request for an event."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec

from holdfast import ConfigurationError, Retry
from holdfast.domain.texts import UNSTORABLE, check_name
from holdfast.webhooks.errors import BadEndpoint
from holdfast.webhooks.limits import SECRET_BYTES, SECRET_BYTES_MAX, SECRET_BYTES_MIN

PREFIX: Final = "whsec_"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a request. Only `now` differs between attempts."""

    saga_id: UUID
    event_id: UUID
    event_type: str
    aggregate_type: str | None
    aggregate_id: str | None
    occurred_at: datetime
    payload: str
    now: datetime


class Request(msgspec.Struct, frozen=True):
    """What is sent: the headers that the preset adds, and the body."""

    headers: dict[str, str]
    body: bytes


def _make_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """How to build the requests of the subscriptions that use this preset.

    `make_request` gets the message and the keys of all the subscription's secrets, oldest first.
    `retry` replaces that of `Webhooks`. With `refusals_are_permanent`, the first 3xx or 4xx ends a
    saga, except for 408, 410, 425 and 429. Both are stored with each subscription.
    """

    name: str
    make_request: Callable[[Message, Sequence[bytes]], Request]
    make_secret: Callable[[], str] = _make_secret
    key_of: Callable[[str], bytes] = str.encode
    retry: Retry | None = None
    refusals_are_permanent: bool = False

    def __post_init__(self) -> None:
        check_name("preset", self.name)

    def new_secret(self, given: str | None) -> str:
        """Return the given secret if it is good, or a new one."""
        chosen = self.make_secret() if given is None else given
        self.check_secret(chosen)
        return chosen

    def check_secret(self, secret: str) -> None:
        """Reject a secret that can't sign or can't be stored, without repeating it."""
        if not isinstance(secret, str):
            raise BadEndpoint(f"a secret must be a str, not {type(secret).__name__}")
        if UNSTORABLE.search(secret):
            raise BadEndpoint("a secret must not contain NUL characters or lone surrogates")
        size = len(self.key_of(secret))
        if not SECRET_BYTES_MIN <= size <= SECRET_BYTES_MAX:
            raise BadEndpoint(
                f"a secret must have {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes, not {size}"
            )

    def sign(self, message: Message, known_secrets: Iterable[str]) -> Request:
        """Build the request, signed with all secrets; a receiver may know any of them."""
        return self.make_request(message, [self.key_of(secret) for secret in known_secrets])


def by_name(presets: Iterable[Preset]) -> dict[str, Preset]:
    """Map names to presets: the application's own, and the built-in one."""
    known = {STANDARD_WEBHOOKS.name: STANDARD_WEBHOOKS}
    for preset in presets:
        if preset.name in known:
            raise ConfigurationError(f"two presets are named {preset.name!r}")
        known[preset.name] = preset
    return known


def _make_standard_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def _standard_key(secret: str) -> bytes:
    if not secret.startswith(PREFIX):
        raise BadEndpoint(f"a secret must start with {PREFIX}")
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        raise BadEndpoint(f"a secret must be {PREFIX} followed by base64") from None


def _standard_request(message: Message, keys: Sequence[bytes]) -> Request:
    body = msgspec.json.encode(
        {
            "type": message.event_type,
            "timestamp": message.occurred_at,
            "data": msgspec.Raw(message.payload.encode()),
        }
    )
    timestamp = str(int(message.now.timestamp()))
    signed = b".".join([str(message.event_id).encode(), timestamp.encode(), body])
    macs = [hmac.new(key, signed, hashlib.sha256).digest() for key in keys]
    headers = {
        "webhook-id": str(message.event_id),
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{base64.b64encode(mac).decode()}" for mac in macs),
        "Content-Type": "application/json",
    }
    return Request(headers, body)


STANDARD_WEBHOOKS: Final = Preset(
    name="standard",
    make_request=_standard_request,
    make_secret=_make_standard_secret,
    key_of=_standard_key,
)
