"""Encoded messages, as a client would send them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.servicebus_local.codec import Symbol, Timestamp, encode
from holdfast.servicebus_local.message import Message, parse

PROPERTIES_COUNT = 13
SESSION_ID = 10


def section(code: int, value: Any) -> bytes:
    return b"\x00\x53" + bytes([code]) + encode(value)


def encoded(
    body: bytes = b"body",
    *,
    message_id: Any = "id",
    session_id: str | None = None,
    ttl_ms: int | None = None,
    scheduled_ms: int | None = None,
    properties: Mapping[str, Any] | None = None,
) -> bytes:
    fields: list[Any] = [None] * PROPERTIES_COUNT
    fields[0], fields[SESSION_ID] = message_id, session_id
    annotations = {Symbol("x-opt-partition-key"): "p"}
    scheduled = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(scheduled_ms or 0)}
    return b"".join(
        (
            section(0x70, [True, 4, ttl_ms]),
            section(0x72, annotations | (scheduled if scheduled_ms is not None else {})),
            section(0x73, fields),
            section(0x74, dict(properties or {})),
            section(0x75, body),
        )
    )


def message(body: bytes = b"body", **options: Any) -> Message:
    return parse(encoded(body, **options))
