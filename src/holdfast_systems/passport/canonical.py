"""Canonical JSON (RFC 8785), which everybody hashes alike. Decimals and times are strings."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid5

import msgspec
import rfc8785

from holdfast_systems.passport.errors import ValidationError

# The namespace of every derived id. It never changes.
_NAMESPACE = UUID("0d6c8c0e-6d5b-5b0a-9d0c-3f6f3f1f8a51")


def canonical(value: Any) -> bytes:
    try:
        return rfc8785.dumps(value)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"can't be written as canonical JSON: {error}") from None


def read_canonical(data: bytes) -> Any:
    """Read JSON that is canonical, byte for byte."""
    try:
        value = msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"invalid JSON: {error}") from None
    if canonical(value) != data:
        raise ValidationError("the JSON is not canonical")
    return value


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def id_of(*parts: str) -> UUID:
    """Derive an id from these parts; it is the same on any machine."""
    return uuid5(_NAMESPACE, canonical(list(parts)).decode())


def decimal_text(value: Decimal) -> str:
    """Write equal numbers alike: no exponent, no trailing zeros, no negative zero."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def time_text(value: datetime) -> str:
    if value.tzinfo is None:
        raise ValidationError(f"the time {value.isoformat()} has no time zone")
    if not 1970 <= value.year < 9999:  # platforms format years before 1000 differently
        raise ValidationError(f"the time {value.isoformat()} is not between 1970 and 9999")
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
