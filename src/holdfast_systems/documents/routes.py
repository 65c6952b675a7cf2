"""The routes under /documents, behind the keys of the service."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from fastapi import Request
from starlette.responses import Response

from holdfast import JobError, Permanent, State, StoreUnavailable
from holdfast.api import AsCaller, Caller, Problem, Router, answer, describes, read_body
from holdfast.store_api import NewJob
from holdfast_systems.documents.batches import Progress, Wanted
from holdfast_systems.documents.desk import Desk, Parts
from holdfast_systems.documents.files import download
from holdfast_systems.documents.interactive import Document
from holdfast_systems.documents.limits import NAME_CHARS_MAX, RETRY_SECONDS
from holdfast_systems.documents.salesforce.client import SalesforceRefused, record_id_of
from holdfast_systems.documents.salesforce.store.records import JOB_NAME, QUEUE, STATUSES

PDF: Final = "application/pdf"
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
_REFUSED: Final = ["wrong-state", "bad-arguments", "idempotency-conflict", "job-not-found"]
_HEADERS: Final = {
    "Document-Id": "The document's id, as in /documents/{id}.",
    "Output-File-Id": "The id of its ContentVersion in Salesforce.",
}


class NewDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The template's name and its data. Sent twice with the same `request_hash`, it is one
    document."""

    template: Name
    data: dict[str, Any] = {}
    request_hash: Name | None = None
    correlation_id: Name | None = None


class NewBatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name for the batch, and its documents. Sent again, it creates those that are missing."""

    batch: Name
    documents: list[Wanted]
    priority: Annotated[int, msgspec.Meta(ge=-1000, le=1000)] = 0


class Created(msgspec.Struct, frozen=True):
    batch: str
    documents: list[UUID]


class Canceled(msgspec.Struct, frozen=True):
    batch: str
    canceled: int


class ShownDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A record of Generated_Document__c, with Salesforce's statuses."""

    id: UUID
    record_id: str | None
    status: str
    attempts: int
    correlation_id: str | None
    output_file_id: str | None
    error: str | None


def routes(desk: Desk, tenant: str) -> Router:
    router = Router(prefix="/documents", tags=["Documents"])

    @asynccontextmanager
    async def opened(caller: Caller) -> AsyncIterator[Parts]:
        if caller.tenant not in (None, tenant):
            raise Problem("not-allowed", f"documents belong to the tenant {tenant}")
        with _problems():
            async with desk.open() as parts:
                yield parts

    _add_batches(router, opened)
    _add_documents(router, desk, opened)
    return router


@contextmanager
def _problems() -> Iterator[None]:
    """Answer errors of this system as problems, with their code as the reason."""
    try:
        yield
    except (Permanent, SalesforceRefused) as error:
        raise Problem("bad-arguments", str(error), reason=error.code) from error
    except (JobError, StoreUnavailable, TimeoutError) as error:
        text = f"{str(error) or 'it took too long'}; a worker retries it"
        headers = {"retry-after": str(round(RETRY_SECONDS[0]))}
        reason = getattr(error, "code", None)
        raise Problem("database-unavailable", text, reason=reason, headers=headers) from error


def _add_documents(router: Router, desk: Desk, opened: Any) -> None:
    generating = describes("enqueue", {200: None}, _REFUSED, body=NewDocument, headers=_HEADERS)

    @router.post("", **generating)
    async def generate_document(request: Request, caller: AsCaller) -> Response:
        """Generate a document and return it as a PDF."""
        wanted = await read_body(request, NewDocument)
        job = NewJob(
            id=desk.hf.new_id(),
            name=JOB_NAME,
            queue=QUEUE,
            arguments=msgspec.json.encode({"template": wanted.template, "data": wanted.data}),
            idempotency_key=wanted.request_hash,
            correlation_id=wanted.correlation_id or caller.correlation_id,
        )
        async with opened(caller) as parts:
            document = await parts.interactive.generate(job, wanted.template, wanted.data)
        return _pdf(document)

    @router.get("/{document_id}", **describes("read", {200: ShownDocument}, ["job-not-found"]))
    async def get_document(document_id: UUID, caller: AsCaller) -> Response:
        """Return the status of a document."""
        async with opened(caller):
            return answer(await _shown(desk, document_id))

    @router.get("/{document_id}/file", **describes("read", {200: None}, _REFUSED))
    async def get_file(document_id: UUID, caller: AsCaller) -> Response:
        """Return a document that has succeeded, as a PDF."""
        async with opened(caller) as parts:
            shown = await _shown(desk, document_id)
            if shown.output_file_id is None:
                raise Problem("wrong-state", f"the document is {shown.status}")
            pdf = await download(parts.salesforce, shown.output_file_id)
        return _pdf(Document(document_id, shown.output_file_id, pdf))

    @router.post("/{document_id}/cancel", **describes("operate", {200: ShownDocument}, _REFUSED))
    async def cancel_document(document_id: UUID, caller: AsCaller) -> Response:
        """Cancel a document that has not ended."""
        async with opened(caller), caller.audited("document.cancel", document_id):
            await desk.hf.jobs.cancel(document_id, by=caller.name)
            return answer(await _shown(desk, document_id))


def _add_batches(router: Router, opened: Any) -> None:
    creating = describes("enqueue", {202: Created}, _REFUSED, body=NewBatch)

    @router.post("/batches", **creating)
    async def create_batch(request: Request, caller: AsCaller) -> Response:
        """Create the records of a batch. Workers generate its documents."""
        wanted = await read_body(request, NewBatch)
        async with opened(caller) as parts:
            made = await parts.batches.create(wanted.batch, wanted.documents, -wanted.priority)
        return answer(Created(wanted.batch, made), 202)

    @router.get("/batches/{batch}", **describes("read", {200: Progress}, ["not-found"]))
    async def get_progress(batch: str, caller: AsCaller) -> Response:
        """Return how many documents of a batch have each status."""
        async with opened(caller) as parts:
            progress = await parts.batches.progress(batch)
        if not progress.total:
            raise Problem("not-found", f"there is no batch {batch[:NAME_CHARS_MAX]!r}")
        return answer(progress)

    @router.post("/batches/{batch}/cancel", **describes("operate", {200: Canceled}))
    async def cancel_batch(batch: str, caller: AsCaller) -> Response:
        """Cancel all documents of a batch that have not ended."""
        async with opened(caller) as parts, caller.audited("batch.cancel", batch):
            return answer(Canceled(batch, await parts.batches.cancel(batch, by=caller.name)))


async def _shown(desk: Desk, document_id: UUID) -> ShownDocument:
    job = await desk.hf.get(document_id)
    error = ": ".join(filter(None, (job.error_code, job.error_text)))
    return ShownDocument(
        id=job.id,
        record_id=record_id_of(job.id),
        status=STATUSES[job.state],
        attempts=job.attempts,
        correlation_id=job.correlation_id,
        output_file_id=job.result["file_id"] if job.state is State.SUCCEEDED else None,
        error=error or None,
    )


def _pdf(document: Document) -> Response:
    headers = {"document-id": str(document.id), "output-file-id": document.file_id}
    return Response(document.pdf, 200, headers, PDF)
