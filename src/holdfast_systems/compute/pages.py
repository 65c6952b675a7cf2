"""Compute in the dashboard: requests, each with its inputs, outputs and pictures, and the form that
makes new ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from holdfast.dashboard.systems import (
    Cell,
    Code,
    File,
    FileLink,
    Form,
    FormRefused,
    Item,
    JobLink,
    JsonText,
    Listing,
    Row,
    Status,
    Table,
    Tone,
    read_id,
    read_newest,
    reading,
)
from holdfast_systems.compute.contract import ContractBroken
from holdfast_systems.compute.records import ArtifactRow
from holdfast_systems.compute.service import RunRequest

if TYPE_CHECKING:
    from holdfast.api import Caller
    from holdfast_systems.compute.service import Compute

APP_ID: Final = "dashboard"  # of requests that are made here

_COLUMNS: Final = ("Contract", "Status", "Score", "Application", "Attempts", "Created", "Ended")
_STORED: Final = "/jobs/artifact/"
_ENDINGS: Final = {"image/svg+xml": ".svg", "application/json": ".json", "text/plain": ".txt"}
_TONES: Final[dict[str, Tone]] = {
    "queued": "wait",
    "running": "busy",
    "succeeded": "good",
    "failed": "bad",
    "canceled": "muted",
}


class ShownRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request in the list."""

    id: UUID
    tenant_id: str
    status: str
    app_id: str
    definition: str
    version: str
    attempts: int
    created_at: datetime
    ended_at: datetime | None
    score: Decimal | None

    @property
    def contract(self) -> str:
        return f"{self.definition}@{self.version}"


class WholeRequest(ShownRequest, frozen=True, kw_only=True):
    """A request with its inputs and its result."""

    started_at: datetime | None
    inputs_hash: str
    payload_json: str
    priority: int
    last_error: str | None
    outputs_json: str | None


class LastError(msgspec.Struct, frozen=True):
    code: str
    message: str = ""


class ComputePages:
    slug = "compute"
    title = "Compute"
    about = "Computations, whose inputs and outputs are checked against contracts."

    def __init__(self, compute: Compute) -> None:
        self._compute = compute
        self._records = compute.records

    async def list(self, caller: Caller, after: str | None, limit: int) -> Listing:
        found = await read_newest(
            caller, self._records.tables, "pages_requests", ShownRequest, after, limit
        )
        rows = [
            Row(
                str(each.id),
                (
                    each.contract,
                    _status(each.status),
                    each.score,
                    each.app_id,
                    each.attempts,
                    each.created_at,
                    each.ended_at,
                ),
                each.tenant_id,
            )
            for each in found
        ]
        return Listing(_COLUMNS, rows, rows[-1].id if len(rows) == limit else None)

    async def item(self, caller: Caller, item_id: str) -> Item | None:
        found = await self._find(caller, item_id)
        if found is None:
            return None
        artifacts = await self._artifacts(caller, found.id)
        parts: list[Table | JsonText] = []
        if found.outputs_json is not None:
            parts.append(JsonText("Outputs", found.outputs_json))
        parts.append(JsonText("Inputs", found.payload_json))
        if elsewhere := [each for each in artifacts if not each.url.startswith(_STORED)]:
            # Not as links: who follows one tells another host of this page.
            rows = [(each.kind, each.media_type, Code(each.url)) for each in elsewhere]
            parts.append(Table("Artifacts elsewhere", ("Kind", "Type", "Address"), rows))
        return Item(
            found.contract,
            _facts(found),
            status=_status(found.status),
            error=_error(found.last_error),
            files=[
                FileLink(_name(each), each.kind, each.media_type)
                for each in artifacts
                if each.url.startswith(_STORED)
            ],
            parts=parts,
        )

    async def file(self, caller: Caller, item_id: str, name: str) -> File | None:
        found = await self._find(caller, item_id)
        artifacts = [] if found is None else await self._artifacts(caller, found.id)
        wanted = next((each for each in artifacts if _name(each) == name), None)
        artifact_id = None if wanted is None else read_id(wanted.url.removeprefix(_STORED))
        if found is None or artifact_id is None:
            return None
        tenant = self._compute.hf.for_tenant(found.tenant_id)
        content = await self._records.content(artifact_id, tenant)
        return None if content is None else File(name, content.media_type, content.content)

    def forms(self) -> Sequence[Form]:
        return [
            Form(f"{name}@{version}", _title(contract.inputs.schema, name), contract.inputs.schema)
            for (name, version), contract in self._compute.contracts.all()
        ]

    async def run(self, caller: Caller, form: Form, inputs: Any) -> str:
        definition, _, version = form.name.partition("@")
        wanted = RunRequest(APP_ID, definition, version, inputs)
        tenant = caller.tenant_for(None)
        try:
            job_id = await self._compute.run(wanted, tenant, caller.correlation_id or "")
        except ContractBroken as error:
            raise FormRefused([(flaw.pointer, flaw.text) for flaw in error.flaws]) from None
        return str(job_id)

    async def _find(self, caller: Caller, text: str) -> WholeRequest | None:
        job_id = read_id(text)
        if job_id is None:
            return None
        async with reading(caller, self._records.tables) as statements:
            return await statements.one(
                "pages_request", WholeRequest, id=job_id, tenant=caller.tenant
            )

    async def _artifacts(self, caller: Caller, job_id: UUID) -> Sequence[ArtifactRow]:
        async with reading(caller, self._records.tables) as statements:
            return await statements.all("artifacts_of_job", ArtifactRow, job_id=job_id)


def _name(artifact: ArtifactRow) -> str:
    """Name the file by its ID: what an AppServer calls it can be any text."""
    return artifact.url.removeprefix(_STORED) + _ENDINGS.get(artifact.media_type, "")


def _title(schema: Any, definition: str) -> str:
    title = schema.get("title")
    return title if isinstance(title, str) else definition


def _status(status: str) -> Status:
    return Status(status, _TONES.get(status, "muted"))


def _error(text: str | None) -> str | None:
    if text is None:
        return None
    error = msgspec.json.decode(text, type=LastError)
    return f"{error.code}: {error.message}".rstrip(": ")


def _facts(found: WholeRequest) -> tuple[tuple[str, Cell], ...]:
    return (
        ("Job", JobLink(found.id)),
        ("Tenant", found.tenant_id),
        ("Application", found.app_id),
        ("Score", found.score),
        ("Attempts", found.attempts),
        ("Priority", found.priority),
        ("Inputs hash", Code(found.inputs_hash)),
        ("Created", found.created_at),
        ("Started", found.started_at),
        ("Ended", found.ended_at),
    )
