"""/v1/dead-letters: sagas that were given up, with what they would have sent."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec
from fastapi import Request
from starlette.responses import Response

from holdfast.api import AsCaller, Router, answer, describes
from holdfast.api.examples import EXAMPLES, WHEN
from holdfast.api.queries import read_query
from holdfast.webhooks.routes.shared import (
    EVENT_ID,
    LETTER_ID,
    LINK,
    SAGA_ID,
    SUBSCRIPTION_ID,
    PageQuery,
    after_of,
    answer_page,
    changing,
    explained,
    last_of,
)
from holdfast.webhooks.rows import DeadLetter, Saga
from holdfast.webhooks.service import Webhooks


class DeadLetterSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter without its payload."""

    id: UUID
    tenant: str
    saga_id: UUID
    event_id: UUID
    subscription_id: UUID
    final_error_code: str
    failed_at: datetime


class DeadLetterDetails(DeadLetterSummary, frozen=True, kw_only=True):
    """A dead letter with the payload that the saga would have sent."""

    payload_snapshot: dict[str, Any]


class DeadLetterPage(msgspec.Struct, frozen=True):
    """Dead letters, newest first. `next` is the path of the next page, or null on the last."""

    dead_letters: list[DeadLetterSummary]
    next: str | None


_SHOWN: Final = {
    "id": LETTER_ID,
    "tenant": "acme",
    "saga_id": SAGA_ID,
    "event_id": EVENT_ID,
    "subscription_id": SUBSCRIPTION_ID,
    "final_error_code": "HTTP_500",
    "failed_at": WHEN,
}
EXAMPLES[DeadLetterDetails] = {**_SHOWN, "payload_snapshot": {"order": 1001}}
EXAMPLES[DeadLetterPage] = {"dead_letters": [_SHOWN], "next": None}


def add_routes(router: Router, webhooks: Webhooks) -> None:
    @router.get(
        "/v1/dead-letters",
        **describes("read", {200: DeadLetterPage}, query=PageQuery, headers=LINK),
    )
    async def list_dead_letters(request: Request, caller: AsCaller) -> Response:
        """List dead letters, newest first, without their payloads."""
        query = read_query(request, PageQuery)
        tenant = caller.tenant_name_for(query.tenant)
        after = after_of(request, caller, query, tenant)
        found = await webhooks.dead_letters(tenant=tenant, limit=query.limit, after=after)
        shown = [_summary(each) for each in found]
        last = last_of(found, query.limit)
        return answer_page(request, caller, "dead_letters", shown, last, tenant)

    @router.get(
        "/v1/dead-letters/{dead_letter_id}",
        **describes("read", {200: DeadLetterDetails}, ["not-found"]),
    )
    async def get_dead_letter(dead_letter_id: UUID, caller: AsCaller) -> Response:
        """Get a dead letter with its payload."""
        with explained():
            letter = await webhooks.dead_letter(dead_letter_id, tenant=caller.tenant)
        payload = msgspec.Raw(letter.payload_snapshot.encode())
        return answer({**msgspec.structs.asdict(letter), "payload_snapshot": payload})

    @router.post(
        "/v1/dead-letters/{dead_letter_id}/requeue",
        **describes("operate", {200: Saga}, ["not-found", "wrong-state"]),
    )
    async def requeue_dead_letter(dead_letter_id: UUID, caller: AsCaller) -> Response:
        """Start a new saga for the same event and subscription. Sent again, this returns the same
        saga."""
        async with changing(caller, "dead_letter.requeue", dead_letter_id):
            return answer(await webhooks.requeue(dead_letter_id, tenant=caller.tenant))


def _summary(letter: DeadLetter) -> DeadLetterSummary:
    shown = msgspec.structs.asdict(letter)
    del shown["payload_snapshot"]
    return DeadLetterSummary(**shown)
