"""How a message looks to its receiver."""

from __future__ import annotations

from typing import Any

from holdfast.servicebus_local.codec import Int, Symbol, Timestamp
from holdfast.servicebus_local.queue import Entry

STATES = {"active": 0, "locked": 0, "deferred": 1, "scheduled": 2}


def encoded(entry: Entry) -> bytes:
    annotations: dict[Symbol, Any] = {
        Symbol("x-opt-sequence-number"): entry.sequence_number,
        Symbol("x-opt-enqueued-time"): Timestamp(entry.enqueued_ms),
        Symbol("x-opt-message-state"): Int(_state(entry)),
    }
    if entry.locked_until_ms is not None:
        annotations[Symbol("x-opt-locked-until")] = Timestamp(entry.locked_until_ms)
    return entry.message.encoded(entry.delivery_count, annotations)


def _state(entry: Entry) -> int:
    return STATES["deferred" if entry.is_deferred else entry.state]
