"""The log events of webhooks. They contain IDs and codes, never what was sent."""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from holdfast.webhooks.delivery import Delivery, Reported
from holdfast.webhooks.sender import Report

_logger = logging.getLogger("holdfast.webhooks")


@dataclass(frozen=True, slots=True)
class Died:
    """A saga that has just become a dead letter, with the job of its last attempt and that job's
    last lease, if it was reported under one. `decided_by` is the orchestrator."""

    dead_letter_id: UUID
    saga_id: UUID
    job_id: UUID
    attempt: int
    error_code: str
    lease_expiration: datetime | None
    worker_id: str | None
    decided_by: str


def log_attempt(job_id: UUID, delivery: Delivery, report: Report) -> None:
    level = logging.INFO if report.error_code is None else logging.WARNING
    more = {
        "response_status": report.response_status,
        "duration_ms": report.duration_ms,
        "cause": report.cause,
    }
    known = {name: value for name, value in more.items() if value is not None}
    _log(
        level,
        "webhook_attempt",
        _fields(
            delivery.saga_id,
            job_id,
            delivery.attempt_no,
            report.error_code,
            delivery.lease_until,
            delivery.worker_id,
        )
        | known,
    )


def log_failed_job(job_id: UUID, reported: Reported, error_code: str | None) -> None:
    """A delivery job that failed by itself, without a result of its request."""
    _log(
        logging.WARNING,
        "webhook_attempt",
        _fields(
            reported.saga_id,
            job_id,
            reported.attempt_no,
            error_code,
            reported.lease_until,
            reported.worker_id,
        ),
    )


def log_lost(saga_id: UUID, job_id: UUID, attempt_no: int, error_code: str) -> None:
    """A delivery job that ended without a report. Its lease and its worker are gone."""
    _log(
        logging.WARNING,
        "webhook_attempt",
        _fields(saga_id, job_id, attempt_no, error_code, None, None),
    )


def log_dead_letter(died: Died) -> None:
    lease = died.lease_expiration
    fields = asdict(died) | {"lease_expiration": lease and lease.isoformat()}
    _log(logging.ERROR, "webhook_dead_letter", fields)


def log_disabled(subscription_id: UUID, because: str) -> None:
    _log(
        logging.WARNING,
        "webhook_subscription_disabled",
        {"subscription_id": subscription_id, "because": because},
    )


def _fields(
    saga_id: UUID,
    job_id: UUID,
    attempt_no: int,
    error_code: str | None,
    lease_until: datetime | None,
    worker_id: str | None,
) -> dict[str, object]:
    """What every line about a delivery job has, even without a value."""
    return {
        "saga_id": saga_id,
        "job_id": job_id,
        "attempt": attempt_no,
        "error_code": error_code,
        "lease_expiration": lease_until and lease_until.isoformat(),
        "worker_id": worker_id,
    }


def _log(level: int, event: str, fields: dict[str, object]) -> None:
    _logger.log(level, event, extra={"event": event, "fields": fields})
