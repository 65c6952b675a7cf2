"""Documents as files in Salesforce: one for each request hash, whoever uploads it, how often."""

from __future__ import annotations

import base64

from holdfast_systems.documents.salesforce.client import Salesforce, SalesforceRefused, bind

_FILE_OF_HASH = "SELECT Id FROM ContentVersion WHERE RequestHash__c = :request_hash"


async def find_file(salesforce: Salesforce, request_hash: str) -> str | None:
    return await salesforce.find_id(bind(_FILE_OF_HASH, {"request_hash": request_hash}))


async def upload(salesforce: Salesforce, request_hash: str, name: str, content: bytes) -> str:
    """Upload a file; answer its id, or that of the one that was uploaded before.

    The hash is unique in Salesforce, so of two workers that have the same document to store, one
    late and one in its place, the second one is refused and finds the first one's file.
    """
    fields = {
        "Title": name.removesuffix(".pdf"),
        "PathOnClient": name,
        "VersionData": base64.b64encode(content).decode("ascii"),
        "RequestHash__c": request_hash,
    }
    try:
        return await salesforce.insert("ContentVersion", fields)
    except SalesforceRefused as error:
        if error.code != "DUPLICATE_VALUE":
            raise
        existing = await find_file(salesforce, request_hash)
        if existing is None:
            raise
        return existing


async def download(salesforce: Salesforce, file_id: str) -> bytes:
    return await salesforce.download(f"sobjects/ContentVersion/{file_id}/VersionData")
