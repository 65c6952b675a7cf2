"""Documents as files in Salesforce: one per request hash, however often it is uploaded."""

from __future__ import annotations

import base64

from holdfast_systems.documents.salesforce.client import Salesforce, SalesforceRefused, bind

_FILE_OF_HASH = "SELECT Id FROM ContentVersion WHERE RequestHash__c = :request_hash"


async def find_file(salesforce: Salesforce, request_hash: str) -> str | None:
    """Find the id of the file with this hash."""
    return await salesforce.find_id(bind(_FILE_OF_HASH, {"request_hash": request_hash}))


async def upload(
    salesforce: Salesforce, request_hash: str, name: str, content: bytes, record_id: str
) -> str:
    """Upload a file to a record and return its id, or the id of the file that already has this
    hash.

    The hash is unique in Salesforce. If two workers upload the same document, because one of them
    is late and was replaced, Salesforce refuses the second upload and its worker uses the first.
    """
    fields = {
        "Title": name.removesuffix(".pdf"),
        "PathOnClient": name,
        "VersionData": base64.b64encode(content).decode("ascii"),
        "RequestHash__c": request_hash,
        "FirstPublishLocationId": record_id,
    }
    try:
        return await salesforce.insert("ContentVersion", fields)
    except SalesforceRefused as error:
        if error.code == "DUPLICATE_VALUE" and (file := await find_file(salesforce, request_hash)):
            return file
        raise


async def download(salesforce: Salesforce, file_id: str) -> bytes:
    """Download the content of a file."""
    return await salesforce.download(f"sobjects/ContentVersion/{file_id}/VersionData")
