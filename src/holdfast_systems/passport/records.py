"""The rows of the passport tables."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from holdfast_systems.passport.facts import Fact
from holdfast_systems.passport.schema import Cell


class Document(msgspec.Struct, frozen=True):
    id: UUID
    name: str
    schema_version: str
    content: bytes


class Snapshot(msgspec.Struct, frozen=True):
    """A set of facts. `ordered` is the order, as JSON, to compile when it is sealed."""

    id: UUID
    status: str
    ordered: str | None

    @property
    def is_sealed(self) -> bool:
        return self.status == "SEALED"


class SnapshotDocument(msgspec.Struct, frozen=True):
    parsed_at: datetime | None


class Rules(msgspec.Struct, frozen=True):
    id: UUID
    status: str
    source: str

    @property
    def is_published(self) -> bool:
        return self.status == "PUBLISHED"


class FactRow(msgspec.Struct, frozen=True):
    fact_type: str
    fact_key: str
    schema_version: str
    payload: str

    def fact(self) -> Fact:
        payload = msgspec.json.decode(self.payload, type=dict[str, Cell])
        return Fact(self.fact_type, self.fact_key, self.schema_version, payload)


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A passport version. The signature and the QR code are added after it is compiled."""

    id: UUID
    tenant: str
    passport_id: UUID
    snapshot_id: UUID
    rules_id: UUID
    build_id: str
    issued_at: datetime
    payload: str
    payload_hash: str
    proof_root: str
    receipt: str
    receipt_hash: str
    key_id: str | None
    signature: bytes | None
    public_key: bytes | None
    signed_at: datetime | None
    qr_text: str | None
    qr_png: bytes | None
    created_at: datetime


class AuditEvent(msgspec.Struct, frozen=True):
    event_type: str
    aggregate_type: str
    aggregate_id: UUID
    job_id: UUID | None
    payload: str
    occurred_at: datetime
