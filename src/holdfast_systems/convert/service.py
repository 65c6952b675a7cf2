"""The system: what an application calls, and the job that a worker runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import UUID

import aiohttp

from holdfast import Context, Holdfast, LeaseLost, Permanent, Tenant
from holdfast_systems.convert import failures
from holdfast_systems.convert.cleanup import (
    CONVERSIONS_EVERY_SECONDS,
    ORPHANS_EVERY_SECONDS,
    Cleanup,
)
from holdfast_systems.convert.client import GatewayClient
from holdfast_systems.convert.failures import ConversionRefused, check_mapping
from holdfast_systems.convert.files import Files, Upload
from holdfast_systems.convert.limits import FILES_SECONDS_MAX, MIB
from holdfast_systems.convert.records import Conversion, Records
from holdfast_systems.convert.settings import GATEWAY, ConvertSettings
from holdfast_systems.convert.steps import JOB, Steps

if TYPE_CHECKING:
    from holdfast.api import Router
    from holdfast.dashboard.systems import SystemPages

QUEUE = "convert"


class Convert:
    """Convert PDF files to XML: `submit` a file, and `get` its conversion."""

    def __init__(self, hf: Holdfast, settings: ConvertSettings) -> None:
        self.hf = hf
        self.settings = settings
        self.files = Files(settings.uploads_dir, settings.results_dir)
        self.records = Records(hf)
        self.cleanup = Cleanup(hf, self.records, self.files, settings)
        hf.resource(self.convert_gateway)
        self.job = hf.job(
            name=JOB,
            queue=QUEUE,
            retry=settings.retry,
            breaker=GATEWAY,
            timeout_seconds=settings.gateway_timeout_seconds + FILES_SECONDS_MAX,
        )(self._run)
        sweeps = (
            (CONVERSIONS_EVERY_SECONDS, self.cleanup.clean_up_conversions),
            (ORPHANS_EVERY_SECONDS, self.cleanup.remove_orphans),
        )
        for every_seconds, sweep in sweeps:
            hf.sweep(queue=QUEUE, every_seconds=every_seconds)(sweep)
        hf.add_routes(self._make_routes)
        hf.add_pages(self._make_pages)

    def _make_routes(self, _service: object) -> Router:
        # Imported here, because workers and applications need no web framework.
        from holdfast_systems.convert.routes import routes

        return routes(self)

    def _make_pages(self, _service: object) -> SystemPages:
        from holdfast_systems.convert.pages import ConvertPages

        return ConvertPages(self)

    async def submit(
        self,
        pdf: bytes | BinaryIO,
        mapping: str,
        original_filename: str,
        *,
        tenant: str = "default",
    ) -> UUID:
        """Store the PDF, enqueue its conversion, and return the job's id. A file is never in memory
        as a whole."""
        check_mapping(mapping, self.settings.mappings)
        chunks = iter([pdf]) if isinstance(pdf, bytes) else _chunks(pdf)
        upload = await asyncio.to_thread(self.files.write_upload, self.hf.new_id(), chunks)
        own = self.hf.for_tenant(tenant)
        async with own.transaction() as connection:
            await self.enqueue(connection, upload, mapping, original_filename, own)
        return upload.id

    async def enqueue(
        self,
        connection: Any,
        upload: Upload,
        mapping: str,
        original_filename: str,
        tenant: Tenant,
    ) -> None:
        """Enqueue the conversion of an upload, which must be on disk: a worker may read it as soon
        as the transaction is committed."""
        await self.records.insert(
            connection,
            upload.id,
            tenant=tenant,
            mapping=mapping,
            filename=original_filename,
            pdf_bytes=upload.bytes,
        )
        options = {"id": upload.id, "correlation_id": str(upload.id), "connection": connection}
        await tenant.enqueue(self.job.options(**options), upload.id, mapping)

    async def get(self, job_id: UUID, *, tenant: str = "default") -> Conversion | None:
        """Find the tenant's conversion; one of another tenant counts as missing."""
        return await self.records.find(job_id, self.hf.for_tenant(tenant))

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
                await self._fail(ctx, error)
            raise

    async def _convert(self, ctx: Context, upload_id: UUID, mapping: str, steps: Steps) -> None:
        try:
            check_mapping(mapping, self.settings.mappings)
        except ConversionRefused as error:
            raise Permanent(str(error), code=error.code) from error
        if ctx.job_id != upload_id:
            await self.records.adopt(ctx, upload_id)
        xml = await self._ask_gateway(ctx, upload_id, mapping, steps)
        try:
            path = await self._write(ctx, xml)
        except OSError as error:
            raise failures.of_file(error) from error
        await self._complete(ctx, path, len(xml))

    async def _write(self, ctx: Context, xml: bytes) -> Path:
        """Write the result. A thread can't be stopped, so what it has written for a handler that
        was stopped is removed."""
        thread = asyncio.to_thread(self.files.write_result, ctx.job_id, ctx.fence, xml)
        writing = asyncio.ensure_future(thread)
        try:
            return await asyncio.shield(writing)
        except asyncio.CancelledError:
            writing.add_done_callback(_remove)
            raise

    async def _ask_gateway(
        self, ctx: Context, upload_id: UUID, mapping: str, steps: Steps
    ) -> bytes:
        gateway: GatewayClient = ctx.resources["convert_gateway"]
        try:
            pdf = await asyncio.to_thread(self.files.open_upload, upload_id)
        except OSError as error:
            raise failures.of_file(error) from error
        asked = time.monotonic()
        with pdf:
            answer = await gateway.process(pdf, mapping, ctx.job_id)
        steps.gateway(answer.status, answer.failure, time.monotonic() - asked)
        if answer.failure is not None:
            raise answer.failure
        return answer.xml

    async def _complete(self, ctx: Context, path: Path, xml_bytes: int) -> None:
        try:
            async with ctx.completing() as connection:
                await self.records.complete(connection, ctx, str(path), xml_bytes)
                ctx.set_result({"result_path": str(path)})
        except LeaseLost:
            # Nothing refers to this file. After any other error, the commit may have happened.
            await asyncio.to_thread(path.unlink, missing_ok=True)
            raise

    async def _fail(self, ctx: Context, error: Exception) -> None:
        """Write the failure, unless the breaker, which has counted it by now, parks the job."""
        async with ctx.failing(error) as connection:
            judged = ctx.judge(error)
            if judged.state.ended:
                await self.records.fail(connection, ctx, judged)


def _remove(written: asyncio.Future[Path]) -> None:
    with suppress(OSError, asyncio.CancelledError):
        written.result().unlink(missing_ok=True)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(MIB):
        yield chunk
