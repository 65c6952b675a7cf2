"""The routes under /passport, behind the keys of the service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from fastapi import Query, Request
from starlette.responses import Response

from holdfast.api import AsCaller, Problem, Router, answer, describes, read_body, read_bytes
from holdfast_systems.passport.errors import (
    DocumentTooLarge,
    NotFound,
    PassportError,
    RuleTypeError,
    ValidationError,
)
from holdfast_systems.passport.files import receipt_file
from holdfast_systems.passport.limits import DOCUMENT_BYTES_MAX, PAGE_ROWS_MAX, RULES_BYTES_MAX
from holdfast_systems.passport.queries import DocumentRow, JobRow, RulesRow, SnapshotRow, VersionRow
from holdfast_systems.passport.records import AuditEvent
from holdfast_systems.passport.schema import BILL_OF_MATERIALS
from holdfast_systems.passport.system import Passport

Limit = Annotated[int, Query(ge=1, le=PAGE_ROWS_MAX)]

_REFUSED: Final = ["not-found", "wrong-state", "bad-arguments"]


class NewSnapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Choose the ID to make the request repeatable."""

    id: UUID | None = None


class ShownSnapshot(msgspec.Struct, frozen=True):
    snapshot: SnapshotRow
    documents: list[DocumentRow]


class Snapshots(msgspec.Struct, frozen=True):
    """Newest first."""

    snapshots: list[SnapshotRow]


class Uploaded(msgspec.Struct, frozen=True):
    document_version_id: UUID
    job_id: UUID


class RulePackages(msgspec.Struct, frozen=True):
    """Newest first."""

    rules: list[RulesRow]


class NewVersion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to compile. It is issued now if it doesn't say when."""

    passport_id: UUID
    snapshot_id: UUID
    rules_id: UUID
    build_id: str
    issued_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class Ordered(msgspec.Struct, frozen=True):
    """The first job. Its result names the next one, and so on."""

    passport_version_id: UUID
    job_id: UUID


class Versions(msgspec.Struct, frozen=True):
    """Newest first."""

    versions: list[VersionRow]


class Jobs(msgspec.Struct, frozen=True):
    """Newest first."""

    jobs: list[JobRow]


class ShownDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery of a passport's event to an endpoint: PENDING, DELIVERED or FAILED."""

    webhook_delivery_id: UUID
    webhook_endpoint_id: UUID
    event_id: UUID
    status: str
    http_status: int | None
    response_headers: dict[str, str] | None
    response_body: str | None
    delivered_at: datetime | None
    error_code: str | None
    error_message: str | None
    created_at: datetime


class Deliveries(msgspec.Struct, frozen=True):
    deliveries: list[ShownDelivery]


class ShownEvent(msgspec.Struct, frozen=True):
    event_type: str
    job_id: UUID | None
    occurred_at: datetime
    payload: dict[str, Any]


class Audit(msgspec.Struct, frozen=True):
    """Oldest first."""

    events: list[ShownEvent]


def routes(passport: Passport) -> Router:
    router = Router(prefix="/passport", tags=["Passport"])
    _add_snapshots(router, passport)
    _add_documents(router, passport)
    _add_rules(router, passport)
    _add_versions(router, passport)
    _add_files(router, passport)
    _add_history(router, passport)
    return router


@contextmanager
def _problems() -> Iterator[None]:
    """Answer errors of this system as problems, with their code as the reason."""
    try:
        yield
    except PassportError as error:
        kinds = {
            NotFound: "not-found",
            DocumentTooLarge: "too-large",
            ValidationError: "bad-arguments",
            RuleTypeError: "bad-arguments",
        }
        raise Problem(
            kinds.get(type(error), "wrong-state"), str(error), reason=error.code
        ) from None


def _add_snapshots(router: Router, passport: Passport) -> None:
    @router.post(
        "/snapshots", **describes("enqueue", {201: SnapshotRow}, _REFUSED, body=NewSnapshot)
    )
    async def open_snapshot(request: Request, caller: AsCaller) -> Response:
        """Open a snapshot, which collects documents."""
        wanted = await read_body(request, NewSnapshot)
        tenant = caller.tenant_name_for(None)
        with _problems():
            found = await passport.open_snapshot(tenant, id=wanted.id, by=caller.name)
            return answer(await passport.queries.snapshot(tenant, found), 201)

    @router.get("/snapshots", **describes("read", {200: Snapshots}, _REFUSED))
    async def list_snapshots(
        caller: AsCaller, limit: Limit = 50, after: UUID | None = None
    ) -> Response:
        """List snapshots, newest first. `after` is the last ID of the page before."""
        tenant = caller.tenant_name_for(None)
        with _problems():
            found = await passport.queries.snapshots(tenant, limit=limit, after=after)
        return answer(Snapshots(found))

    @router.get("/snapshots/{snapshot_id}", **describes("read", {200: ShownSnapshot}, _REFUSED))
    async def get_snapshot(snapshot_id: UUID, caller: AsCaller) -> Response:
        """Get a snapshot and its documents."""
        tenant = caller.tenant_name_for(None)
        with _problems():
            found = await passport.queries.snapshot(tenant, snapshot_id)
            documents = await passport.queries.documents(tenant, snapshot_id)
        return answer(ShownSnapshot(found, documents))


def _add_documents(router: Router, passport: Passport) -> None:
    uploading = describes("enqueue", {202: Uploaded}, [*_REFUSED, "too-large", "too-slow"])
    uploading["openapi_extra"]["requestBody"] = {
        "required": True,
        "content": {"text/csv": {"schema": {"type": "string"}}},
    }

    @router.post("/snapshots/{snapshot_id}/documents", **uploading)
    async def upload_document(
        request: Request,
        snapshot_id: UUID,
        caller: AsCaller,
        name: str,
        schema_version: str = BILL_OF_MATERIALS.version,
    ) -> Response:
        """Upload a document. The body is the file itself; a job reads its facts."""
        content = await read_bytes(request, DOCUMENT_BYTES_MAX)
        tenant = caller.tenant_name_for(None)
        with _problems():
            added = await passport.add_document(
                tenant, snapshot_id, name, content, schema_version=schema_version, by=caller.name
            )
        return answer(Uploaded(added.document_version_id, added.job.id), 202)

    @router.post(
        "/snapshots/{snapshot_id}/seal", **describes("enqueue", {200: SnapshotRow}, _REFUSED)
    )
    async def seal_snapshot(snapshot_id: UUID, caller: AsCaller) -> Response:
        """Seal a snapshot: from now on, nothing in it changes."""
        tenant = caller.tenant_name_for(None)
        with _problems():
            await passport.seal_snapshot(tenant, snapshot_id, by=caller.name)
            return answer(await passport.queries.snapshot(tenant, snapshot_id))


def _add_rules(router: Router, passport: Passport) -> None:
    adding = describes("enqueue", {201: RulesRow}, [*_REFUSED, "too-large", "too-slow"])
    adding["openapi_extra"]["requestBody"] = {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }

    @router.post("/rules", **adding)
    async def add_rules(request: Request, caller: AsCaller) -> Response:
        """Add a rule package as a draft. The same package twice is one."""
        source = await read_bytes(request, RULES_BYTES_MAX)
        tenant = caller.tenant_name_for(None)
        with _problems():
            rules_id = await passport.add_rules(tenant, source, by=caller.name)
            return answer(await passport.queries.rule_package(tenant, rules_id), 201)

    @router.get("/rules", **describes("read", {200: RulePackages}, _REFUSED))
    async def list_rules(
        caller: AsCaller, limit: Limit = 50, after: UUID | None = None
    ) -> Response:
        """List rule packages, newest first. `after` is the last ID of the page before."""
        tenant = caller.tenant_name_for(None)
        with _problems():
            found = await passport.queries.rules(tenant, limit=limit, after=after)
        return answer(RulePackages(found))

    @router.get("/rules/{rules_id}", **describes("read", {200: RulesRow}, _REFUSED))
    async def get_rules(rules_id: UUID, caller: AsCaller) -> Response:
        """Get a rule package."""
        with _problems():
            return answer(
                await passport.queries.rule_package(caller.tenant_name_for(None), rules_id)
            )

    @router.post("/rules/{rules_id}/publish", **describes("enqueue", {200: RulesRow}, _REFUSED))
    async def publish_rules(rules_id: UUID, caller: AsCaller) -> Response:
        """Publish rules, after a check of their types: from now on, they never change."""
        tenant = caller.tenant_name_for(None)
        with _problems():
            await passport.publish_rules(tenant, rules_id, by=caller.name)
            return answer(await passport.queries.rule_package(tenant, rules_id))


def _add_versions(router: Router, passport: Passport) -> None:
    @router.post("/versions", **describes("enqueue", {202: Ordered}, _REFUSED, body=NewVersion))
    async def compile_version(request: Request, caller: AsCaller) -> Response:
        """Compile, sign and publish a passport version. Ordering it again changes nothing."""
        wanted = await read_body(request, NewVersion)
        tenant = caller.tenant_name_for(None)
        with _problems():
            order = await passport.order(**msgspec.structs.asdict(wanted))
            job = await passport.compile(tenant, order)
        return answer(Ordered(order.version_id(tenant), job.id), 202)

    @router.get("/versions", **describes("read", {200: Versions}, _REFUSED))
    async def list_versions(
        caller: AsCaller,
        passport_id: UUID | None = None,
        limit: Limit = 50,
        after: UUID | None = None,
    ) -> Response:
        """List passport versions, newest first. `after` is the last ID of the page before."""
        tenant = caller.tenant_name_for(None)
        with _problems():
            found = await passport.queries.versions(
                tenant, passport_id=passport_id, limit=limit, after=after
            )
        return answer(Versions(found))

    @router.get("/versions/{version_id}", **describes("read", {200: VersionRow}, _REFUSED))
    async def get_version(version_id: UUID, caller: AsCaller) -> Response:
        """Get a passport version, without its contents."""
        with _problems():
            return answer(await passport.queries.version(caller.tenant_name_for(None), version_id))

    @router.post("/versions/{version_id}/sign", **describes("enqueue", {202: Ordered}, _REFUSED))
    async def sign_version(version_id: UUID, caller: AsCaller) -> Response:
        """Sign a compiled version. One that is signed keeps its signature."""
        with _problems():
            job = await passport.sign(caller.tenant_name_for(None), version_id)
        return answer(Ordered(version_id, job.id), 202)


def _file(media_type: str) -> dict[str, Any]:
    described = describes("read", {200: None}, _REFUSED)
    content = {media_type: {"schema": {"type": "string", "format": "binary"}}}
    described["responses"][200] = {"description": "OK", "content": content}
    return described


def _add_files(router: Router, passport: Passport) -> None:
    @router.get("/versions/{version_id}/passport.json", **_file("application/json"))
    async def get_passport_file(version_id: UUID, caller: AsCaller) -> Response:
        """Get the passport itself, byte for byte as it was signed."""
        with _problems():
            sealed = await passport.sealed(caller.tenant_name_for(None), version_id)
        return Response(sealed.payload, media_type="application/json")

    @router.get("/versions/{version_id}/receipt.json", **_file("application/json"))
    async def get_receipt_file(
        version_id: UUID,
        caller: AsCaller,
        fact: Annotated[list[str], Query(max_length=PAGE_ROWS_MAX)] = [],  # noqa: B006
        all_facts: bool = False,
    ) -> Response:
        """Get the receipt and the signature, with the proofs of these facts, or of all."""
        tenant = caller.tenant_name_for(None)
        with _problems():
            sealed = await passport.with_proofs(tenant, version_id, None if all_facts else fact)
            content = receipt_file(sealed)
        return Response(content, media_type="application/json")

    @router.get("/versions/{version_id}/qr.png", **_file("image/png"))
    async def get_qr_code(version_id: UUID, caller: AsCaller) -> Response:
        """Get the QR code."""
        with _problems():
            sealed = await passport.sealed(caller.tenant_name_for(None), version_id)
            if sealed.qr_png is None:
                raise NotFound(f"passport version {version_id} has no QR code yet")
        return Response(sealed.qr_png, media_type="image/png")

    @router.get("/versions/{version_id}/label.pdf", **_file("application/pdf"))
    async def get_label(version_id: UUID, caller: AsCaller) -> Response:
        """Get the printable label."""
        with _problems():
            label = await passport.label(caller.tenant_name_for(None), version_id)
        return Response(label, media_type="application/pdf")


def _add_history(router: Router, passport: Passport) -> None:
    @router.get("/versions/{version_id}/deliveries", **describes("read", {200: Deliveries}))
    async def list_deliveries(version_id: UUID, caller: AsCaller) -> Response:
        """List the deliveries of a version's event, one for each endpoint."""
        found = await passport.queries.deliveries(caller.tenant_name_for(None), version_id)
        return answer(Deliveries([_shown(msgspec.structs.asdict(each)) for each in found]))

    @router.get("/audit/{aggregate_id}", **describes("read", {200: Audit}))
    async def list_passport_events(aggregate_id: UUID, caller: AsCaller) -> Response:
        """List what happened to a document, a snapshot, rules, a passport version or a job."""
        found = await passport.audit(caller.tenant_name_for(None), aggregate_id)
        return answer(Audit([_event(each) for each in found]))

    @router.get("/jobs", **describes("read", {200: Jobs}, _REFUSED))
    async def list_passport_jobs(
        caller: AsCaller, limit: Limit = 50, after: UUID | None = None
    ) -> Response:
        """List jobs, newest first. `after` is the last ID of the page before."""
        tenant = caller.tenant_name_for(None)
        return answer(Jobs(await passport.queries.jobs(tenant, limit=limit, after=after)))

    @router.get("/jobs/{job_id}", **describes("read", {200: JobRow}, _REFUSED))
    async def get_passport_job(job_id: UUID, caller: AsCaller) -> Response:
        """Get a job: QUEUED, RUNNING, SUCCEEDED, FAILED, DEAD_LETTER or CANCELED."""
        with _problems():
            return answer(await passport.queries.job(caller.tenant_name_for(None), job_id))


def _shown(delivery: dict[str, Any]) -> ShownDelivery:
    headers, body = delivery["response_headers"], delivery["response_body"]
    delivery["response_headers"] = headers and msgspec.json.decode(headers)
    delivery["response_body"] = None if body is None else body.decode("utf-8", "replace")
    return ShownDelivery(**delivery)


def _event(event: AuditEvent) -> ShownEvent:
    payload = msgspec.json.decode(event.payload)
    return ShownEvent(event.event_type, event.job_id, event.occurred_at, payload)
