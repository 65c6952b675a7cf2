"""Keys of the HTTP API: their format, what they allow, and how they are hashed.

A key is `hfk_<id>_<secret>`. The ID is public: lists and logs show it. The secret is 32 random
bytes. The database stores only a hash of the key, made with the pepper, which it doesn't have.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b32encode
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from holdfast.domain.errors import BadArguments
from holdfast.domain.limits import DELAY_SECONDS_MAX
from holdfast.domain.spelling import did_you_mean
from holdfast.domain.texts import check_name, check_range

SCOPES: Final = ("read", "enqueue", "operate", "work", "admin")
ADMIN: Final = "admin"
ACTIVE: Final = "active"  # the state of a key that is neither rotated, expired nor revoked
ID_CHARS: Final = 12
SECRET_BYTES: Final = 32
PEPPER_CHARS_MIN: Final = 32
REQUESTS_PER_SECOND_MAX: Final = 1_000_000

_SECRET_CHARS: Final = -(-SECRET_BYTES * 8 // 5)
_ID: Final = re.compile(rf"[a-z2-7]{{{ID_CHARS}}}")
_KEY: Final = re.compile(rf"hfk_([a-z2-7]{{{ID_CHARS}}})_[a-z2-7]{{{_SECRET_CHARS}}}")


class Key(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A key of the HTTP API, without its secret. A key without a tenant sees all tenants."""

    id: str
    name: str
    tenant: str | None = None
    scopes: tuple[str, ...]
    requests_per_second: float | None = None
    created_at: datetime
    created_by: str | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    replaced_by: str | None = None

    def is_usable(self, now: datetime) -> bool:
        """Whether the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def state(self, now: datetime) -> str:
        """active, rotated (it works until it expires), expired or revoked."""
        if self.revoked_at is not None:
            return "revoked"
        if not self.is_usable(now):
            return "expired"
        return ACTIVE if self.replaced_by is None else "rotated"


class NewKey(Key, frozen=True, kw_only=True):
    """A new key. `key` is the text that clients send. It is returned only this once."""

    key: str

    def __repr__(self) -> str:
        return f"NewKey(id={self.id!r}, name={self.name!r}, key=...)"


def key_text(id_bytes: bytes, secret: bytes) -> str:
    return f"hfk_{_base32(id_bytes)[:ID_CHARS]}_{_base32(secret)}"


def id_of(text: str) -> str | None:
    """The ID in the text of a key, or None if the text is not a key."""
    found = _KEY.fullmatch(text)
    return None if found is None else found[1]


def is_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def hashed(pepper: bytes, text: str) -> bytes:
    return hmac.digest(derived(pepper, "keys"), text.encode(), "sha256")


def derived(pepper: bytes, purpose: str) -> bytes:
    """A secret for one purpose. It doesn't reveal the pepper or other secrets."""
    return hmac.digest(pepper, purpose.encode(), "sha256")


def fingerprint(pepper: bytes) -> str:
    """Tells one pepper from another. Stored with each key."""
    return hashlib.sha256(derived(pepper, "fingerprint")).hexdigest()[:16]


def check_new(
    name: str,
    tenant: str | None,
    scopes: Sequence[str],
    expires_in_seconds: float | None,
    requests_per_second: float | None,
) -> tuple[str, ...]:
    """Check the properties of a new key, and return its scopes in canonical order."""
    check_name("name of the key", name)
    if tenant is not None:
        check_name("tenant", tenant)
    if expires_in_seconds is not None:
        check_range("expires_in_seconds", expires_in_seconds, 1, DELAY_SECONDS_MAX)
    if requests_per_second is not None:
        check_range("requests_per_second", requests_per_second, 0.01, REQUESTS_PER_SECOND_MAX)
    return _checked_scopes(scopes, tenant)


def _checked_scopes(scopes: Sequence[str], tenant: str | None) -> tuple[str, ...]:
    known = ", ".join(SCOPES)
    if isinstance(scopes, str) or not scopes:
        raise BadArguments(f"a key needs a list of scopes, at least one of: {known}")
    for scope in scopes:
        if scope not in SCOPES:
            hint = did_you_mean(scope, SCOPES) or f"; the scopes are: {known}"
            raise BadArguments(f"unknown scope {scope!r}{hint}")
    if tenant is not None and ADMIN in scopes:
        raise BadArguments(
            f"a key for the tenant {tenant!r} can't have the scope {ADMIN}, which covers the keys"
            " of all tenants"
        )
    return tuple(scope for scope in SCOPES if scope in scopes)


def _base32(data: bytes) -> str:
    return b32encode(data).decode().rstrip("=").lower()
