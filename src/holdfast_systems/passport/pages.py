"""Passport in the dashboard: its versions, each with its files and what happened to it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from holdfast import Tables
from holdfast.dashboard.systems import (
    LAST,
    Cell,
    Code,
    File,
    FileLink,
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
    reading,
)
from holdfast_systems.passport.files import LABEL, PAYLOAD, PICTURE, RECEIPT, receipt_file
from holdfast_systems.passport.queries import END, Delivery
from holdfast_systems.passport.records import AuditEvent, Version

if TYPE_CHECKING:
    from holdfast.api import Caller
    from holdfast_systems.passport.system import Passport

_COLUMNS: Final = ("Passport", "Status", "Payload hash", "Issued", "Signed")
_DELIVERED: Final[dict[str, Tone]] = {"PENDING": "wait", "DELIVERED": "good", "FAILED": "bad"}


class ShownVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version in the list, without its contents."""

    id: UUID
    tenant: str
    passport_id: UUID
    payload_hash: str
    issued_at: datetime
    signed_at: datetime | None
    has_qr: bool
    created_at: datetime


class PassportPages:
    slug = "passport"
    title = "Passport"
    about = "Battery passports: compiled from facts, signed, and given a QR code."

    def __init__(self, passport: Passport, tables: Tables) -> None:
        self._passport = passport
        self._tables = tables

    async def list(self, caller: Caller, after: str | None, limit: int) -> Listing:
        last = await self._find(caller, after)
        names: dict[str, object] = {
            "before_time": END if last is None else last.created_at,
            "before_id": LAST if last is None else last.id,
            "rows_max": limit,
        }
        statement = "pages_versions"
        if caller.tenant is not None:
            statement, names["tenant"] = "pages_versions_of_tenant", caller.tenant
        async with reading(caller, self._tables) as statements:
            found = await statements.all(statement, ShownVersion, **names)
        rows = [
            Row(
                str(each.id),
                (
                    Code(str(each.passport_id)),
                    _status(each.signed_at, has_qr=each.has_qr),
                    Code(each.payload_hash),
                    each.issued_at,
                    each.signed_at,
                ),
                each.tenant,
            )
            for each in found
        ]
        return Listing(_COLUMNS, rows, rows[-1].id if len(rows) == limit else None)

    async def item(self, caller: Caller, item_id: str) -> Item | None:
        version = await self._find(caller, item_id)
        if version is None:
            return None
        passport = self._passport
        deliveries = await passport.queries.deliveries(version.tenant, version.id)
        events = await passport.audit(version.tenant, version.id)
        documents = await passport.queries.documents(version.tenant, version.snapshot_id)
        made_of = Table(
            "Documents",
            ("Name", "Schema", "Content hash", "Parsed"),
            [
                (each.name, each.schema_version, Code(each.content_hash), each.parsed_at)
                for each in documents
            ],
        )
        return Item(
            f"Passport {version.passport_id}",
            _facts(version),
            status=_status(version.signed_at, has_qr=version.qr_png is not None),
            files=_files(version),
            parts=(
                JsonText("Payload", version.payload),
                JsonText("Receipt", version.receipt),
                made_of,
                _deliveries(deliveries),
                _events(events),
            ),
        )

    async def file(self, caller: Caller, item_id: str, name: str) -> File | None:
        version = await self._find(caller, item_id)
        if version is None:
            return None
        known = {link.name: link.media_type for link in _files(version)}
        if name not in known:
            return None
        return File(name, known[name], await self._content(version, name))

    async def _content(self, version: Version, name: str) -> bytes:
        if name == PAYLOAD:
            return version.payload.encode()
        if name == PICTURE:
            return version.qr_png or b""
        if name == LABEL:
            return await self._passport.label(version.tenant, version.id)
        return receipt_file(await self._passport.sealed(version.tenant, version.id))

    async def _find(self, caller: Caller, text: str | None) -> Version | None:
        version_id = None if text is None else read_id(text)
        if version_id is None:
            return None
        async with reading(caller, self._tables) as statements:
            return await statements.one(
                "pages_version", Version, id=version_id, tenant=caller.tenant
            )


def _status(signed_at: datetime | None, *, has_qr: bool) -> Status:
    if signed_at is None:
        return Status("compiled", "wait")
    return Status("issued", "good") if has_qr else Status("signed", "busy")


def _facts(version: Version) -> tuple[tuple[str, Cell], ...]:
    return (
        ("Version", Code(str(version.id))),
        ("Tenant", version.tenant),
        ("Snapshot", Code(str(version.snapshot_id))),
        ("Rules", Code(str(version.rules_id))),
        ("Build", version.build_id),
        ("Issued", version.issued_at),
        ("Compiled", version.created_at),
        ("Signed", version.signed_at),
        ("Signing key", version.key_id),
        ("Payload hash", Code(version.payload_hash)),
        ("Proof root", Code(version.proof_root)),
        ("Receipt hash", Code(version.receipt_hash)),
        ("QR text", version.qr_text and Code(version.qr_text)),
    )


def _files(version: Version) -> list[FileLink]:
    found = [FileLink(PAYLOAD, "Passport", "application/json")]
    if version.signature is not None:
        found.append(FileLink(RECEIPT, "Receipt and signature", "application/json"))
    if version.signature is not None and version.qr_png is not None:
        found.insert(0, FileLink(PICTURE, "QR code", "image/png"))
        found.insert(1, FileLink(LABEL, "Label", "application/pdf"))
    return found


def _deliveries(deliveries: list[Delivery]) -> Table:
    rows = [
        (
            ItemLink(str(each.webhook_delivery_id), str(each.webhook_delivery_id), "webhooks"),
            Status(each.status, _DELIVERED.get(each.status, "muted")),
            each.http_status,
            each.error_code,
            Code(str(each.webhook_endpoint_id)),
            each.created_at,
            each.delivered_at,
        )
        for each in deliveries
    ]
    columns = ("Delivery", "Status", "HTTP", "Error", "Endpoint", "Created", "Delivered")
    return Table("Deliveries", columns, rows, "No endpoint wants its events.")


def _events(events: list[AuditEvent]) -> Table:
    rows = [
        (
            each.occurred_at,
            each.event_type,
            None if each.job_id is None else JobLink(each.job_id),
            Code(each.payload),
        )
        for each in events
    ]
    return Table("Events", ("Time", "Event", "Job", "Details"), rows)
