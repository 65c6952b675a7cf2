"""The handler: render a document and store it in Salesforce, once."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast import Context, Permanent, StoreUnavailable, Transient
from holdfast_systems.documents.files import find_file, upload
from holdfast_systems.documents.rendering import render
from holdfast_systems.documents.salesforce.client import (
    Salesforce,
    SalesforceRefused,
    record_id_of,
)


async def generate(
    ctx: Context, template: str, data: dict[str, Any], request_hash: str
) -> dict[str, str]:
    """Answer the id of the file that holds the document of this hash."""
    salesforce: Salesforce = ctx.resources["salesforce"]
    try:
        return {"file_id": await _file_id(ctx, salesforce, template, data, request_hash)}
    except StoreUnavailable as error:
        raise Transient(str(error), code="SALESFORCE_UNAVAILABLE") from error
    except SalesforceRefused as error:
        raise Permanent(f"Salesforce refused: {error.text}", code=error.code) from error


async def _file_id(
    ctx: Context, salesforce: Salesforce, template: str, data: dict[str, Any], request_hash: str
) -> str:
    if ctx.attempt > 1:
        # The attempt before may have ended between the upload and the status.
        existing = await find_file(salesforce, request_hash)
        if existing is not None:
            return existing
    pdf = await asyncio.to_thread(render, template, data)
    name = f"{template}-{record_id_of(ctx.job_id)}.pdf"
    return await upload(salesforce, request_hash, name, pdf)
