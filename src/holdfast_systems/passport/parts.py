"""What the steps of the pipeline share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar
from uuid import UUID

import msgspec

from holdfast import (
    Context,
    Holdfast,
    Judgment,
    Retry,
    State,
    Statements,
    StoreUnavailable,
    Tables,
)
from holdfast.webhooks import Webhooks
from holdfast_systems.passport.errors import (
    PERMANENT_CODES,
    RETRYABLE_CODES,
    NotFound,
    RulesNotPublished,
    SnapshotNotReady,
    ValidationError,
    in_own_terms,
)
from holdfast_systems.passport.facts import Fact
from holdfast_systems.passport.keys import SigningKeys
from holdfast_systems.passport.limits import STEP_SECONDS_MAX
from holdfast_systems.passport.records import FactRow, Rules, Snapshot, Version
from holdfast_systems.passport.rules.package import RulePackage, read_package

Row = TypeVar("Row")
Details = Mapping[str, object]
About = tuple[str, UUID]  # the type and the id of what an audit event is about


class StepPayload(Protocol):
    """The payload of a job. `about` says what the audit events of its step are about: None means
    the job itself."""

    def about(self, tenant: str) -> About | None: ...


Payload = TypeVar("Payload", bound=StepPayload)

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
        """Return the options of `@hf.job` for one of this system's jobs."""
        return {
            "name": name,
            "priority": priority,
            "queue": self.queue,
            "retry": RETRY,
            "permanent": PERMANENT_CODES,
            "transient": RETRYABLE_CODES,
            "timeout_seconds": STEP_SECONDS_MAX,
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
    async def step(
        self, ctx: Context, kind: type[Payload], given: object
    ) -> AsyncIterator[Payload]:
        """Run a step with this payload. If it fails, append that to the audit log, in the
        transaction that ends the attempt."""
        about: About = ("Job", ctx.job_id)
        try:
            payload = read_as(kind, given)
            about = payload.about(ctx.tenant) or about
            yield payload
        except (Exception, asyncio.CancelledError) as error:
            told = in_own_terms(error)
            judged = ctx.judge(told)
            if judged.code is None:  # the worker stops, and another one runs the step
                raise
            # Without a database, the worker records the failure itself when there is one again.
            with suppress(StoreUnavailable):
                await self._fail(ctx, told, judged, about)
            raise told from told.__cause__

    async def _fail(
        self, ctx: Context, error: BaseException, judged: Judgment, about: About
    ) -> None:
        details = {
            "job": ctx.name,
            "attempt": ctx.attempt,
            "status": "DEAD_LETTER" if judged.state is State.DEAD else judged.state.upper(),
            "code": judged.code,
            "text": judged.text,
        }
        async with ctx.failing(error) as connection:
            statements = self.tables.on(connection)
            await self.audit(statements, ctx.tenant, "STEP_FAILED", about, details, ctx.job_id)

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
        raise NotFound(f"no such {row_type.__name__.lower()}: {id}")
    return row


def read_as(kind: type[Payload], given: object) -> Payload:
    """Read a job's payload here, not in the engine, so that a malformed one is this system's
    VALIDATION_ERROR, with an audit event."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise ValidationError(f"malformed payload: {error}") from None
