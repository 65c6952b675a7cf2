"""What all steps of the pipeline share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from holdfast import Context, Holdfast, Retry, Statements, Tables
from holdfast.webhooks import Webhooks
from holdfast_systems.passport.errors import (
    PERMANENT_CODES,
    RulesNotPublished,
    SnapshotNotReady,
    ValidationError,
)
from holdfast_systems.passport.facts import Fact
from holdfast_systems.passport.keys import SigningKeys
from holdfast_systems.passport.records import FactRow, Rules, Snapshot, Version
from holdfast_systems.passport.rules.package import RulePackage, read_package

Row = TypeVar("Row")

RETRY = Retry.exponential(max_attempts=5, base=2, factor=2, cap=1024, jitter=0)


@dataclass(frozen=True, slots=True)
class Parts:
    hf: Holdfast
    tables: Tables
    webhooks: Webhooks
    read_keys: Callable[[], SigningKeys]
    queue: str
    qr_border: int

    def options(self, name: str, priority: int) -> dict[str, Any]:
        """What `@hf.job` is given for each of the five."""
        return {
            "name": name,
            "priority": priority,
            "queue": self.queue,
            "retry": RETRY,
            "permanent": PERMANENT_CODES,
        }

    async def audit(
        self,
        statements: Statements,
        tenant: str,
        event_type: str,
        about: tuple[str, UUID],
        payload: Mapping[str, object],
        job_id: UUID | None = None,
    ) -> None:
        """Append to the audit log, in the transaction that makes it true."""
        await statements.execute(
            "append_audit_event",
            id=self.hf.new_id(),
            tenant=tenant,
            event_type=event_type,
            aggregate_type=about[0],
            aggregate_id=about[1],
            job_id=job_id,
            payload=msgspec.json.encode(payload).decode(),
        )

    async def find_version(self, tenant: str, version_id: UUID) -> Version:
        async with self.hf.transaction(read_only=True) as connection:
            statements = self.tables.on(connection)
            return await find(statements, "find_version", Version, tenant, version_id)

    async def find_signed(self, tenant: str, version_id: UUID) -> Version:
        version = await self.find_version(tenant, version_id)
        if version.signature is None:
            raise ValidationError(f"passport version {version_id} is not signed")
        return version


async def find(
    statements: Statements, statement: str, row_type: type[Row], tenant: str, id: UUID
) -> Row:
    """Answer the tenant's own row; what belongs to another is not there."""
    row = await statements.one(statement, row_type, tenant=tenant, id=id)
    if row is None:
        raise ValidationError(f"there is no {row_type.__name__.lower()} {id}")
    return row


def tenant_of(ctx: Context) -> str:
    if ctx.tenant is None:
        raise ValidationError(f"job {ctx.job_id} belongs to no tenant")
    return ctx.tenant


async def read_inputs(
    statements: Statements, tenant: str, snapshot_id: UUID, rules_id: UUID
) -> tuple[RulePackage, list[Fact]]:
    """What a passport is made of, once it can't change any more."""
    snapshot = await find(statements, "find_snapshot", Snapshot, tenant, snapshot_id)
    if not snapshot.is_sealed:
        raise SnapshotNotReady(f"snapshot {snapshot_id} is not sealed")
    rules = await statements.one("find_rules", Rules, tenant=tenant, id=rules_id)
    if rules is None or not rules.is_published:
        raise RulesNotPublished(f"rules {rules_id} are not published")
    rows = await statements.all(
        "facts_of_snapshot", FactRow, tenant=tenant, snapshot_id=snapshot_id
    )
    return read_package(rules.source.encode()), [row.fact() for row in rows]
