"""The log events of webhooks. They contain IDs and codes, never what was sent."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from uuid import UUID

from holdfast.webhooks.delivery import Delivery
from holdfast.webhooks.sender import Report

_logger = logging.getLogger("holdfast.webhooks")


@dataclass(frozen=True, slots=True)
class Died:
    """A saga that has just become a dead letter, with the job of its last attempt."""

    dead_letter_id: UUID
    saga_id: UUID
    job_id: UUID
    attempt: int
    error_code: str
    worker_id: str | None


def log_attempt(job_id: UUID, delivery: Delivery, report: Report) -> None:
    level = logging.INFO if report.error_code is None else logging.WARNING
    fields = {
        "saga_id": delivery.saga_id,
        "job_id": job_id,
        "attempt": delivery.attempt_no,
        "response_status": report.response_status,
        "error_code": report.error_code,
        "duration_ms": report.duration_ms,
        "lease_until": delivery.lease_until and delivery.lease_until.isoformat(),
        "worker_id": delivery.worker_id,
    }
    _log(level, "webhook_attempt", fields)


def log_dead_letter(died: Died) -> None:
    _log(logging.ERROR, "webhook_dead_letter", asdict(died))


def _log(level: int, event: str, fields: dict[str, object]) -> None:
    known = {name: value for name, value in fields.items() if value is not None}
    _logger.log(level, event, extra={"event": event, "fields": known})
