"""The rows of conversions: what submitters, callers of the API and handlers read and write."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast import Context, Holdfast, Judgment, Tenant
from holdfast_systems.convert.failures import one_line
from holdfast_systems.convert.limits import FILENAME_CHARS_MAX


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the view `convert_jobs`."""

    id: UUID
    status: str
    mapping: str
    original_filename: str
    attempts: int | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    failed_at: datetime | None
    result_path: str | None
    error_code: str | None
    error_message: str | None


class Records:
    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self.tables = hf.tables("convert", package=__package__)

    async def insert(
        self,
        connection: Any,
        job_id: UUID,
        *,
        tenant: Tenant,
        mapping: str,
        filename: str,
        pdf_bytes: int,
    ) -> None:
        await self.tables.on(connection).execute(
            "insert_conversion",
            job_id=job_id,
            tenant=tenant.name,
            mapping=mapping,
            original_filename=one_line(filename)[:FILENAME_CHARS_MAX],
            pdf_bytes=pdf_bytes,
        )

    async def find(self, job_id: UUID, tenant: Tenant, connection: Any = None) -> Conversion | None:
        """Find the tenant's conversion; one of another tenant counts as missing."""
        reading = tenant.transaction(read_only=True) if connection is None else nullcontext()
        async with reading as opened:
            return await self.tables.on(connection or opened).one(
                "find_job", Conversion, id=job_id, tenant=tenant.name
            )

    async def page(self, tenant: Tenant, limit: int, after: UUID | None) -> Sequence[Conversion]:
        """The tenant's conversions, newest first, from the one that follows `after`."""
        names: dict[str, Any] = {"tenant": tenant.name, "limit": limit}
        statement = "first_page"
        if after is not None:
            statement, names["after"] = "next_page", after
        async with tenant.transaction(read_only=True) as connection:
            return await self.tables.on(connection).all(statement, Conversion, **names)

    async def adopt(self, ctx: Context, upload_id: UUID) -> None:
        """Give a requeued job, which has a new id, its own row."""
        async with self._hf.transaction() as connection:
            await self.tables.on(connection).execute(
                "adopt_upload", job_id=ctx.job_id, upload_id=upload_id, tenant=ctx.tenant
            )

    async def complete(
        self, connection: Any, ctx: Context, result_path: str, result_bytes: int
    ) -> None:
        await self.tables.on(connection).execute(
            "complete_conversion",
            job_id=ctx.job_id,
            result_path=result_path,
            result_bytes=result_bytes,
            attempts=ctx.attempt,
        )

    async def fail(self, connection: Any, ctx: Context, judged: Judgment) -> None:
        await self.tables.on(connection).execute(
            "fail_conversion",
            job_id=ctx.job_id,
            error_code=judged.code,
            error_message=(judged.text or "").partition("\n")[0],
            attempts=ctx.attempt,
        )
