"""Documents at once: rendered in the service's process, under a lock of their own.

The record is created as PROCESSING, so no worker takes it. If the service dies, its lock expires,
and a worker generates the document like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from holdfast import Permanent, State, StoreError, WrongState
from holdfast.store_api import NewJob, StoreRefused
from holdfast_systems.documents import limits
from holdfast_systems.documents.files import download, find_file, upload
from holdfast_systems.documents.rendering.processes import Renderers
from holdfast_systems.documents.salesforce.client import Salesforce, SalesforceRefused
from holdfast_systems.documents.salesforce.store.locks import Locked, Locks


class Document(NamedTuple):
    id: UUID
    file_id: str
    pdf: bytes


class Interactive:
    """Generates documents while a caller waits."""

    def __init__(self, salesforce: Salesforce, renderers: Renderers, worker: str) -> None:
        self._salesforce = salesforce
        self._renderers = renderers
        self._locks = Locks(salesforce, worker, limits.LOCK_SECONDS)

    async def generate(self, job: NewJob, template: str, data: Mapping[str, Any]) -> Document:
        """Generate the document, or return the one that this request hash already has.

        A permanent error ends its record. After any other one, the record is queued, and a worker
        retries it.
        """
        locked = await self._locks.create(job)
        if locked is None:
            found = await self._existing(job)
            if isinstance(found, Document):
                return found
            locked = found
        try:
            async with asyncio.timeout(limits.GENERATE_SECONDS_MAX):
                file_id, pdf = await self._make(locked, template, data)
        except BaseException as error:
            await asyncio.shield(self._give_up(locked, error))
            raise
        if not await self._locks.succeed(locked, file_id):
            raise WrongState(f"document {locked.record.id} was changed or canceled meanwhile")
        return Document(locked.job_id, file_id, pdf)

    async def _existing(self, job: NewJob) -> Locked | Document:
        found = await self._locks.find(job)
        if found.state is State.SUCCEEDED and found.output_file_id:
            pdf = await download(self._salesforce, found.output_file_id)
            return Document(found.job_id, found.output_file_id, pdf)
        locked = await self._locks.take(found) if found.state is State.QUEUED else None
        if locked is None:
            error = f" ({found.error})" if found.error else ""
            raise WrongState(f"document {found.id} is {found.status}{error}")
        return locked

    async def _make(
        self, locked: Locked, template: str, data: Mapping[str, Any]
    ) -> tuple[str, bytes]:
        record = locked.record
        # The previous attempt may have ended between the upload and the status.
        file_id = await find_file(self._salesforce, record.hash) if locked.attempt > 1 else None
        if file_id is not None:
            return file_id, await download(self._salesforce, file_id)
        pdf = await self._renderers.render(template, data)
        name = f"{template}-{record.id}.pdf"
        return await upload(self._salesforce, record.hash, name, pdf, record.id), pdf

    async def _give_up(self, locked: Locked, error: BaseException) -> None:
        try:
            if isinstance(error, SalesforceRefused | Permanent):
                await self._locks.fail(locked, error.code or "RENDER_ERROR", str(error))
            else:
                code = getattr(error, "code", None) or "INTERRUPTED"
                text = str(error) or "the service stopped, or took too long"
                await self._locks.queue(locked, code, text, limits.RETRY_SECONDS[0])
        except (StoreError, StoreRefused):
            return  # its lock expires, and a worker takes over
