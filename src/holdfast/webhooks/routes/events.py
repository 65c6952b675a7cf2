"""/v1/events: publish events."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from fastapi import Request
from msgspec import Meta
from starlette.responses import Response

from holdfast.api import AsCaller, Router, answer, describes, read_body
from holdfast.api.examples import EXAMPLES, WHEN
from holdfast.api.fields import Name
from holdfast.api.idempotency import idempotent
from holdfast.api.queries import read_query
from holdfast.webhooks.limits import EVENT_TYPE_CHARS_MAX
from holdfast.webhooks.routes.shared import EVENT_ID, TENANT, TenantQuery, explained
from holdfast.webhooks.rows import Event
from holdfast.webhooks.service import Webhooks

EventType = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=EVENT_TYPE_CHARS_MAX,
        pattern=r"^[A-Za-z0-9_.:/-]+$(?!\n)",
        description="Letters, digits and `_ . : / -`.",
    ),
]
LOCATION: Final = {"location": "The path of the event"}


class EventRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event to publish. The same `id` twice is one event; the tenant's own IDs only."""

    event_type: EventType
    payload: dict[str, Any]
    id: UUID | None = None
    aggregate_type: Name | None = None
    aggregate_id: Name | None = None
    occurred_at: Annotated[datetime, Meta(tz=True)] | None = None
    tenant: Annotated[Name | None, TENANT] = None


class PublishedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as it was published."""

    id: UUID
    tenant: str
    event_type: str
    aggregate_type: str | None
    aggregate_id: str | None
    occurred_at: datetime
    payload: dict[str, Any]
    created_at: datetime


EXAMPLES[EventRequest] = {
    "event_type": "order.paid",
    "payload": {"order": 1001},
    "id": EVENT_ID,
}
EXAMPLES[PublishedEvent] = {
    "id": EVENT_ID,
    "tenant": "acme",
    "event_type": "order.paid",
    "aggregate_type": None,
    "aggregate_id": None,
    "occurred_at": WHEN,
    "payload": {"order": 1001},
    "created_at": WHEN,
}


def shown_event(event: Event) -> dict[str, Any]:
    return {**msgspec.structs.asdict(event), "payload": msgspec.Raw(event.payload.encode())}


def published(event: Event) -> Response:
    return answer(shown_event(event), 201, {"location": f"/v1/events/{event.id}"})


def add_routes(router: Router, webhooks: Webhooks) -> None:
    @router.post(
        "/v1/events",
        **describes(
            "enqueue",
            {201: PublishedEvent},
            ["wrong-state", "bad-arguments", "too-large"],
            body=EventRequest,
            headers=LOCATION,
            idempotency="optional",
        ),
    )
    async def publish_event(request: Request, caller: AsCaller) -> Response:
        """Publish an event to the subscriptions that want it. Once this returns 201, it is
        delivered, or becomes a dead letter."""
        body = await read_body(request, EventRequest)
        tenant = caller.tenant_name_for(body.tenant)
        values = msgspec.structs.asdict(body) | {"tenant": tenant}

        async def work(connection: Any) -> Response:
            with explained():
                return published(await webhooks.publish(**values, connection=connection))

        return await idempotent(request, caller, body, work)

    @router.get(
        "/v1/events/{event_id}",
        **describes("read", {200: PublishedEvent}, ["not-found"], query=TenantQuery),
    )
    async def get_event(event_id: UUID, request: Request, caller: AsCaller) -> Response:
        """Get an event as it was published."""
        tenant = caller.tenant_name_for(read_query(request, TenantQuery).tenant)
        with explained():
            return answer(shown_event(await webhooks.event(event_id, tenant=tenant)))
