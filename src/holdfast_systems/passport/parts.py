"""What the steps of the pipeline share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from holdfast import Context, Holdfast, Retry, State, Statements, Tables
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
Details = Mapping[str, object]
About = tuple[str, UUID]  # the type and the id of what an audit event is about

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
        """Return the options of `@hf.job` for one of the five jobs."""
        return {
            "name": name,
            "priority": priority,
            "queue": self.queue,
            "retry": RETRY,
            "permanent": PERMANENT_CODES,
        }

    @asynccontextmanager
    async def reading(self, tenant: str) -> AsyncIterator[Statements]:
        async with self.hf.for_tenant(tenant).transaction(read_only=True) as connection:
            yield self.tables.on(connection)

    async def audit(
        self,
        statements: Statements,
        tenant: str,
        event_type: str,
        about: About,
        details: Details,
        job_id: UUID | None = None,
    ) -> None:
        """Append to the audit log, in the same transaction as the change."""
        await statements.execute(
            "append_audit_event",
            id=self.hf.new_id(),
            tenant=tenant,
            event_type=event_type,
            aggregate_type=about[0],
            aggregate_id=about[1],
            job_id=job_id,
            payload=msgspec.json.encode(details).decode(),
        )

    async def audit_version(
        self, statements: Statements, ctx: Context, event_type: str, id: UUID, details: Details
    ) -> None:
        about = ("PassportVersion", id)
        await self.audit(statements, ctx.tenant, event_type, about, details, ctx.job_id)

    @asynccontextmanager
    async def step(self, ctx: Context, about: About) -> AsyncIterator[None]:
        """Run a step. If it fails, append that to the audit log, in the failure's transaction."""
        try:
            yield
        except Exception as error:
            judged = ctx.judge(error)
            if judged.code is not None:  # else the worker stops, and another one runs the step
                details = {
                    "job": ctx.name,
                    "attempt": ctx.attempt,
                    "status": "DEAD_LETTER" if judged.state is State.DEAD else judged.state.upper(),
                    "code": judged.code,
                }
                async with ctx.failing(error) as connection:
                    statements = self.tables.on(connection)
                    await self.audit(
                        statements, ctx.tenant, "STEP_FAILED", about, details, ctx.job_id
                    )
            raise

    async def find_version(self, tenant: str, version_id: UUID) -> Version:
        async with self.reading(tenant) as statements:
            return await find(statements, "find_version", Version, tenant, version_id)

    async def find_signed(self, tenant: str, version_id: UUID) -> Version:
        version = await self.find_version(tenant, version_id)
        if version.signature is None:
            raise ValidationError(f"passport version {version_id} is not signed")
        return version

    async def read_inputs(
        self, tenant: str, snapshot_id: UUID, rules_id: UUID
    ) -> tuple[RulePackage, list[Fact]]:
        """Read what a passport is made of, once it can no longer change."""
        async with self.reading(tenant) as statements:
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


async def find(
    statements: Statements, statement: str, row_type: type[Row], tenant: str, id: UUID
) -> Row:
    """Return the tenant's row; a row of another tenant counts as missing."""
    row = await statements.one(statement, row_type, tenant=tenant, id=id)
    if row is None:
        raise ValidationError(f"no such {row_type.__name__.lower()}: {id}")
    return row
