"""What a receiver's outcome does to its message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import proton

from holdfast.servicebus_local.queue import DESCRIPTION, REASON, Queue

DEAD_LETTER = "com.microsoft:dead-letter"
OUTCOMES = {
    proton.Delivery.ACCEPTED,
    proton.Delivery.REJECTED,
    proton.Delivery.RELEASED,
    proton.Delivery.MODIFIED,
}


def settle(queue: Queue, token: UUID, outcome: proton.Disposition, now_ms: int) -> None:
    if outcome.type == proton.Delivery.ACCEPTED:
        queue.complete(token)
    elif outcome.type == proton.Delivery.RELEASED:
        queue.release(token, now_ms)
    elif outcome.type == proton.Delivery.REJECTED:
        queue.dead_letter(token, now_ms, _reasons(outcome))
    elif outcome.undeliverable:
        queue.defer(token, _plain(outcome.annotations))
    else:
        queue.abandon(token, now_ms, _plain(outcome.annotations))


def _reasons(outcome: proton.Disposition) -> dict[str, Any]:
    condition = outcome.condition
    if condition is None:
        return {}
    given = _plain(condition.info if isinstance(condition.info, dict) else None)
    if given or condition.name == DEAD_LETTER:
        return given
    return {REASON: condition.name, DESCRIPTION: condition.description or ""}


def _plain(values: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Properties that a message can have: names, and simple values."""
    simple = (str, bytes, bool, int, float, UUID)
    return {
        str(key): str(value) if isinstance(value, str) else value
        for key, value in (values or {}).items()
        if isinstance(value, simple)
    }
