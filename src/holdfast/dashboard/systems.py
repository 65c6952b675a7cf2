"""What a system shows in the dashboard, as data: a list, one item, and its files.

A system implements `SystemPages` and adds it with `hf.add_pages`. The dashboard does the rest:
addresses, keys, pages, and files that can't harm the browser. Nothing here needs its packages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Literal,
    Protocol,
    TypeAlias,
    TypeVar,
    runtime_checkable,
)
from uuid import UUID

if TYPE_CHECKING:
    from holdfast.api import Caller
    from holdfast.transactions.tables import Statements, Tables

T = TypeVar("T")

LAST: Final = UUID(int=2**128 - 1)  # what a list that goes back from the newest begins before

Tone = Literal["good", "busy", "wait", "warn", "bad", "muted"]

# What browsers get. Anything else is offered as a download.
SHOWN: Final = ("image/png", "image/svg+xml", "application/pdf")
TEXTS: Final = ("application/xml", "application/json", "text/plain", "text/csv")


@dataclass(frozen=True, slots=True)
class Status:
    """A status in the system's own words, and how to color it."""

    text: str
    tone: Tone = "muted"


@dataclass(frozen=True, slots=True)
class Code:
    """A hash, an ID or another text for machines."""

    text: str


@dataclass(frozen=True, slots=True)
class JobLink:
    """A link to a job of the engine."""

    id: UUID
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ItemLink:
    """A link to an item of a system: of this one, unless `system` names another."""

    id: str
    text: str
    system: str | None = None


# A number is shown as it is written: pass what is exact, a Decimal, as such.
Cell: TypeAlias = str | int | float | Decimal | datetime | Status | Code | JobLink | ItemLink | None
Facts = Sequence[tuple[str, Cell]]


@dataclass(frozen=True, slots=True)
class Row:
    """An item in a list. Its first cell links to its page. `tenant` is shown to those who see all
    tenants."""

    id: str
    cells: Sequence[Cell]
    tenant: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of a list, newest first. `after` starts the next page; None on the last one."""

    columns: Sequence[str]
    rows: Sequence[Row]
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A part of an item's page. `empty` is what to say if it has no rows."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    empty: str = "Nothing yet."


@dataclass(frozen=True, slots=True)
class JsonText:
    """A part of an item's page: a JSON document, shown byte for byte as it was stored."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class FileLink:
    """A file of an item. Pictures and PDF files are shown on its page; all can be downloaded."""

    name: str
    title: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Item:
    """One item: facts at the top, then its files, then the parts."""

    title: str
    facts: Facts
    status: Status | None = None
    error: str | None = None
    files: Sequence[FileLink] = ()
    parts: Sequence[Table | JsonText] = ()


@dataclass(frozen=True, slots=True)
class File:
    """A file's content, or where it is on this machine."""

    name: str
    media_type: str
    content: bytes | Path


class SystemPages(Protocol):
    """A system's pages below `/ui/systems/<slug>`, for keys with the scope `read`.

    A caller with a tenant must see nothing of another: what it asks for doesn't exist. A caller
    whose tenant is None sees all. IDs come from the address, so they can be any text.
    """

    @property
    def slug(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def about(self) -> str:
        """One sentence for the head of the list."""

    async def list(self, caller: Caller, after: str | None, limit: int) -> Listing:
        """Return the page after the item with this ID, or the first one."""

    async def item(self, caller: Caller, item_id: str) -> Item | None: ...

    async def file(self, caller: Caller, item_id: str, name: str) -> File | None: ...


@dataclass(frozen=True, slots=True)
class Form:
    """Work that can be started by hand: its inputs are described by a JSON Schema."""

    name: str
    title: str
    schema: Mapping[str, Any] = field(repr=False)


class FormRefused(Exception):
    """The inputs are wrong: where, as JSON Pointers, and why."""

    def __init__(self, errors: Sequence[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{pointer or '/'}: {text}" for pointer, text in errors))
        self.errors = list(errors)


@runtime_checkable
class RunsForms(Protocol):
    """What pages implement besides, to start work from `/ui/systems/<slug>/run`. It takes the scope
    `enqueue`."""

    def forms(self) -> Sequence[Form]: ...

    async def run(self, caller: Caller, form: Form, inputs: Any) -> str:
        """Start the work and return the item's ID, or raise FormRefused."""


def read_id(text: str) -> UUID | None:
    """Read an ID from an address."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text.lower() else None


@asynccontextmanager
async def reading(caller: Caller, tables: Tables) -> AsyncIterator[Statements]:
    """Read a system's tables as the caller: those of its tenant, or of all."""
    reader = caller.hf if caller.tenant is None else caller.hf.for_tenant(caller.tenant)
    async with reader.transaction(read_only=True) as connection:
        yield tables.on(connection)


async def read_newest(
    caller: Caller, tables: Tables, statement: str, row_type: type[T], after: str | None, limit: int
) -> list[T]:
    """Read a page of a list that goes back from the newest: at most `rows_max` items, whose IDs are
    less than `before`. For a caller with a tenant, the statement with the suffix `_of_tenant` reads
    those of `tenant`."""
    before = LAST if after is None else read_id(after)
    if before is None:
        return []
    values: dict[str, object] = {"before": before, "rows_max": limit}
    if caller.tenant is not None:
        statement, values["tenant"] = f"{statement}_of_tenant", caller.tenant
    async with reading(caller, tables) as statements:
        return await statements.all(statement, row_type, **values)
