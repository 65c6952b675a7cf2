"""Values in the one form that everybody hashes: RFC 8785, decimals and times as texts."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid5

import msgspec
import rfc8785

from holdfast_systems.passport.errors import ValidationError

# Every id that follows from what it names is made in this namespace; it never changes.
_NAMESPACE = UUID("0d6c8c0e-6d5b-5b0a-9d0c-3f6f3f1f8a51")


def canonical(value: Any) -> bytes:
    try:
        return rfc8785.dumps(value)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"not a value of canonical JSON: {error}") from None


def read_canonical(data: bytes) -> Any:
    """Read JSON that is in canonical form, byte for byte."""
    try:
        value = msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise ValidationError(f"not JSON: {error}") from None
    if canonical(value) != data:
        raise ValidationError("the JSON is not in canonical form")
    return value


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def id_of(*parts: str) -> UUID:
    """The id that follows from these parts, on any machine."""
    return uuid5(_NAMESPACE, canonical(list(parts)).decode())


def decimal_text(value: Decimal) -> str:
    """Without exponent, superfluous zeros and negative zero: equal numbers are equal texts."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def time_text(value: datetime) -> str:
    if value.tzinfo is None:
        raise ValidationError(f"the time {value.isoformat()} has no time zone")
    if not 1970 <= value.year < 9999:  # machines write the years before 1000 in several ways
        raise ValidationError(f"the time {value.isoformat()} is not between 1970 and 9999")
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
