"""What subscriptions and events may be called, and what may be asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from holdfast import BadArguments
from holdfast.domain import codec
from holdfast.webhooks.limits import (
    DEAD_LETTERS_PAGE_MAX,
    EVENT_TYPE_CHARS_MAX,
    EVENT_TYPES_MAX,
    PAYLOAD_BYTES_MAX,
)

# Nothing that could end a header's line.
_EVENT_TYPE: Final = re.compile(r"[A-Za-z0-9_.:/-]+")


def name(kind: str, value: str | None) -> str | None:
    if value is not None:
        codec.check_name(kind, value)
    return value


def id(value: UUID) -> UUID:
    if not isinstance(value, UUID):
        raise BadArguments(f"an id is a UUID, not {value!r}")
    return value


def time(value: Any) -> datetime | None:
    if value is not None and (not isinstance(value, datetime) or value.tzinfo is None):
        raise BadArguments("occurred_at is a datetime with a time zone: datetime(..., tzinfo=...)")
    return value


def payload(value: Mapping[str, Any]) -> str:
    if not isinstance(value, Mapping):
        raise BadArguments(f"a payload is a mapping, not {type(value).__name__}")
    return codec.encode_arguments(dict(value), bytes_max=PAYLOAD_BYTES_MAX).decode()


def rows_max(value: int) -> int:
    if not 1 <= value <= DEAD_LETTERS_PAGE_MAX:
        raise BadArguments(f"limit must be 1 to {DEAD_LETTERS_PAGE_MAX}, not {value}")
    return value


def event_types(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise BadArguments("event_types must be a list of strings, not a string")
    checked = tuple(names)
    if len(checked) > EVENT_TYPES_MAX:
        raise BadArguments(f"at most {EVENT_TYPES_MAX} event types fit a subscription")
    return tuple(event_type(name) for name in checked)


def event_type(name: Any) -> str:
    if (
        not isinstance(name, str)
        or len(name) > EVENT_TYPE_CHARS_MAX
        or not _EVENT_TYPE.fullmatch(name)
    ):
        raise BadArguments(
            "an event type is a str of letters, digits and _ . : / - only, and at most"
            f" {EVENT_TYPE_CHARS_MAX} of them"
        )
    return name
