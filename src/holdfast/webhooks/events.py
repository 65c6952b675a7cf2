"""The webhooks' log lines, one function for each. They hold ids and codes, never what was sent."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from holdfast.webhooks.sender import Report

_logger = logging.getLogger("holdfast.webhooks")


@dataclass(frozen=True, slots=True)
class Held:
    """A delivery job, as the worker that performs it holds it."""

    saga_id: UUID
    job_id: UUID
    attempt_no: int
    worker_id: str | None
    lease_until: datetime | None


@dataclass(frozen=True, slots=True)
class Died:
    """A saga that has just become a dead letter; the job is that of its last attempt."""

    dead_letter_id: UUID
    saga_id: UUID
    job_id: UUID
    attempt_no: int
    error_code: str
    worker_id: str | None


def log_attempt(held: Held, report: Report) -> None:
    level = logging.INFO if report.error_code is None else logging.WARNING
    fields = {
        "saga_id": held.saga_id,
        "job_id": held.job_id,
        "attempt": held.attempt_no,
        "response_status": report.response_status,
        "error_code": report.error_code,
        "duration_ms": report.duration_ms,
        "lease_until": held.lease_until and held.lease_until.isoformat(),
        "worker_id": held.worker_id,
    }
    _log(level, "webhook_attempt", fields)


def log_dead_letter(died: Died) -> None:
    fields = {
        "dead_letter_id": died.dead_letter_id,
        "saga_id": died.saga_id,
        "job_id": died.job_id,
        "attempt": died.attempt_no,
        "error_code": died.error_code,
        "worker_id": died.worker_id,
    }
    _log(logging.ERROR, "webhook_dead_letter", fields)


def _log(level: int, event: str, fields: dict[str, object]) -> None:
    told = {name: value for name, value in fields.items() if value is not None}
    _logger.log(level, event, extra={"event": event, "fields": told})
