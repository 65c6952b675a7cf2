"""The routes under /conversions, behind the keys of the service."""

from __future__ import annotations

import asyncio
import os
from contextlib import nullcontext
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from fastapi import Query, Request
from starlette.responses import FileResponse, Response

from holdfast import JobNotFound
from holdfast.api import AsCaller, Caller, Problem, Router, answer, describes
from holdfast.api.idempotency import idempotent
from holdfast_systems.convert.forms import Form, receive_form
from holdfast_systems.convert.limits import PAGE_CONVERSIONS_MAX
from holdfast_systems.convert.records import Conversion
from holdfast_systems.convert.service import Convert

Limit = Annotated[int, Query(ge=1, le=PAGE_CONVERSIONS_MAX)]

_PATH: Final = "/conversions"
_LOCATION: Final = {"location": "The path of the conversion"}
_FORM: Final = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["mapping", "file"],
                "properties": {
                    "mapping": {"type": "string"},
                    "file": {"type": "string", "format": "binary"},
                },
            }
        }
    },
}


class ShownConversion(msgspec.Struct, frozen=True, kw_only=True):
    """A conversion: queued, processing, complete, failed or canceled. `result_path` is the path of
    the result in this API, once the conversion is complete."""

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


class Conversions(msgspec.Struct, frozen=True):
    """Newest first."""

    conversions: list[ShownConversion]


class Submitted(msgspec.Struct, frozen=True):
    """What tells whether a repeated request is the same."""

    mapping: str
    filename: str
    sha256: str


def routes(convert: Convert) -> Router:
    router = Router(prefix=_PATH, tags=["Convert"])
    _add_submit(router, convert)
    _add_reading(router, convert)
    _add_result(router, convert)
    _add_cancel(router, convert)
    return router


def _add_submit(router: Router, convert: Convert) -> None:
    described = describes(
        "enqueue",
        {202: ShownConversion},
        ["bad-arguments", "too-large", "too-slow"],
        headers=_LOCATION,
        idempotency="optional",
    )
    described["openapi_extra"]["requestBody"] = _FORM

    @router.post("", **described)
    async def submit_conversion(request: Request, caller: AsCaller) -> Response:
        """Submit a PDF as a form with the fields `mapping` and `file`. A job converts it."""
        mappings = convert.settings.mappings
        form = await receive_form(request, convert.files, convert.hf.new_id(), mappings)
        return await _submit(request, caller, convert, form)


async def _submit(request: Request, caller: Caller, convert: Convert, form: Form) -> Response:
    tenant = caller.tenant_for(None)
    begun = False

    async def work(connection: Any) -> Response:
        nonlocal begun
        begun = True
        opened = tenant.transaction() if connection is None else nullcontext(connection)
        async with opened as connection:
            await convert.enqueue(connection, form.upload, form.mapping, form.filename, tenant)
            # Before the commit: a worker may begin right after it.
            found = await convert.records.find(form.upload.id, tenant, connection)
        assert found is not None
        return answer(_shown(found), 202, {"location": f"{_PATH}/{found.id}"})

    given = Submitted(form.mapping, form.filename, form.upload.sha256)
    try:
        return await idempotent(request, caller, given, work)
    finally:
        # If the work began, a commit may have happened: the cleanup finds out.
        if not begun:
            await asyncio.to_thread(form.upload.remove)


def _add_reading(router: Router, convert: Convert) -> None:
    @router.get("", **describes("read", {200: Conversions}))
    async def list_conversions(
        caller: AsCaller, limit: Limit = 50, after: UUID | None = None
    ) -> Response:
        """List conversions, newest first. `after` is the last ID of the page before."""
        found = await convert.records.page(caller.tenant_for(None), limit, after)
        return answer(Conversions([_shown(each) for each in found]))

    @router.get("/{job_id}", **describes("read", {200: ShownConversion}, ["job-not-found"]))
    async def get_conversion(job_id: UUID, caller: AsCaller) -> Response:
        """Get the status of a conversion, and its last error."""
        return answer(_shown(await _find(convert, job_id, caller)))


def _add_result(router: Router, convert: Convert) -> None:
    problems = ["job-not-found", "not-found", "wrong-state"]
    described = describes("read", {200: "<document/>"}, problems, media_type="application/xml")

    @router.get("/{job_id}/result", **described)
    async def get_conversion_result(job_id: UUID, caller: AsCaller) -> Response:
        """Download the XML of a conversion that is complete."""
        found = await _find(convert, job_id, caller)
        if found.result_path is None:
            text = f"conversion {job_id} is {found.status}; only a complete one has a result"
            raise Problem("wrong-state", text, job_id=job_id, reason=found.error_code)
        path = convert.files.recorded_result(found.result_path)
        try:
            status = await asyncio.to_thread(os.stat, path)
        except OSError:
            text = f"this server can't find the result of conversion {job_id}: check RESULTS_DIR"
            raise Problem("not-found", text, job_id=job_id, reason="IO_ERROR") from None
        return FileResponse(
            path, media_type="application/xml", filename=f"{job_id}.xml", stat_result=status
        )


def _add_cancel(router: Router, convert: Convert) -> None:
    described = describes("operate", {200: ShownConversion}, ["job-not-found", "wrong-state"])

    @router.post("/{job_id}/cancel", **described)
    async def cancel_conversion(job_id: UUID, caller: AsCaller) -> Response:
        """Cancel a conversion that is queued or processing."""
        await _find(convert, job_id, caller)
        async with caller.audited("conversion.cancel", job_id):
            try:
                await caller.tenant_for(None).jobs.cancel(job_id, by=caller.name)
            except JobNotFound:  # it ended so long ago that its job is gone
                text = f"conversion {job_id} has ended"
                raise Problem("wrong-state", text, job_id=job_id) from None
        return answer(_shown(await _find(convert, job_id, caller)))


async def _find(convert: Convert, job_id: UUID, caller: Caller) -> Conversion:
    found = await convert.records.find(job_id, caller.tenant_for(None))
    if found is None:
        raise Problem("job-not-found", f"conversion {job_id} does not exist", job_id=job_id)
    return found


def _shown(conversion: Conversion) -> ShownConversion:
    fields = msgspec.structs.asdict(conversion)
    if conversion.result_path is not None:
        fields["result_path"] = f"{_PATH}/{conversion.id}/result"
    return ShownConversion(**fields)
