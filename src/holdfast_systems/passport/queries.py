"""Find and list what a tenant has, newest first."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from holdfast import Filter
from holdfast_systems.passport.errors import NotFound, ValidationError
from holdfast_systems.passport.handlers.deliver_webhook import event_id_of
from holdfast_systems.passport.limits import PAGE_ROWS_MAX
from holdfast_systems.passport.parts import Parts, find

END = datetime(9999, 1, 1, tzinfo=UTC)


class SnapshotRow(msgspec.Struct, frozen=True, kw_only=True):
    """A set of documents and their facts: OPEN, or SEALED for good."""

    id: UUID
    status: str
    created_at: datetime
    sealed_at: datetime | None


class DocumentRow(msgspec.Struct, frozen=True, kw_only=True):
    """A document in a snapshot. `parsed_at` is null until its facts are in the snapshot."""

    document_version_id: UUID
    name: str
    schema_version: str
    content_hash: str
    parsed_at: datetime | None


class RulesRow(msgspec.Struct, frozen=True, kw_only=True):
    """A rule package: DRAFT, or PUBLISHED for good."""

    id: UUID
    name: str
    status: str
    source_hash: str
    created_at: datetime
    published_at: datetime | None


class VersionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A passport version, without its contents."""

    id: UUID
    passport_id: UUID
    snapshot_id: UUID
    rules_id: UUID
    build_id: str
    issued_at: datetime
    payload_hash: str
    proof_root: str
    receipt_hash: str
    key_id: str | None
    signed_at: datetime | None
    has_qr: bool
    created_at: datetime


Listed = TypeVar("Listed", SnapshotRow, RulesRow, VersionRow)


class LastError(msgspec.Struct, frozen=True):
    code: str
    text: str | None


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job in this system's terms, as the view `passport_jobs` shows it."""

    job_id: UUID
    type: str
    status: str
    payload: dict[str, Any] | None
    attempts: int
    max_attempts: int
    priority: int
    scheduled_at: datetime | None
    lease_owner: str | None
    lease_expires_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    last_error: LastError | None


class _StoredJob(JobRow, frozen=True, kw_only=True):
    payload: str | None  # type: ignore[assignment]
    last_error: str | None  # type: ignore[assignment]

    def shown(self) -> JobRow:
        values = msgspec.structs.asdict(self)
        for name in ("payload", "last_error"):
            if (text := values[name]) is not None:
                values[name] = msgspec.json.decode(text)
        return msgspec.convert(values, JobRow)


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery of an event to an endpoint, as the view `webhook_deliveries` shows it."""

    webhook_delivery_id: UUID
    webhook_endpoint_id: UUID
    event_id: UUID
    status: str
    http_status: int | None
    response_headers: str | None
    response_body: bytes | None
    delivered_at: datetime | None
    error_message: str | None
    created_at: datetime
    error_code: str | None


class Queries:
    """Lists have pages of at most `limit` rows, which start after the row with the ID `after`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def snapshots(
        self, tenant: str, *, limit: int = PAGE_ROWS_MAX, after: UUID | None = None
    ) -> list[SnapshotRow]:
        last = None if after is None else await self.snapshot(tenant, after)
        return await self._page("snapshots_of_tenant", SnapshotRow, tenant, limit, last)

    async def snapshot(self, tenant: str, snapshot_id: UUID) -> SnapshotRow:
        async with self._parts.reading(tenant) as statements:
            return await find(statements, "snapshot_of_tenant", SnapshotRow, tenant, snapshot_id)

    async def documents(self, tenant: str, snapshot_id: UUID) -> list[DocumentRow]:
        """List the documents in a snapshot."""
        async with self._parts.reading(tenant) as statements:
            return await statements.all(
                "documents_of_snapshot", DocumentRow, tenant=tenant, snapshot_id=snapshot_id
            )

    async def rules(
        self, tenant: str, *, limit: int = PAGE_ROWS_MAX, after: UUID | None = None
    ) -> list[RulesRow]:
        last = None if after is None else await self.rule_package(tenant, after)
        return await self._page("rules_of_tenant", RulesRow, tenant, limit, last)

    async def rule_package(self, tenant: str, rules_id: UUID) -> RulesRow:
        async with self._parts.reading(tenant) as statements:
            return await find(statements, "rule_package_of_tenant", RulesRow, tenant, rules_id)

    async def versions(
        self,
        tenant: str,
        *,
        passport_id: UUID | None = None,
        limit: int = PAGE_ROWS_MAX,
        after: UUID | None = None,
    ) -> list[VersionRow]:
        """List all passport versions, or those of one passport."""
        last = None if after is None else await self.version(tenant, after)
        if passport_id is None:
            return await self._page("versions_of_tenant", VersionRow, tenant, limit, last)
        return await self._page(
            "versions_of_passport", VersionRow, tenant, limit, last, passport_id=passport_id
        )

    async def version(self, tenant: str, version_id: UUID) -> VersionRow:
        async with self._parts.reading(tenant) as statements:
            return await find(statements, "version_of_tenant", VersionRow, tenant, version_id)

    async def _page(
        self,
        statement: str,
        row_type: type[Listed],
        tenant: str,
        limit: int,
        last: Listed | None,
        **more: object,
    ) -> list[Listed]:
        """Read the page after this row, or the first one."""
        async with self._parts.reading(tenant) as statements:
            return await statements.all(
                statement,
                row_type,
                tenant=tenant,
                before_time=END if last is None else last.created_at,
                before_id=UUID(int=2**128 - 1) if last is None else last.id,
                rows_max=_checked(limit),
                **more,
            )

    async def job(self, tenant: str, job_id: UUID) -> JobRow:
        if found := await self._jobs(tenant, [job_id]):
            return found[0]
        raise NotFound(f"no such job: {job_id}")

    async def jobs(
        self, tenant: str, *, limit: int = PAGE_ROWS_MAX, after: UUID | None = None
    ) -> list[JobRow]:
        own = self._parts.hf.for_tenant(tenant).jobs
        page = await own.list(Filter(queue=self._parts.queue), _checked(limit), after)
        return await self._jobs(tenant, [job.id for job in page.jobs])

    async def _jobs(self, tenant: str, ids: list[UUID]) -> list[JobRow]:
        async with self._parts.reading(tenant) as statements:
            wanted = msgspec.json.encode(ids).decode()
            rows = await statements.all("jobs_by_id", _StoredJob, tenant=tenant, ids=wanted)
        return [row.shown() for row in rows]

    async def deliveries(self, tenant: str, version_id: UUID) -> list[Delivery]:
        """List the deliveries of a version's event, one for each endpoint."""
        async with self._parts.reading(tenant) as statements:
            return await statements.all(
                "deliveries_of_event", Delivery, tenant=tenant, event_id=event_id_of(version_id)
            )


def _checked(limit: int) -> int:
    if not 1 <= limit <= PAGE_ROWS_MAX:
        raise ValidationError(f"limit must be 1 to {PAGE_ROWS_MAX}, not {limit}")
    return limit
