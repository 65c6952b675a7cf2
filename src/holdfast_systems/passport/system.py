"""The battery-passport pipeline: documents in, signed passports out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import msgspec

from holdfast import Holdfast, Job, Statements
from holdfast.webhooks import Webhooks
from holdfast_systems.passport import maintenance
from holdfast_systems.passport.canonical import id_of, sha256
from holdfast_systems.passport.compiler import Order, prove_fact, prove_facts
from holdfast_systems.passport.errors import PassportError, ValidationError
from holdfast_systems.passport.facts import check_size
from holdfast_systems.passport.handlers import (
    compile_passport,
    deliver_webhook,
    generate_qr,
    parse_facts,
    sign_passport,
)
from holdfast_systems.passport.handlers.parse_facts import ParseFacts
from holdfast_systems.passport.handlers.sign_passport import SignPassport
from holdfast_systems.passport.keys import SigningKeys, keys_from_environment
from holdfast_systems.passport.label import draw_label
from holdfast_systems.passport.names import check_name
from holdfast_systems.passport.parts import Parts, find
from holdfast_systems.passport.qr import BORDER
from holdfast_systems.passport.queries import Queries
from holdfast_systems.passport.records import AuditEvent, Document, Rules, Snapshot, Version
from holdfast_systems.passport.rules.package import compile_rules, read_package
from holdfast_systems.passport.schema import BILL_OF_MATERIALS, find_schema
from holdfast_systems.passport.seal import lock_snapshot, seal
from holdfast_systems.passport.verifier import FactProof, Sealed

if TYPE_CHECKING:
    from holdfast.api import Router
    from holdfast.dashboard.systems import SystemPages


class Added(NamedTuple):
    document_version_id: UUID
    job: Job


class Passport:
    """Declare the tables and the five jobs on `hf`; its workers run them."""

    def __init__(
        self,
        hf: Holdfast,
        webhooks: Webhooks,
        *,
        read_keys: Callable[[], SigningKeys] = keys_from_environment,
        queue: str = "passport",
        qr_border: int = BORDER,
    ) -> None:
        self._hf = hf
        self._tables = hf.tables("passport", package=__package__)
        self._parts = parts = Parts(hf, self._tables, webhooks, read_keys, queue, qr_border)
        deliver = deliver_webhook.define(parts)
        draw = generate_qr.define(parts, deliver)
        self._sign = sign_passport.define(parts, draw)
        self._compile = compile_passport.define(parts, self._sign)
        self._parse = parse_facts.define(parts, self._compile)
        maintenance.define(parts)
        self.queries = Queries(parts)
        hf.add_routes(self._make_routes)
        hf.add_pages(self._make_pages)

    def _make_routes(self, _service: object) -> Router:
        # Imported here, because workers and applications need no web framework.
        from holdfast_systems.passport.routes import routes

        return routes(self)

    def _make_pages(self, _service: object) -> SystemPages:
        from holdfast_systems.passport.pages import PassportPages

        return PassportPages(self, self._tables)

    async def open_snapshot(
        self, tenant: str, *, id: UUID | None = None, by: str | None = None
    ) -> UUID:
        """Open a snapshot, which collects facts. The same id twice is one snapshot.

        `by` is who did it, for the audit log.
        """
        check_name("tenant", tenant)
        snapshot_id = id or self._hf.new_id()
        async with self._hf.for_tenant(tenant).transaction() as connection:
            statements = self._tables.on(connection)
            if await statements.execute("insert_snapshot", id=snapshot_id, tenant=tenant):
                about = ("Snapshot", snapshot_id)
                await self._parts.audit(statements, tenant, "SNAPSHOT_OPENED", about, {"by": by})
            await lock_snapshot(statements, tenant, snapshot_id)
        return snapshot_id

    async def add_document(
        self,
        tenant: str,
        snapshot_id: UUID,
        name: str,
        content: bytes,
        *,
        schema_version: str = BILL_OF_MATERIALS.version,
        then: Order | None = None,
        by: str | None = None,
    ) -> Added:
        """Store a document's version, and enqueue the parsing of its facts into the snapshot.

        With `then`, the snapshot is sealed as soon as all its documents are parsed, and the
        passport is compiled.
        """
        document = _new_document(tenant, name, schema_version, content)
        async with self._hf.for_tenant(tenant).transaction() as connection:
            statements = self._tables.on(connection)
            snapshot = await lock_snapshot(statements, tenant, snapshot_id)
            if snapshot.is_sealed:
                raise ValidationError(f"snapshot {snapshot_id} is sealed")
            await self._store_document(statements, tenant, snapshot_id, document, by)
            if then is not None:
                await _note_order(statements, tenant, snapshot, then)
            parse = self._parse.options(connection=connection)
            job = await self._hf.for_tenant(tenant).enqueue(
                parse, ParseFacts(document.id, snapshot_id)
            )
        return Added(document.id, job)

    async def _store_document(
        self,
        statements: Statements,
        tenant: str,
        snapshot_id: UUID,
        document: Document,
        by: str | None,
    ) -> None:
        is_new = await statements.execute(
            "insert_document",
            tenant=tenant,
            content_hash=sha256(document.content).hex(),
            **msgspec.structs.asdict(document),
        )
        await statements.execute(
            "add_snapshot_document",
            tenant=tenant,
            snapshot_id=snapshot_id,
            document_version_id=document.id,
        )
        about, details = ("DocumentVersion", document.id), {"new": bool(is_new), "by": by}
        await self._parts.audit(statements, tenant, "DOCUMENT_ADDED", about, details)

    async def seal_snapshot(self, tenant: str, snapshot_id: UUID, *, by: str | None = None) -> None:
        """Seal a snapshot: from now on, nothing in it changes."""
        async with self._hf.for_tenant(tenant).transaction() as connection:
            snapshot = await lock_snapshot(self._tables.on(connection), tenant, snapshot_id)
            await seal(self._parts, connection, tenant, snapshot, self._compile, by)

    async def add_rules(self, tenant: str, source: bytes, *, by: str | None = None) -> UUID:
        """Store a rule package as a draft; the same package twice is one."""
        check_name("tenant", tenant)
        package = read_package(source)
        rules_id = id_of("rules", tenant, package.hash)
        async with self._hf.for_tenant(tenant).transaction() as connection:
            statements = self._tables.on(connection)
            is_new = await statements.execute(
                "insert_rules",
                id=rules_id,
                tenant=tenant,
                name=package.name,
                source=package.source.decode(),
                source_hash=package.hash,
            )
            if is_new:
                about = ("Rules", rules_id)
                await self._parts.audit(statements, tenant, "RULES_ADDED", about, {"by": by})
        return rules_id

    async def publish_rules(self, tenant: str, rules_id: UUID, *, by: str | None = None) -> None:
        """Publish rules for use in passports; raise RuleTypeError if their types don't match."""
        problem: PassportError | None = None
        async with self._hf.for_tenant(tenant).transaction() as connection:
            statements = self._tables.on(connection)
            rules = await find(statements, "find_rules", Rules, tenant, rules_id)
            about, details = ("Rules", rules_id), {"by": by}
            try:
                compile_rules(read_package(rules.source.encode()))
            except PassportError as error:
                problem, details = error, {"by": by, "code": error.code, "text": str(error)}
                await self._parts.audit(statements, tenant, "RULES_REJECTED", about, details)
            else:
                if await statements.execute("publish_rules", tenant=tenant, id=rules_id):
                    await self._parts.audit(statements, tenant, "RULES_PUBLISHED", about, details)
        if problem is not None:
            raise problem

    async def order(
        self,
        *,
        passport_id: UUID,
        snapshot_id: UUID,
        rules_id: UUID,
        build_id: str,
        issued_at: datetime | None = None,
    ) -> Order:
        """Describe a passport to compile. It is issued now, by the database's clock, by default."""
        if issued_at is None:
            issued_at = await self._hf.now()
        return Order(passport_id, snapshot_id, rules_id, build_id, issued_at)

    async def compile(self, tenant: str, order: Order) -> Job:
        """Enqueue a passport: it is compiled, signed, given a QR code and published."""
        return await self._hf.for_tenant(tenant).enqueue(self._compile, order)

    async def sign(self, tenant: str, version_id: UUID) -> Job:
        """Enqueue the signing of a compiled version, and what follows. One that is signed keeps its
        signature."""
        await self._parts.find_version(tenant, version_id)
        return await self._hf.for_tenant(tenant).enqueue(self._sign, SignPassport(version_id))

    async def version(self, tenant: str, version_id: UUID) -> Version:
        return await self._parts.find_version(tenant, version_id)

    async def sealed(self, tenant: str, version_id: UUID) -> Sealed:
        """Return a signed passport as others receive it."""
        version = await self._parts.find_signed(tenant, version_id)
        assert version.signature is not None
        assert version.key_id is not None
        return Sealed(
            payload=version.payload.encode(),
            receipt=version.receipt.encode(),
            signature=version.signature,
            key_id=version.key_id,
            qr_text=version.qr_text,
            qr_png=version.qr_png,
            public_key=version.public_key,
        )

    async def label(self, tenant: str, version_id: UUID) -> bytes:
        """Return the printable label, as a PDF."""
        version = await self._parts.find_signed(tenant, version_id)
        return await asyncio.to_thread(draw_label, version)

    async def prove(
        self,
        tenant: str,
        version_id: UUID,
        fact_key: str,
        fact_type: str = BILL_OF_MATERIALS.fact_type,
    ) -> FactProof:
        """Prove that a passport was made with this fact, without showing any other fact."""
        version = await self.version(tenant, version_id)
        package, facts = await self._parts.read_inputs(
            tenant, version.snapshot_id, version.rules_id
        )
        return await asyncio.to_thread(prove_fact, package, facts, fact_type, fact_key)

    async def with_proofs(
        self, tenant: str, version_id: UUID, fact_keys: Sequence[str] | None = None
    ) -> Sealed:
        """Return a signed passport with the proofs of these facts, or of all."""
        sealed = await self.sealed(tenant, version_id)
        version = await self.version(tenant, version_id)
        package, facts = await self._parts.read_inputs(
            tenant, version.snapshot_id, version.rules_id
        )
        proofs = await asyncio.to_thread(prove_facts, package, facts, fact_keys)
        return msgspec.structs.replace(sealed, proofs=proofs)

    async def audit(self, tenant: str, aggregate_id: UUID) -> list[AuditEvent]:
        """List what happened to a document, snapshot, rules or passport version, oldest first."""
        async with self._parts.reading(tenant) as statements:
            return await statements.all(
                "audit_of_aggregate", AuditEvent, tenant=tenant, aggregate_id=aggregate_id
            )


async def _note_order(
    statements: Statements, tenant: str, snapshot: Snapshot, order: Order
) -> None:
    """Keep the first order: a caller that got no response sends it again with another time."""
    if order.snapshot_id != snapshot.id:
        raise ValidationError(f"the order is for snapshot {order.snapshot_id}, not {snapshot.id}")
    check_name("build id", order.build_id)
    if snapshot.ordered is None:
        ordered = msgspec.json.encode(order).decode()
        await statements.execute(
            "order_of_snapshot", tenant=tenant, id=snapshot.id, ordered=ordered
        )
        return
    first = msgspec.json.decode(snapshot.ordered, type=Order)
    if first.version_id(tenant) != order.version_id(tenant):
        raise ValidationError(f"another passport is already ordered from snapshot {snapshot.id}")


def _new_document(tenant: str, name: str, schema_version: str, content: bytes) -> Document:
    find_schema(schema_version)
    check_name("document name", name)
    if not content:
        raise ValidationError("the document is empty")
    check_size(content)
    document_id = id_of("document", tenant, name, schema_version, sha256(content).hex())
    return Document(document_id, name, schema_version, content)
