"""Convert in the dashboard: conversions, each with the PDF that came and the XML that it became."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import UUID

import msgspec

from holdfast.dashboard.systems import (
    Cell,
    Code,
    File,
    FileLink,
    Item,
    JobLink,
    Listing,
    Row,
    Status,
    Tone,
    read_id,
    read_newest,
    reading,
)

if TYPE_CHECKING:
    from holdfast.api import Caller
    from holdfast_systems.convert.service import Convert

UPLOAD: Final = "upload.pdf"
RESULT: Final = "result.xml"

_COLUMNS: Final = ("File", "Status", "Mapping", "Attempts", "Created", "Ended")
_TONES: Final[dict[str, Tone]] = {
    "queued": "wait",
    "processing": "busy",
    "complete": "good",
    "failed": "bad",
    "canceled": "muted",
}


class ShownConversion(msgspec.Struct, frozen=True, kw_only=True):
    """A conversion in the list."""

    id: UUID
    tenant: str
    status: str | None  # None: its job ended so long ago that nobody knows how
    mapping: str
    original_filename: str
    attempts: int | None
    created_at: datetime
    ended_at: datetime | None


class WholeConversion(ShownConversion, frozen=True, kw_only=True):
    """A conversion with its files."""

    started_at: datetime | None
    completed_at: datetime | None
    failed_at: datetime | None
    result_path: str | None
    error_code: str | None
    error_message: str | None
    upload_id: UUID
    pdf_bytes: int
    result_bytes: int | None
    upload_removed_at: datetime | None


class ConvertPages:
    slug = "convert"
    title = "Convert"
    about = "PDF files that a gateway converts to XML."

    def __init__(self, convert: Convert) -> None:
        self._files = convert.files
        self._tables = convert.records.tables

    async def list(self, caller: Caller, after: str | None, limit: int) -> Listing:
        found = await read_newest(
            caller, self._tables, "pages_conversions", ShownConversion, after, limit
        )
        rows = [
            Row(
                str(each.id),
                (
                    each.original_filename,
                    _status(each.status),
                    each.mapping,
                    each.attempts,
                    each.created_at,
                    each.ended_at,
                ),
                each.tenant,
            )
            for each in found
        ]
        return Listing(_COLUMNS, rows, rows[-1].id if len(rows) == limit else None)

    async def item(self, caller: Caller, item_id: str) -> Item | None:
        found = await self._find(caller, item_id)
        if found is None:
            return None
        error = None
        if found.error_code is not None:
            error = f"{found.error_code}: {found.error_message or ''}".rstrip(": ")
        return Item(
            found.original_filename,
            _facts(found),
            status=_status(found.status),
            error=error,
            files=await self._links(found),
        )

    async def file(self, caller: Caller, item_id: str, name: str) -> File | None:
        found = await self._find(caller, item_id)
        path = None if found is None else self._path(found, name)
        if path is None or not await asyncio.to_thread(path.is_file):
            return None
        return File(name, "application/pdf" if name == UPLOAD else "application/xml", path)

    async def _links(self, found: WholeConversion) -> Sequence[FileLink]:
        """Those of its files that this server can find."""
        links = [
            FileLink(UPLOAD, "The PDF", "application/pdf"),
            FileLink(RESULT, "The XML", "application/xml"),
        ]
        paths = [self._path(found, link.name) for link in links]
        there = await asyncio.to_thread(lambda: [path and path.is_file() for path in paths])
        return [link for link, is_there in zip(links, there, strict=True) if is_there]

    def _path(self, found: WholeConversion, name: str) -> Path | None:
        if name == UPLOAD and found.upload_removed_at is None:
            return self._files.upload_path(found.upload_id)
        if name == RESULT and found.result_path is not None:
            return self._files.recorded_result(found.result_path)
        return None

    async def _find(self, caller: Caller, text: str) -> WholeConversion | None:
        job_id = read_id(text)
        if job_id is None:
            return None
        async with reading(caller, self._tables) as statements:
            return await statements.one(
                "pages_conversion", WholeConversion, id=job_id, tenant=caller.tenant
            )


def _status(status: str | None) -> Status:
    return Status(status or "ended", _TONES.get(status or "", "muted"))


def _facts(found: WholeConversion) -> tuple[tuple[str, Cell], ...]:
    return (
        ("Job", JobLink(found.id)),
        ("Tenant", found.tenant),
        ("Mapping", found.mapping),
        ("Attempts", found.attempts),
        ("PDF bytes", found.pdf_bytes),
        ("XML bytes", found.result_bytes),
        ("Upload", Code(str(found.upload_id))),
        ("Created", found.created_at),
        ("Started", found.started_at),
        ("Completed", found.completed_at),
        ("Failed", found.failed_at),
    )
