"""The worker's log lines, one function for each."""

from __future__ import annotations

from collections.abc import Sequence
from logging import DEBUG, INFO, WARNING

from holdfast.domain.job import Claimed, Settlement
from holdfast.domain.states import State
from holdfast.observability import logs
from holdfast.worker.report import WorkerReport, verb


def log_boot(worker_id: str, concurrency: int, queues: Sequence[str] | None) -> None:
    shown = "all" if queues is None else ",".join(queues)
    logs.event(INFO, "boot", worker_id=worker_id, concurrency=concurrency, queues=shown)


def log_claim(worker_id: str, jobs: Sequence[Claimed]) -> None:
    logs.event(DEBUG, "claim", worker_id=worker_id, count=len(jobs))


def log_start(worker_id: str, job: Claimed) -> None:
    if not logs.enabled(INFO):
        return
    logs.event(
        INFO,
        "start",
        "sent ahead while its breaker is open" if job.probe else "",
        job_id=job.id,
        name=job.name,
        queue=job.queue,
        tenant=job.tenant,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        fence=job.fence,
        worker_id=worker_id,
        correlation_id=job.correlation_id,
        breaker=job.breaker,
    )


def log_settle(worker_id: str, job: Claimed, settlement: Settlement, duration_ms: float) -> None:
    """A retry has a name of its own, because it is what people look for at night; and so has an
    attempt that was given back because the breaker of its job is open."""
    what = verb(settlement)
    bad = what == "retried" or settlement.state in (State.FAILED, State.DEAD)
    level = WARNING if bad else INFO
    if not logs.enabled(level):
        return
    logs.event(
        level,
        "retry" if what == "retried" else "held" if what == "held" else "settle",
        "" if what in ("retried", "held") else what,
        job_id=job.id,
        name=job.name,
        queue=job.queue,
        state=settlement.state,
        tenant=job.tenant,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        fence=job.fence,
        worker_id=worker_id,
        duration_ms=round(duration_ms, 2),
        delay_seconds=round(settlement.delay_seconds, 3)
        if what in ("retried", "snoozed")
        else None,
        error_code=settlement.error_code,
        correlation_id=job.correlation_id,
        breaker=job.breaker,
    )


def log_lost(worker_id: str, job: Claimed, state: State | None) -> None:
    """A job that somebody canceled is lost on purpose."""
    canceled = state is State.CANCELED
    level = INFO if canceled else WARNING
    logs.event(
        level,
        "lost",
        "the job was canceled; the handler is stopped"
        if canceled
        else "the lease is no longer held; the handler is stopped and nothing is written",
        job_id=job.id,
        name=job.name,
        queue=job.queue,
        state=state,
        tenant=job.tenant,
        attempt=job.attempt,
        fence=job.fence,
        worker_id=worker_id,
        correlation_id=job.correlation_id,
    )


def log_error_after_completing(worker_id: str, job: Claimed, error_code: str) -> None:
    logs.event(
        WARNING,
        "error_after_completing",
        "the handler failed after its job had succeeded; the job stays succeeded",
        job_id=job.id,
        name=job.name,
        worker_id=worker_id,
        error_code=error_code,
    )


def log_hung(worker_id: str, job: Claimed, seconds: float) -> None:
    logs.event(
        WARNING,
        "hung",
        f"the handler still runs {seconds:.1f} s after its start, though told to stop; its slot"
        " stays taken",
        job_id=job.id,
        name=job.name,
        queue=job.queue,
        attempt=job.attempt,
        fence=job.fence,
        worker_id=worker_id,
        duration_ms=round(seconds * 1000, 2),
        correlation_id=job.correlation_id,
    )


def log_child_started(worker_id: str, process_id: int, what: str) -> None:
    logs.event(INFO, "child_started", what, worker_id=worker_id, process_id=process_id)


def log_child_ended(worker_id: str, process_id: int, what: str, code: int) -> None:
    level = WARNING if code else INFO
    logs.event(level, "child_ended", what, worker_id=worker_id, process_id=process_id)


def log_signal(worker_id: str | None, name: str, hurry: bool, running: int) -> None:
    message = f"{name}: stopping now" if hurry else f"{name}: finishing what runs"
    logs.event(INFO, "shutdown", message, worker_id=worker_id, count=running)


def log_stop(worker_id: str, report: WorkerReport) -> None:
    logs.event(INFO, "stopped", str(report), worker_id=worker_id)
