"""Seal a snapshot: from then on, nothing in it changes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from holdfast import Job, JobFunction, Statements
from holdfast_systems.passport.compiler import Order
from holdfast_systems.passport.errors import SnapshotNotReady
from holdfast_systems.passport.parts import Parts, find
from holdfast_systems.passport.records import Snapshot


async def lock_snapshot(statements: Statements, tenant: str, snapshot_id: UUID) -> Snapshot:
    return await find(statements, "lock_snapshot", Snapshot, tenant, snapshot_id)


async def seal(
    parts: Parts,
    connection: Any,
    tenant: str,
    snapshot: Snapshot,
    compile_passport: JobFunction[[Order], None],
    by: str | None = None,
) -> Job | None:
    """Seal a locked snapshot, and compile the passport that was ordered from it."""
    if snapshot.is_sealed:
        return None
    statements = parts.tables.on(connection)
    if waiting := await count_unparsed(statements, tenant, snapshot):
        raise SnapshotNotReady(f"{waiting} documents in snapshot {snapshot.id} are not parsed yet")
    await statements.execute("seal_snapshot", tenant=tenant, id=snapshot.id)
    await parts.audit(statements, tenant, "SNAPSHOT_SEALED", ("Snapshot", snapshot.id), {"by": by})
    if snapshot.ordered is None:
        return None
    order = msgspec.json.decode(snapshot.ordered, type=Order)
    following = compile_passport.options(connection=connection)
    return await parts.hf.for_tenant(tenant).enqueue(following, order)


async def count_unparsed(statements: Statements, tenant: str, snapshot: Snapshot) -> int:
    count: int = await statements.value("count_unparsed", tenant=tenant, snapshot_id=snapshot.id)
    return count
