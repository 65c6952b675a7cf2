"""What is asked, and what the tables answer."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast_systems.compute.limits import APP_ID_CHARS_MAX, PRIORITY_DEFAULT, PRIORITY_MAX


class RunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of POST /jobs/run."""

    app_id: Annotated[
        str, Meta(min_length=1, max_length=APP_ID_CHARS_MAX, pattern=r"^[^\x00-\x1f\x7f]*$")
    ]
    definition: str
    version: str
    inputs: dict[str, Any]
    priority: Annotated[int, Meta(ge=0, le=PRIORITY_MAX)] = PRIORITY_DEFAULT


class RequestRow(msgspec.Struct, frozen=True):
    id: UUID
    tenant_id: UUID | None
    app_id: str
    definition: str
    version: str
    inputs_hash: str
    payload_json: str
    priority: int


class JobRow(msgspec.Struct, frozen=True):
    """A job in this system's words: queued, running, succeeded, failed or canceled."""

    id: UUID
    tenant_id: UUID | None
    status: str
    attempts: int
    last_error: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None

    @property
    def may_answer(self) -> bool:
        """Is there, or may there still come, a result?"""
        return self.status in ("queued", "running", "succeeded")


class HolderRow(msgspec.Struct, frozen=True):
    job_id: UUID


class ResultRow(msgspec.Struct, frozen=True):
    outputs_json: str
    score: Decimal | None


class ArtifactRow(msgspec.Struct, frozen=True):
    kind: str
    url: str
    media_type: str
    expires_at: datetime | None


class ContentRow(msgspec.Struct, frozen=True):
    media_type: str
    content: bytes
    tenant_id: UUID | None
