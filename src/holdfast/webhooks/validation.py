"""Check the arguments of the webhooks API."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, get_args
from uuid import UUID

from holdfast import BadArguments
from holdfast.domain import codec, texts, times
from holdfast.webhooks.limits import (
    EVENT_TYPE_CHARS_MAX,
    EVENT_TYPES_MAX,
    PAGE_MAX,
    PAYLOAD_BYTES_MAX,
    SECRET_KEPT_SECONDS_MAX,
)
from holdfast.webhooks.rows import SagaStatus

SAGA_STATUSES: Final[tuple[str, ...]] = get_args(SagaStatus)
# Safe in a header: nothing in it can end the line.
_EVENT_TYPE: Final = re.compile(r"[A-Za-z0-9_.:/-]+")


def name(kind: str, value: str | None) -> str | None:
    if value is not None:
        texts.check_name(kind, value)
    return value


def tenant(value: str) -> str:
    texts.check_name("tenant", value)
    return value


def tenant_or_none(value: str | None) -> str | None:
    return None if value is None else tenant(value)


def id(value: UUID) -> UUID:
    if not isinstance(value, UUID):
        raise BadArguments(f"id must be a UUID, not {value!r}")
    return value


def id_or_none(value: UUID | None) -> UUID | None:
    return None if value is None else id(value)


def time(value: datetime | None) -> datetime | None:
    if value is not None:
        times.check_time("occurred_at", value)
    return value


def time_range(since: datetime, until: datetime) -> None:
    times.check_time("since", since)
    times.check_time("until", until)
    if since >= until:
        raise BadArguments("since must be before until")


def payload(value: Mapping[str, Any]) -> str:
    if not isinstance(value, Mapping):
        raise BadArguments(f"payload must be a mapping, not {type(value).__name__}")
    return codec.encode_arguments(dict(value), bytes_max=PAYLOAD_BYTES_MAX).decode()


def rows_max(value: int) -> int:
    texts.check_range("limit", value, 1, PAGE_MAX, int)
    return value


def status(value: str | None) -> str | None:
    if value is not None and value not in SAGA_STATUSES:
        raise BadArguments(f"status must be one of {', '.join(SAGA_STATUSES)}, not {value!r}")
    return value


def keep_seconds(value: float) -> float:
    texts.check_range("keep_seconds", value, 0, SECRET_KEPT_SECONDS_MAX)
    return value


def event_types(names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str):
        raise BadArguments("event_types must be a list of strings, not a string")
    checked = tuple(names)
    if len(checked) > EVENT_TYPES_MAX:
        raise BadArguments(f"a subscription takes at most {EVENT_TYPES_MAX} event types")
    return tuple(event_type(name) for name in checked)


def event_type(name: Any) -> str:
    if (
        not isinstance(name, str)
        or len(name) > EVENT_TYPE_CHARS_MAX
        or not _EVENT_TYPE.fullmatch(name)
    ):
        raise BadArguments(
            f"an event type must have 1 to {EVENT_TYPE_CHARS_MAX} characters:"
            " letters, digits and _ . : / -"
        )
    return name
