"""The audit log: who did what, when, from where, and to how many jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal
from uuid import UUID

import msgspec

Outcome = Literal["allowed", "denied", "failed"]

UNKNOWN: Final = "unknown"


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """Who acts, and from where. Callers of the HTTP API have all of these; operators on the command
    line have a name and an address such as "ann@host (command line)"."""

    name: str
    key_id: str | None = None
    tenant: str | None = None
    address: str | None = None
    correlation_id: str | None = None

    @classmethod
    def of(cls, by: str | Actor | None) -> Actor:
        return by if isinstance(by, Actor) else cls(name=by or UNKNOWN)


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action. `allowed` means that it was permitted, and done unless a `failed` entry follows;
    `denied` means that the key did not permit it."""

    id: UUID
    at: datetime
    actor: str
    key_id: str | None = None
    tenant: str | None = None
    action: str  # such as queue.pause
    outcome: Outcome
    target: str | None = None
    jobs: int
    address: str | None = None
    correlation_id: str | None = None
    because: str | None = None


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries to list; None means any. `since` is included, `until` is not."""

    actor: str | None = None
    key_id: str | None = None
    tenant: str | None = None
    action: str | None = None
    target: str | None = None
    outcome: Outcome | None = None
    since: datetime | None = None
    until: datetime | None = None


class AuditPage(msgspec.Struct, frozen=True):
    """Entries, newest first. To get the next page, pass `after`; the last page has None."""

    entries: list[AuditEntry]
    after: UUID | None
