"""The system: what an application calls, and the job that a worker runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from uuid import UUID

import aiohttp
import msgspec

from holdfast import Context, Holdfast, LeaseLost, Permanent
from holdfast_systems.convert import failures
from holdfast_systems.convert.client import GatewayClient
from holdfast_systems.convert.failures import ConversionRefused, check_mapping
from holdfast_systems.convert.files import Files
from holdfast_systems.convert.limits import (
    FILENAME_CHARS_MAX,
    FILES_SECONDS_MAX,
    MIB,
    PDF_BYTES_MAX,
)
from holdfast_systems.convert.settings import GATEWAY, ConvertSettings
from holdfast_systems.convert.steps import Steps


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the view `convert_jobs`."""

    id: UUID
    status: str
    mapping: str
    original_filename: str
    attempts: int | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    failed_at: datetime | None
    result_path: str | None
    error_code: str | None
    error_message: str | None


class Convert:
    """Convert PDF files to XML: `submit` a file, and `get` its conversion."""

    def __init__(self, hf: Holdfast, settings: ConvertSettings) -> None:
        self.hf = hf
        self.settings = settings
        self.files = Files(settings.uploads_dir, settings.results_dir)
        self.tables = hf.tables("convert", package=__package__)
        self._retry = settings.retry
        hf.resource(self.convert_gateway)
        self.job = hf.job(
            name="convert",
            queue="convert",
            retry=self._retry,
            breaker=GATEWAY,
            timeout_seconds=settings.gateway_timeout_seconds + FILES_SECONDS_MAX,
        )(self._run)

    async def submit(
        self, pdf: bytes, mapping: str, original_filename: str, *, tenant: str = "default"
    ) -> UUID:
        """Store the PDF, enqueue its conversion, and return the job's id."""
        check_mapping(mapping, self.settings.mappings)
        if not 0 < len(pdf) <= PDF_BYTES_MAX:
            text = f"a PDF must have 1 byte to {PDF_BYTES_MAX // MIB} MiB, not {len(pdf)} bytes"
            raise ConversionRefused(text, "PDF_SIZE")
        job_id = self.hf.new_id()
        # Before the job: a worker may read the file as soon as the job exists.
        await asyncio.to_thread(self.files.write_upload, job_id, pdf)
        own = self.hf.for_tenant(tenant)
        async with own.transaction() as connection:
            await self.tables.on(connection).execute(
                "insert_conversion",
                job_id=job_id,
                tenant=tenant,
                mapping=mapping,
                original_filename=failures.one_line(original_filename)[:FILENAME_CHARS_MAX],
                pdf_bytes=len(pdf),
            )
            job = self.job.options(id=job_id, correlation_id=str(job_id), connection=connection)
            await own.enqueue(job, job_id, mapping)
        return job_id

    async def get(self, job_id: UUID, *, tenant: str = "default") -> Conversion | None:
        """Find the tenant's conversion; one of another tenant counts as missing."""
        async with self.hf.for_tenant(tenant).transaction(read_only=True) as connection:
            return await self.tables.on(connection).one(
                "find_job", Conversion, id=job_id, tenant=tenant
            )

    async def convert_gateway(self) -> AsyncIterator[GatewayClient]:
        """Give every worker both folders, and connections to the gateway."""
        await asyncio.to_thread(self.files.make_folders)
        async with aiohttp.ClientSession() as session:
            yield GatewayClient(
                session, self.settings.gateway_url, self.settings.gateway_timeout_seconds
            )

    async def _run(self, ctx: Context, upload_id: UUID, mapping: str) -> None:
        steps = Steps(ctx)
        steps.start()
        try:
            await self._convert(ctx, upload_id, mapping, steps)
        except Exception as error:
            if ctx.judge(error).state.ended:
                await self._fail(ctx, error, steps)
            raise
        steps.complete()

    async def _convert(self, ctx: Context, upload_id: UUID, mapping: str, steps: Steps) -> None:
        try:
            check_mapping(mapping, self.settings.mappings)
        except ConversionRefused as error:
            raise Permanent(str(error), code=error.code) from error
        if ctx.job_id != upload_id:
            await self._adopt(ctx, upload_id)
        try:
            pdf = await asyncio.to_thread(self.files.upload_path(upload_id).read_bytes)
        except OSError as error:
            raise failures.of_file(error) from error
        xml = await self._ask_gateway(ctx, pdf, mapping, steps)
        try:
            path = await asyncio.to_thread(self.files.write_result, ctx.job_id, ctx.fence, xml)
        except OSError as error:
            raise failures.of_file(error) from error
        await self._complete(ctx, path, len(xml))

    async def _ask_gateway(self, ctx: Context, pdf: bytes, mapping: str, steps: Steps) -> bytes:
        gateway: GatewayClient = ctx.resources["convert_gateway"]
        asked = time.monotonic()
        answer = await gateway.process(pdf, mapping, ctx.job_id)
        steps.gateway(answer.status, answer.failure, time.monotonic() - asked)
        if answer.failure is not None:
            raise answer.failure
        return answer.xml

    async def _adopt(self, ctx: Context, upload_id: UUID) -> None:
        """Give a requeued job, which has a new id, its own row."""
        async with self.hf.transaction() as connection:
            await self.tables.on(connection).execute(
                "adopt_upload", job_id=ctx.job_id, upload_id=upload_id, tenant=ctx.tenant
            )

    async def _complete(self, ctx: Context, path: Path, xml_bytes: int) -> None:
        try:
            async with ctx.completing() as connection:
                await self.tables.on(connection).execute(
                    "complete_conversion",
                    job_id=ctx.job_id,
                    result_path=str(path),
                    result_bytes=xml_bytes,
                    attempts=ctx.attempt,
                )
                ctx.set_result({"result_path": str(path)})
        except LeaseLost:
            # Nothing refers to this file. After any other error, the commit may have happened.
            await asyncio.to_thread(path.unlink, missing_ok=True)
            raise

    async def _fail(self, ctx: Context, error: Exception, steps: Steps) -> None:
        """Write the failure, unless the breaker, which has counted it by now, parks the job."""
        async with ctx.failing(error) as connection:
            judged = ctx.judge(error)
            if judged.state.ended:
                await self.tables.on(connection).execute(
                    "fail_conversion",
                    job_id=ctx.job_id,
                    error_code=judged.code,
                    error_message=(judged.text or "").partition("\n")[0],
                    attempts=ctx.attempt,
                )
        if judged.state.ended:
            steps.failed(judged.code)
