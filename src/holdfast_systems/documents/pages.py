"""Documents in the dashboard: the records in Salesforce, each with the file that was generated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast import Filter, Job, JobNotFound, State, StoreUnavailable
from holdfast.dashboard.systems import (
    Cell,
    Code,
    File,
    FileLink,
    Item,
    JsonText,
    Listing,
    Row,
    Status,
    Tone,
    read_id,
)
from holdfast_systems.documents.desk import Desk
from holdfast_systems.documents.files import download
from holdfast_systems.documents.salesforce.client import SalesforceRefused, record_id_of
from holdfast_systems.documents.salesforce.store.records import STATUSES

if TYPE_CHECKING:
    from holdfast.api import Caller

DOCUMENT: Final = "document.pdf"

_COLUMNS: Final = ("Record", "Status", "Template", "Batch", "Attempts", "Created")
_TONES: Final[dict[State, Tone]] = {
    State.QUEUED: "wait",
    State.RUNNING: "busy",
    State.SUCCEEDED: "good",
    State.FAILED: "bad",
    State.DEAD: "bad",
    State.CANCELED: "muted",
}


class DocumentPages:
    """Salesforce knows no tenants: documents belong to one, or to callers who see all."""

    slug = "documents"
    title = "Documents"
    about = "Records in Salesforce that become documents."

    def __init__(self, desk: Desk, tenant: str) -> None:
        self._desk = desk
        self._tenant = tenant

    async def list(self, caller: Caller, after: str | None, limit: int) -> Listing:
        before = None if after is None else read_id(after)
        if not self._is_for(caller) or (after is not None and before is None):
            return Listing(_COLUMNS, ())
        with _available():
            page = await self._desk.hf.jobs.list(Filter(), limit, before)
        rows = [Row(str(job.id), _cells(job), self._tenant) for job in page.jobs]
        return Listing(_COLUMNS, rows, None if page.after is None else str(page.after))

    async def item(self, caller: Caller, item_id: str) -> Item | None:
        job = await self._find(caller, item_id)
        if job is None:
            return None
        data = job.arguments.get("data", {})
        is_there = job.state is State.SUCCEEDED
        return Item(
            f"Record {record_id_of(job.id)}",
            _facts(job),
            status=_status(job),
            error=": ".join(filter(None, (job.error_code, job.error_text))) or None,
            files=[FileLink(DOCUMENT, "The document", "application/pdf")] if is_there else (),
            parts=[JsonText("Data", msgspec.json.encode(data).decode())],
        )

    async def file(self, caller: Caller, item_id: str, name: str) -> File | None:
        job = await self._find(caller, item_id)
        if job is None or name != DOCUMENT or job.state is not State.SUCCEEDED:
            return None
        with _available():
            async with self._desk.open() as parts:
                content = await download(parts.salesforce, job.result["file_id"])
        return File(name, "application/pdf", content)

    def _is_for(self, caller: Caller) -> bool:
        return caller.tenant in (None, self._tenant)

    async def _find(self, caller: Caller, text: str) -> Job | None:
        job_id = read_id(text)
        if job_id is None or not self._is_for(caller):
            return None
        with _available():
            try:
                return await self._desk.hf.get(job_id)
            except JobNotFound:
                return None


@contextmanager
def _available() -> Iterator[None]:
    """Salesforce may be down while everything else is up."""
    try:
        yield
    except (SalesforceRefused, TimeoutError) as error:
        raise StoreUnavailable(f"Salesforce did not answer as it should: {error}") from error


def _cells(job: Job) -> tuple[Cell, ...]:
    return (
        Code(record_id_of(job.id) or str(job.id)),
        _status(job),
        job.arguments.get("template"),
        job.correlation_id,
        job.attempts,
        job.created_at,
    )


def _status(job: Job) -> Status:
    return Status(STATUSES[job.state], _TONES[job.state])


def _facts(job: Job) -> tuple[tuple[str, Cell], ...]:
    return (
        ("Document", Code(str(job.id))),
        ("Template", job.arguments.get("template")),
        ("Batch or correlation ID", job.correlation_id),
        ("Request hash", job.idempotency_key and Code(job.idempotency_key)),
        ("Attempts", job.attempts),
        ("Created", job.created_at),
        ("Due", job.run_at),
        ("Locked by", job.lease_owner),
        ("Locked until", job.lease_expires_at),
        ("File in Salesforce", Code(job.result["file_id"]) if job.result else None),
    )
