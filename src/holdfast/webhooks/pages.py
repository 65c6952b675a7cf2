"""Webhooks in the dashboard: sagas, each with its attempts, its event and its dead letter."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from holdfast import Tables
from holdfast.dashboard.systems import (
    Cell,
    Code,
    File,
    Item,
    ItemLink,
    JobLink,
    JsonText,
    Listing,
    Row,
    Status,
    Table,
    Tone,
    read_id,
    read_newest,
    reading,
)
from holdfast.webhooks.rows import Attempt, JobStatus, SagaStatus

if TYPE_CHECKING:
    from holdfast.api import Caller
    from holdfast.webhooks.service import Webhooks

SUBSCRIPTIONS: Final = "webhook-subscriptions"
LETTERS: Final = "webhook-dead-letters"
_COLUMNS: Final = ("Saga", "Status", "Event", "Endpoint", "Attempts", "Next attempt", "Created")
SAGA_TONES: Final[dict[SagaStatus, Tone]] = {
    "Pending": "wait",
    "InFlight": "busy",
    "Delivered": "good",
    "DeadLettered": "bad",
    "Canceled": "muted",
}
_ATTEMPT: Final[dict[JobStatus, Tone]] = {
    "Pending": "wait",
    "Leased": "busy",
    "Completed": "good",
    "Failed": "bad",
}
_REQUESTS: Final = (
    "No.", "Status", "HTTP", "Error", "Started", "Ended", "Milliseconds", "Response", "Job",
)  # fmt: skip


class ShownSaga(msgspec.Struct, frozen=True, kw_only=True):
    """A saga in the list, with the event and the endpoint that it is about."""

    id: UUID
    tenant: str
    status: SagaStatus
    attempt_count: int
    next_attempt_at: datetime | None
    created_at: datetime
    event_type: str | None
    url: str | None


class WholeSaga(ShownSaga, frozen=True, kw_only=True):
    """A saga with all that its page shows, except its attempts."""

    event_id: UUID
    subscription_id: UUID
    requeued_from: UUID | None
    replay_id: UUID | None
    ended_at: datetime | None
    aggregate_type: str | None
    aggregate_id: str | None
    occurred_at: datetime | None
    payload: str | None
    disabled_at: datetime | None
    disabled_because: str | None
    letter_id: UUID | None
    final_error_code: str | None
    failed_at: datetime | None
    requeued_saga: UUID | None
    next_saga: UUID | None


class WebhookPages:
    slug = "webhooks"
    title = "Webhooks"
    about = "Sagas: each delivers one event to one endpoint, over all its attempts."

    def __init__(self, webhooks: Webhooks, tables: Tables) -> None:
        self._webhooks = webhooks
        self._tables = tables

    async def list(self, caller: Caller, after: str | None, limit: int) -> Listing:
        found = await read_newest(caller, self._tables, "pages_sagas", ShownSaga, after, limit)
        rows = [
            Row(
                str(each.id),
                (
                    Code(str(each.id)),
                    Status(each.status, SAGA_TONES[each.status]),
                    each.event_type,
                    each.url,
                    each.attempt_count,
                    each.next_attempt_at,
                    each.created_at,
                ),
                each.tenant,
            )
            for each in found
        ]
        return Listing(_COLUMNS, rows, rows[-1].id if len(rows) == limit else None)

    async def item(self, caller: Caller, item_id: str) -> Item | None:
        saga_id = read_id(item_id)
        if saga_id is None:
            return None
        async with reading(caller, self._tables) as statements:
            saga = await statements.one("pages_saga", WholeSaga, id=saga_id, tenant=caller.tenant)
        if saga is None:
            return None
        attempts = await self._webhooks.attempts(saga.id, tenant=saga.tenant)
        parts: list[Table | JsonText] = [_requests(attempts)]
        if saga.payload is not None:
            parts.append(JsonText("Payload", saga.payload))
        return Item(
            saga.event_type or f"Event {saga.event_id}",
            _facts(saga),
            status=Status(saga.status, SAGA_TONES[saga.status]),
            error=saga.final_error_code,
            parts=parts,
        )

    async def file(self, caller: Caller, item_id: str, name: str) -> File | None:
        return None


def _facts(saga: WholeSaga) -> list[tuple[str, Cell]]:
    facts: list[tuple[str, Cell]] = [
        ("Saga", Code(str(saga.id))),
        ("Tenant", saga.tenant),
        ("Endpoint", saga.url),
        (
            "Subscription",
            ItemLink(str(saga.subscription_id), str(saga.subscription_id), SUBSCRIPTIONS),
        ),
        ("Event", Code(str(saga.event_id))),
        ("Occurred", saga.occurred_at),
        ("Created", saga.created_at),
        ("Attempts", saga.attempt_count),
        ("Next attempt", saga.next_attempt_at),
        ("Ended", saga.ended_at),
    ]
    if saga.aggregate_type is not None:
        facts.append(("About", f"{saga.aggregate_type} {saga.aggregate_id}"))
    if saga.disabled_at is not None:
        facts.append(("Endpoint disabled", saga.disabled_at))
        facts.append(("Because", saga.disabled_because))
    if saga.letter_id is not None:
        letter = ItemLink(str(saga.letter_id), str(saga.letter_id), LETTERS)
        facts.append(("Dead letter", letter))
        facts.append(("Dead since", saga.failed_at))
    for title, other in (("Requeued from", saga.requeued_saga), ("Requeued as", saga.next_saga)):
        if other is not None:
            facts.append((title, ItemLink(str(other), str(other))))
    if saga.replay_id is not None:
        facts.append(("Replay", Code(str(saga.replay_id))))
    return facts


def _requests(attempts: list[Attempt]) -> Table:
    rows = [
        (
            each.attempt_no,
            Status(each.status, _ATTEMPT[each.status]),
            each.response_status,
            each.error_code if each.error_text is None else f"{each.error_code}: {each.error_text}",
            each.attempt_at,
            each.ended_at,
            each.duration_ms,
            None if not each.response_body else each.response_body.decode("utf-8", "replace"),
            JobLink(each.id),
        )
        for each in attempts
    ]
    return Table("Attempts", _REQUESTS, rows, "The first request has not been sent yet.")
