"""The pages of a system in the dashboard, as data: who asks, and what is read from the answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from holdfast import Holdfast
from holdfast.api import Caller
from holdfast.dashboard.systems import Item, JsonText, Row, SystemPages, Table

# What somebody may type as an ID.
NO_IDS = ("", "17", "../../etc/passwd", "' OR 1=1 --", "\u202e", "\x00", "9" * 5000, str(uuid4()))


def caller(hf: Holdfast, tenant: str | None = None, *scopes: str) -> Caller:
    """Without a tenant, one that sees all tenants."""
    return Caller(hf, "test", tenant, frozenset(scopes or ("read",)), correlation_id="c-1")


async def all_rows(pages: SystemPages, who: Caller, limit: int = 2) -> Sequence[Row]:
    """Read a whole list, page by page."""
    rows: list[Row] = []
    after: str | None = None
    while True:
        found = await pages.list(who, after, limit)
        assert len(found.rows) <= limit
        assert all(len(row.cells) == len(found.columns) for row in found.rows)
        rows += found.rows
        after = found.after
        if after is None:
            return rows


def part(item: Item, title: str) -> Any:
    """The rows of a table, or the text of a JSON document."""
    (found,) = [each for each in item.parts if each.title == title]
    if isinstance(found, JsonText):
        return found.text
    assert isinstance(found, Table)
    assert all(len(row) == len(found.columns) for row in found.rows)
    return found.rows


async def shows_nothing_else(pages: SystemPages, who: Caller) -> None:
    """No text that is not the ID of an item finds one, and none is an error."""
    for text in NO_IDS:
        assert await pages.item(who, text) is None
        assert await pages.file(who, text, "passwd") is None
        await pages.list(who, text, 10)
