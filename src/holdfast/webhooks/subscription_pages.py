"""Subscriptions in the dashboard: which are enabled, and what went wrong lately."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from holdfast import Tables
from holdfast.dashboard.systems import (
    Code,
    File,
    Item,
    ItemLink,
    Listing,
    Row,
    Status,
    Table,
    read_id,
    read_newest,
    reading,
)
from holdfast.webhooks.pages import SAGA_TONES, SUBSCRIPTIONS, WebhookPages
from holdfast.webhooks.rows import SagaStatus
from holdfast.webhooks.subscriptions import Row as Known

if TYPE_CHECKING:
    from holdfast.api import Caller

SAGAS_MAX: Final = 20
_COLUMNS: Final = ("Subscription", "Status", "Endpoint", "Events", "Failing since", "Created")
_SAGAS: Final = ("Saga", "Status", "Last error", "Attempts", "Created", "Ended")


class LastSaga(msgspec.Struct, frozen=True):
    id: UUID
    status: SagaStatus
    attempt_count: int
    created_at: datetime
    ended_at: datetime | None
    last_error: str | None


class SubscriptionPages:
    slug = SUBSCRIPTIONS
    title = "Webhook subscriptions"
    about = "Subscriptions to webhooks: endpoints, and the events that they receive."

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def list(self, caller: Caller, after: str | None, limit: int) -> Listing:
        found = await read_newest(caller, self._tables, "pages_subscriptions", Known, after, limit)
        rows = [
            Row(
                str(each.id),
                (
                    Code(str(each.id)),
                    _status(each),
                    each.url,
                    _events(each),
                    each.failing_since,
                    each.created_at,
                ),
                each.tenant,
            )
            for each in found
        ]
        return Listing(_COLUMNS, rows, rows[-1].id if len(rows) == limit else None)

    async def item(self, caller: Caller, item_id: str) -> Item | None:
        subscription_id = read_id(item_id)
        if subscription_id is None:
            return None
        async with reading(caller, self._tables) as statements:
            known = await statements.one(
                "find_subscription", Known, id=subscription_id, tenant=caller.tenant
            )
            if known is None:
                return None
            sagas = await statements.all(
                "pages_sagas_of_subscription", LastSaga, id=subscription_id, rows_max=SAGAS_MAX
            )
        return Item(
            known.url,
            (
                ("Subscription", Code(str(known.id))),
                ("Tenant", known.tenant),
                ("Events", _events(known)),
                ("Preset", known.preset),
                ("Created", known.created_at),
                ("Failing since", known.failing_since),
                ("Disabled", known.disabled_at),
                ("Because", known.disabled_because),
            ),
            status=_status(known),
            parts=(_table(sagas),),
        )

    async def file(self, caller: Caller, item_id: str, name: str) -> File | None:
        return None


def _status(known: Known) -> Status:
    if known.disabled_at is not None:
        return Status("disabled", "bad" if known.disabled_because else "muted")
    return Status("failing", "warn") if known.failing_since else Status("enabled", "good")


def _events(known: Known) -> str:
    types = msgspec.json.decode(known.event_types, type=tuple[str, ...])
    return ", ".join(types) or "all"


def _table(sagas: list[LastSaga]) -> Table:
    rows = [
        (
            ItemLink(str(each.id), str(each.id), WebhookPages.slug),
            Status(each.status, SAGA_TONES[each.status]),
            each.last_error,
            each.attempt_count,
            each.created_at,
            each.ended_at,
        )
        for each in sagas
    ]
    return Table("Newest sagas", _SAGAS, rows, "No event has been sent to it yet.")
