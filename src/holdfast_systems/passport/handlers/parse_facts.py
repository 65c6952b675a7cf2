"""PARSE_FACTS: read a document's facts into a snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from holdfast import Context, JobFunction, Statements
from holdfast_systems.passport.canonical import canonical
from holdfast_systems.passport.compiler import Order
from holdfast_systems.passport.errors import DocumentTooLarge, ValidationError
from holdfast_systems.passport.facts import Fact, parse_document
from holdfast_systems.passport.limits import SNAPSHOT_FACTS_MAX
from holdfast_systems.passport.parts import About, Parts, find
from holdfast_systems.passport.records import Document, Snapshot, SnapshotDocument
from holdfast_systems.passport.schema import find_schema
from holdfast_systems.passport.seal import count_unparsed, lock_snapshot, seal


class ParseFacts(msgspec.Struct, frozen=True):
    document_version_id: UUID
    snapshot_id: UUID

    def about(self, _tenant: str) -> About:
        return "DocumentVersion", self.document_version_id


def define(
    parts: Parts, compile_passport: JobFunction[[Order], None]
) -> JobFunction[[ParseFacts], None]:
    @parts.hf.job(**parts.options("PARSE_FACTS", priority=2))
    async def parse_facts(ctx: Context, payload: Any) -> None:
        tenant = ctx.tenant
        async with parts.step(ctx, ParseFacts, payload) as step:
            async with parts.reading(tenant) as statements:
                document = await find(
                    statements, "find_document", Document, tenant, step.document_version_id
                )
            schema = find_schema(document.schema_version)
            facts = await asyncio.to_thread(parse_document, document.content, schema)
            rows = await asyncio.to_thread(_rows, tenant, facts)
            async with ctx.completing() as connection:
                statements = parts.tables.on(connection)
                # Locked: of two jobs that parse the last two documents, the later one sees both.
                snapshot = await lock_snapshot(statements, tenant, step.snapshot_id)
                added = await _store(statements, tenant, snapshot, document.id, rows)
                result: dict[str, Any] = {"facts": len(facts), "added": added}
                about = ("DocumentVersion", document.id)
                details = {"snapshot_id": step.snapshot_id, **result}
                await parts.audit(statements, tenant, "FACTS_PARSED", about, details, ctx.job_id)
                if snapshot.ordered and not await count_unparsed(statements, tenant, snapshot):
                    job = await seal(parts, connection, tenant, snapshot, compile_passport)
                    result |= {"next_job_id": job.id} if job else {}
                ctx.set_result(result)

    typed: JobFunction[[ParseFacts], None] = parse_facts
    return typed


async def _store(
    statements: Statements, tenant: str, snapshot: Snapshot, document_id: UUID, rows: str
) -> int:
    """Store the new facts, and link all to the document; return the number of new ones."""
    place = {"tenant": tenant, "snapshot_id": snapshot.id, "document_version_id": document_id}
    known = await statements.one("find_snapshot_document", SnapshotDocument, **place)
    if known is None:
        raise ValidationError(f"document {document_id} is not in snapshot {snapshot.id}")
    if known.parsed_at is not None:
        return 0
    added = await statements.execute("insert_facts", tenant=tenant, facts=rows)
    await statements.execute(
        "link_facts", tenant=tenant, document_version_id=document_id, facts=rows
    )
    await statements.execute(
        "add_snapshot_facts", tenant=tenant, snapshot_id=snapshot.id, facts=rows
    )
    count = await statements.value("count_facts", tenant=tenant, snapshot_id=snapshot.id)
    if count > SNAPSHOT_FACTS_MAX:
        raise DocumentTooLarge(
            f"snapshot {snapshot.id} would have {count} facts; the limit is {SNAPSHOT_FACTS_MAX}"
        )
    if key := await statements.value("find_conflict", **place):
        raise ValidationError(
            f"another document in snapshot {snapshot.id} describes {key} differently"
        )
    await statements.execute("mark_parsed", **place)
    return added


def _rows(tenant: str, facts: Sequence[Fact]) -> str:
    """Put all facts into one parameter. They are sorted, so that two jobs can't deadlock."""
    rows = [
        {
            "id": fact.id(tenant),
            "fact_type": fact.fact_type,
            "fact_key": fact.fact_key,
            "schema_version": fact.schema_version,
            "payload": canonical(fact.payload).decode(),
            "payload_hash": fact.payload_hash,
        }
        for fact in facts
    ]
    return msgspec.json.encode(rows).decode()
