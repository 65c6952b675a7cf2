"""Worker events: each goes to logs, metrics and traces.

What the application set up to observe may raise. That never fails a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from logging import DEBUG, ERROR, INFO, WARNING

from holdfast.domain.job import Claimed, Reclaimed, Settlement
from holdfast.domain.states import State
from holdfast.observability import logs, tracing
from holdfast.observability.metrics import Child, Metrics
from holdfast.runtime.seam import Seam
from holdfast.version import VERSION
from holdfast.worker.report import WorkerReport
from holdfast.worker.run import Run
from holdfast.worker.setup import Setup

NAMES_LISTED_MAX = 20


class Events:
    """One method per event. A supervisor has no `worker_id`."""

    def __init__(
        self, worker_id: str | None, metrics: Metrics, seam: Seam, *, log_errors: bool = False
    ) -> None:
        self._worker_id = worker_id
        self._metrics = metrics
        self._seam = seam
        self._attempts = tracing.Attempts(worker_id or "")
        self._log_errors = log_errors
        self._starts_are_logged = False
        self._starts_are_traced = False

    def worker_started(self, setup: Setup, database: str) -> None:
        slots = setup.slots
        logs.event(
            INFO,
            "worker_started",
            worker_id=self._worker_id,
            concurrency=slots.concurrency,
            queues="all" if slots.queues is None else _listed(slots.queues),
            database=database,
            version=VERSION,
            app_version=setup.settings.app_version or None,
            jobs=_listed(setup.names),
        )

    def claimed(self, jobs: Sequence[Claimed]) -> None:
        self._metrics.throughput.claimed(jobs)
        self._starts_are_logged = logs.enabled(INFO)
        self._starts_are_traced = tracing.is_wanted()
        if self._starts_are_logged:
            logs.event(DEBUG, "claim", worker_id=self._worker_id, count=len(jobs))

    def started(self, run: Run) -> None:
        """Call this in the handler's task, so that the span is the current one there."""
        if self._starts_are_traced:
            with suppress(Exception):
                run.span = self._attempts.start(run.job)
        if self._starts_are_logged:
            job = run.job
            logs.event(
                INFO,
                "start",
                "a probe: its breaker is open" if job.probe else "",
                job_id=job.id,
                name=job.name,
                queue=job.queue,
                tenant=job.tenant,
                attempt=job.attempt,
                max_attempts=job.max_attempts,
                fence=job.fence,
                worker_id=self._worker_id,
                correlation_id=job.correlation_id,
                breaker=job.breaker,
            )

    def settled(self, run: Run, settlement: Settlement, outcome: str) -> None:
        self._metrics.throughput.settled(run.job.queue, outcome, run.duration_ms / 1000)
        if self._metrics.counting:
            lag_seconds = self._seam.monotonic() - run.ended_monotonic
            self._metrics.settled(run.job, settlement, outcome, run.duration_ms, lag_seconds)
        if run.span is not None:
            with suppress(Exception):
                self._attempts.end(run.span, run.job, settlement, outcome)
            run.span = None
        if logs.enabled(level_of(outcome)):
            log_settled(
                run.job,
                settlement,
                outcome,
                worker_id=self._worker_id,
                duration_ms=round(run.duration_ms, 2),
                error_text=self._shown_text(settlement),
                traceback=run.traceback,
            )

    def lost(self, run: Run, state: State | None) -> None:
        """The lease of a canceled job is lost on purpose."""
        canceled = state is State.CANCELED
        if canceled:
            self._metrics.throughput.settled(run.job.queue, State.CANCELED, None)
        if self._metrics.counting:
            self._metrics.lost(run.job, canceled)
        if run.span is not None:
            with suppress(Exception):
                self._attempts.lose(run.span, canceled)
            run.span = None
        job = run.job
        level = INFO if canceled else WARNING
        logs.event(
            level,
            "lost",
            "the job was canceled; stopping the handler"
            if canceled
            else "the lease is lost; stopping the handler and writing nothing",
            job_id=job.id,
            name=job.name,
            queue=job.queue,
            state=state,
            tenant=job.tenant,
            attempt=job.attempt,
            fence=job.fence,
            worker_id=self._worker_id,
            correlation_id=job.correlation_id,
        )

    def hung(self, run: Run, seconds: float) -> None:
        if self._metrics.counting:
            self._metrics.hung(run.job)
        job = run.job
        logs.event(
            WARNING,
            "hung",
            f"the handler should have stopped, but still runs {seconds:.1f} s after its start; its"
            " slot stays taken",
            job_id=job.id,
            name=job.name,
            queue=job.queue,
            attempt=job.attempt,
            fence=job.fence,
            worker_id=self._worker_id,
            duration_ms=round(seconds * 1000, 2),
            correlation_id=job.correlation_id,
        )

    def reclaimed(self, jobs: Sequence[Reclaimed]) -> None:
        """The reclaim is already logged."""
        for job in jobs:
            outcome = job.state if job.state.ended else "retried"
            self._metrics.throughput.settled(job.queue, outcome, None)
        if self._metrics.counting:
            self._metrics.reclaimed(jobs)

    def failed_after_completing(self, job: Claimed, error_code: str) -> None:
        logs.event(
            WARNING,
            "error_after_completing",
            "the handler failed after its job succeeded; the job stays succeeded",
            job_id=job.id,
            name=job.name,
            worker_id=self._worker_id,
            error_code=error_code,
        )

    def unjudged(self, job: Claimed, error_name: str) -> None:
        logs.event(
            ERROR,
            "unjudged",
            f"could not classify the error ({error_name}); the job failed",
            job_id=job.id,
            name=job.name,
            worker_id=self._worker_id,
            error_code="UNJUDGED",
        )

    def child_started(self, kind: Child, worker_id: str, process_id: int, what: str) -> None:
        if self._metrics.counting:
            self._metrics.child_started(kind)
        logs.event(INFO, "child_started", what, worker_id=worker_id, process_id=process_id)

    def child_ended(
        self, kind: Child, worker_id: str, process_id: int, what: str, code: int, died: bool
    ) -> None:
        if died and self._metrics.counting:
            self._metrics.child_died(kind)
        level = WARNING if code else INFO
        logs.event(level, "child_ended", what, worker_id=worker_id, process_id=process_id)

    def signaled(self, name: str, hurry: bool, running: int) -> None:
        message = f"{name}: stopping now" if hurry else f"{name}: finishing running jobs"
        logs.event(INFO, "shutdown", message, worker_id=self._worker_id, count=running)

    def stopped(self, report: WorkerReport) -> None:
        logs.event(INFO, "stopped", str(report), worker_id=self._worker_id)

    def _shown_text(self, settlement: Settlement) -> str | None:
        """Error texts may contain personal data: they are logged on request only."""
        if not self._log_errors or settlement.error_text is None:
            return None
        return settlement.error_text.partition("\n")[0]  # the rest says where: see the traceback


def level_of(outcome: str) -> int:
    return WARNING if outcome in ("retried", "handed_back", "failed", "dead") else INFO


def log_settled(
    job: Claimed,
    settlement: Settlement,
    outcome: str,
    *,
    worker_id: str | None = None,
    duration_ms: float | None = None,
    error_text: str | None = None,
    traceback: str | None = None,
) -> None:
    delayed = outcome in ("retried", "snoozed", "handed_back")
    message = "" if outcome in ("retried", "parked") else outcome
    if outcome == "handed_back":
        message = settlement.error_text or ""
    logs.event(
        level_of(outcome),
        # What people search for during an incident has its own event.
        "retry"
        if outcome == "retried"
        else "parked"
        if outcome == "parked"
        else "handed_back"
        if outcome == "handed_back"
        else "settle",
        message,
        job_id=job.id,
        name=job.name,
        queue=job.queue,
        state=settlement.state,
        tenant=job.tenant,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        fence=job.fence,
        worker_id=worker_id,
        duration_ms=duration_ms,
        delay_seconds=round(settlement.delay_seconds, 3) if delayed else None,
        error_code=settlement.error_code,
        error_text=error_text,
        correlation_id=job.correlation_id,
        breaker=job.breaker,
        traceback=traceback,
    )


def _listed(names: Sequence[str]) -> str:
    shown = ",".join(names[:NAMES_LISTED_MAX])
    more = len(names) - NAMES_LISTED_MAX
    return f"{shown} and {more} more" if more > 0 else shown
