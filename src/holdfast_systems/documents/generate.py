"""The handler: render a document and store it in Salesforce, once."""

from __future__ import annotations

from typing import Any

from holdfast import Context, Permanent, StoreUnavailable, Transient
from holdfast_systems.documents.files import find_file, upload
from holdfast_systems.documents.rendering import render
from holdfast_systems.documents.salesforce.client import Salesforce, SalesforceRefused, record_id_of


async def generate_document(
    ctx: Context, template: str, data: dict[str, Any], request_hash: str = ""
) -> dict[str, str]:
    """Render a document, upload it, and return the id of its file.

    Leave out `request_hash`: the store passes the one of the record.
    """
    salesforce: Salesforce = ctx.resources["salesforce"]
    try:
        # The previous attempt may have ended between the upload and the status.
        file_id = await find_file(salesforce, request_hash) if ctx.attempt > 1 else None
        if file_id is None:
            pdf = await render(ctx, template, data)
            record_id = record_id_of(ctx.job_id) or ""
            name = f"{template}-{record_id}.pdf"
            file_id = await upload(salesforce, request_hash, name, pdf, record_id)
        return {"file_id": file_id}
    except StoreUnavailable as error:
        raise Transient(str(error), code="SALESFORCE_UNAVAILABLE") from error
    except SalesforceRefused as error:
        raise Permanent(f"Salesforce refused: {error.text}", code=error.code) from error
