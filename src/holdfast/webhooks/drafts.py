"""Events before they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from holdfast.domain import codec
from holdfast.webhooks import validation
from holdfast.webhooks.rows import Event

_IDENTITY: Final = ("tenant", "aggregate_type", "aggregate_id")


def make_draft(
    id: UUID,
    event_type: str,
    payload: Mapping[str, Any],
    tenant: str,
    aggregate_type: str | None = None,
    aggregate_id: str | None = None,
    occurred_at: datetime | None = None,
) -> dict[str, Any]:
    """Check what was given, and return the columns of a new event."""
    return {
        "id": validation.id(id),
        "tenant": validation.tenant(tenant),
        "event_type": validation.event_type(event_type),
        "aggregate_type": validation.name("aggregate_type", aggregate_type),
        "aggregate_id": validation.name("aggregate_id", aggregate_id),
        "occurred_at": validation.time(occurred_at),
        "payload": validation.payload(payload),
        "only_for": None,
    }


def is_same(event: Event, draft: Mapping[str, Any]) -> bool:
    """Is this the same event published again, not another one with its ID?"""
    return (
        all(getattr(event, name) == draft[name] for name in _IDENTITY)
        and draft["occurred_at"] in (None, event.occurred_at)
        and codec.body_hash(draft["event_type"], draft["payload"].encode())
        == codec.body_hash(event.event_type, event.payload.encode())
    )
