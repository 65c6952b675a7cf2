"""Make one delivery attempt and report it.

The orchestrator decides whether there is another attempt, and when.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from holdfast import CannotDecrypt, Permanent, Tables
from holdfast.domain.signature import OtherArguments
from holdfast.webhooks.echoes import Echoes
from holdfast.webhooks.presets import Message, Preset, Request
from holdfast.webhooks.secrets import SubscriptionSecrets
from holdfast.webhooks.sender import Report


class Delivery(Message, frozen=True, kw_only=True):
    """What a delivery job sends, and where."""

    tenant: str
    url: str
    preset: str
    policy: str
    subscription_id: UUID
    attempt_no: int
    worker_id: str | None
    lease_until: datetime | None


class Deliverer:
    def __init__(
        self, tables: Tables, presets: Mapping[str, Preset], secrets: SubscriptionSecrets
    ) -> None:
        self._tables = tables
        self._presets = presets
        self._secrets = secrets

    async def prepare(self, connection: Any, job_id: UUID) -> tuple[Delivery, Request, Echoes]:
        """Read what the job sends, and sign it. Also return the secrets to hide in the report."""
        statements = self._tables.on(connection)
        delivery = await statements.one("delivery_of_job", Delivery, id=job_id)
        if delivery is None:
            # An operator requeued a delivery job, but only the orchestrator starts attempts.
            raise Permanent(
                f"no attempt is waiting for job {job_id}; requeue the dead letter instead",
                code="NO_ATTEMPT",
            )
        preset = self._presets.get(delivery.preset)
        if preset is None:
            # Hand the job back, for a worker whose application has this preset.
            raise OtherArguments(
                f"preset {delivery.preset!r} is unknown here; known: {', '.join(self._presets)}"
            )
        try:
            secrets = await self._secrets.of_subscription(connection, delivery.subscription_id)
        except CannotDecrypt as error:
            # Hand the job back, for a worker that has the key.
            raise OtherArguments(str(error)) from None
        echoes = Echoes(secrets, map(preset.key_of, secrets))
        return delivery, preset.sign(delivery, secrets), echoes

    async def report(
        self, connection: Any, job_id: UUID, delivery: Delivery, report: Report
    ) -> None:
        statements = self._tables.on(connection)
        await statements.execute(
            "report",
            id=job_id,
            status="Completed" if report.error_code is None else "Failed",
            response_status=report.response_status,
            error_code=report.error_code,
        )
        logged = msgspec.structs.asdict(report)
        await statements.execute(
            "log_attempt",
            attempt_id=job_id,
            tenant=delivery.tenant,
            saga_id=delivery.saga_id,
            **logged,
        )

    async def report_failure(self, connection: Any, job_id: UUID, error_code: str | None) -> bool:
        """Report a job that fails itself, if an attempt is waiting for it."""
        return bool(
            await self._tables.on(connection).execute(
                "report", id=job_id, status="Failed", response_status=None, error_code=error_code
            )
        )
