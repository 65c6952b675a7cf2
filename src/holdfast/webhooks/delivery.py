"""Make one delivery attempt and report it.

The orchestrator decides whether there is another attempt, and when.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

from holdfast import CannotDecrypt, Permanent, Tables
from holdfast.domain.signature import OtherArguments
from holdfast.webhooks.echoes import Echoes
from holdfast.webhooks.presets import Message, Preset, Request
from holdfast.webhooks.rows import SagaStatus
from holdfast.webhooks.secrets import SubscriptionSecrets
from holdfast.webhooks.sender import Report

CANCELED: Final = "CANCELED"
_LOGGED: Final = (
    "duration_ms",
    "response_status",
    "response_headers",
    "response_body",
    "error_code",
    "error_text",
)


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
    saga_status: SagaStatus
    disabled: bool

    @property
    def why_not(self) -> str | None:
        """Why there is nothing to send any more, if so."""
        if self.saga_status != "InFlight":
            return "the saga has ended"
        return "the subscription was disabled or deleted" if self.disabled else None


class Reported(msgspec.Struct, frozen=True):
    """An attempt that was just reported, with the lease under which it was made."""

    saga_id: UUID
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

    async def find(self, connection: Any, job_id: UUID) -> Delivery:
        """Read what the job sends, and where."""
        delivery = await self._tables.on(connection).one("delivery_of_job", Delivery, id=job_id)
        if delivery is None:
            # An operator requeued a delivery job, but only the orchestrator starts attempts.
            raise Permanent(
                f"no attempt is waiting for job {job_id}; requeue the dead letter instead",
                code="NO_ATTEMPT",
            )
        return delivery

    async def sign(self, connection: Any, delivery: Delivery) -> tuple[Request, Echoes]:
        """Make the request. Also return the secrets to hide in the report."""
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
        return preset.sign(delivery, secrets), echoes

    async def report(
        self, connection: Any, job_id: UUID, delivery: Delivery, report: Report
    ) -> None:
        await self._report(
            connection, job_id, report.error_code, report.response_status,
            report.retry_after_seconds,
        )  # fmt: skip
        await self._tables.on(connection).execute(
            "log_attempt",
            attempt_id=job_id,
            tenant=delivery.tenant,
            saga_id=delivery.saga_id,
            **{name: getattr(report, name) for name in _LOGGED},
        )

    async def report_failure(
        self, connection: Any, job_id: UUID, error_code: str | None
    ) -> Reported | None:
        """Report a job that fails itself, if an attempt is waiting for it."""
        return await self._report(connection, job_id, error_code or "FAILED")

    async def _report(
        self,
        connection: Any,
        job_id: UUID,
        error_code: str | None,
        response_status: int | None = None,
        retry_after_seconds: float | None = None,
    ) -> Reported | None:
        return await self._tables.on(connection).one(
            "report",
            Reported,
            id=job_id,
            status="Completed" if error_code is None else "Failed",
            response_status=response_status,
            error_code=error_code,
            retry_after_seconds=retry_after_seconds,
        )
