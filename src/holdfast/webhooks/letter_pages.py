"""Dead letters of webhooks in the dashboard: sagas that were given up, and what each would have
sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from holdfast import Tables
from holdfast.dashboard.systems import (
    Cell,
    Code,
    File,
    Item,
    ItemLink,
    JsonText,
    Listing,
    Row,
    Status,
    read_id,
    read_newest,
    reading,
)
from holdfast.webhooks.pages import LETTERS, SUBSCRIPTIONS
from holdfast.webhooks.rows import DeadLetter

if TYPE_CHECKING:
    from holdfast.api import Caller

_COLUMNS: Final = ("Dead letter", "Status", "Error", "Event", "Endpoint", "Dead since")


class ShownLetter(DeadLetter, frozen=True, kw_only=True):
    event_type: str | None
    url: str | None
    next_saga: UUID | None

    @property
    def status(self) -> Status:
        return Status("dead", "bad") if self.next_saga is None else Status("requeued", "good")


class LetterPages:
    slug = LETTERS
    title = "Webhook dead letters"
    about = "Dead letters of webhooks: sagas that were given up."

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def list(self, caller: Caller, after: str | None, limit: int) -> Listing:
        found = await read_newest(caller, self._tables, "pages_letters", ShownLetter, after, limit)
        rows = [
            Row(
                str(each.id),
                (
                    Code(str(each.id)),
                    each.status,
                    each.final_error_code,
                    each.event_type,
                    each.url,
                    each.failed_at,
                ),
                each.tenant,
            )
            for each in found
        ]
        return Listing(_COLUMNS, rows, rows[-1].id if len(rows) == limit else None)

    async def item(self, caller: Caller, item_id: str) -> Item | None:
        letter_id = read_id(item_id)
        if letter_id is None:
            return None
        async with reading(caller, self._tables) as statements:
            letter = await statements.one(
                "pages_letter", ShownLetter, id=letter_id, tenant=caller.tenant
            )
        if letter is None:
            return None
        facts: list[tuple[str, Cell]] = [
            ("Dead letter", Code(str(letter.id))),
            ("Tenant", letter.tenant),
            ("Endpoint", letter.url),
            ("Saga", _saga(letter.saga_id)),
            ("Subscription", _subscription(letter.subscription_id)),
            ("Event", Code(str(letter.event_id))),
            ("Dead since", letter.failed_at),
        ]
        if letter.next_saga is not None:
            facts.append(("Requeued as", _saga(letter.next_saga)))
        return Item(
            letter.event_type or f"Event {letter.event_id}",
            facts,
            status=letter.status,
            error=letter.final_error_code,
            parts=(JsonText("Payload", letter.payload_snapshot),),
        )

    async def file(self, caller: Caller, item_id: str, name: str) -> File | None:
        return None


def _saga(saga_id: UUID) -> ItemLink:
    return ItemLink(str(saga_id), str(saga_id), "webhooks")


def _subscription(subscription_id: UUID) -> ItemLink:
    return ItemLink(str(subscription_id), str(subscription_id), SUBSCRIPTIONS)
