"""/v1/overview and /v1/doctor: the state of everything, and the health of the database."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

import msgspec
from starlette.responses import Response

from holdfast.api.answers import answer
from holdfast.api.callers import Router
from holdfast.api.examples import EXAMPLES, JOB_ID, WHEN
from holdfast.api.openapi import describes
from holdfast.api.service import Service
from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.diagnosis.findings import Finding, Severity
from holdfast.domain.job import Count, Job
from holdfast.domain.overview import Latency
from holdfast.domain.queues import QueueStatus
from holdfast.domain.states import State
from holdfast.domain.workers import WorkerStatus


class EndedCount(msgspec.Struct, frozen=True):
    """How many jobs of a queue ended in a state."""

    queue: str
    state: State
    jobs: int


class FailedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of a dead or failed job."""

    id: UUID
    name: str
    queue: str
    tenant: str
    state: State
    finished_at: datetime | None
    error_code: str | None
    error_text: str | None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, workers and open breakers, ended jobs with their latency in seconds, and the newest
    failures. `untold` says what this database can't report."""

    now: datetime
    queues: list[QueueStatus]
    workers: list[WorkerStatus] | None
    breakers: list[BreakerStatus]
    ended: list[EndedCount]
    ended_last_minute: list[EndedCount]
    latency: Latency | None
    latency_by_queue: dict[str, Latency]
    failures: list[FailedJob]
    untold: str | None


class Examination(msgspec.Struct, frozen=True):
    """Findings about the database and its workers, worst first, and the worst severity."""

    database: str
    severity: Severity
    findings: list[Finding]


EXAMPLES[Overview] = {
    "now": WHEN,
    "queues": [EXAMPLES[QueueStatus]],
    "workers": [EXAMPLES[WorkerStatus]],
    "breakers": [EXAMPLES[BreakerStatus]],
    "ended": [{"queue": "images", "state": "succeeded", "jobs": 1200}],
    "ended_last_minute": [{"queue": "images", "state": "succeeded", "jobs": 31}],
    "latency": {
        "wait": {"p50": 0.01, "p95": 0.4},
        "run": {"p50": 0.8, "p95": 2.1},
        "jobs": 500,
    },
    "latency_by_queue": {},
    "failures": [
        {
            "id": JOB_ID,
            "name": "resize",
            "queue": "images",
            "tenant": "acme",
            "state": "dead",
            "finished_at": WHEN,
            "error_code": "ValueError",
            "error_text": "ValueError: image 17 is empty",
        }
    ],
    "untold": None,
}
EXAMPLES[Examination] = {
    "database": "postgresql://db.example.com/shop",
    "severity": "warning",
    "findings": [
        {
            "code": "paused",
            "severity": "warning",
            "sentence": "queue images has been paused for 3 d",
            "advice": "resume it if the pause is no longer needed",
            "command": "holdfast queues resume --app MODULE:NAME images",
            "facts": {"queue": "images"},
        }
    ],
}


def routes(service: Service) -> Router:
    router = Router(prefix="/v1", tags=["Health"])
    hf = service.hf

    @router.get("/overview", **describes("read", {200: Overview}, across=True))
    async def get_overview() -> Response:
        """Get queues, workers, open breakers, latency and failures at a glance."""
        seen = await hf.overview()
        return answer(
            Overview(
                now=seen.now,
                queues=list(seen.queues),
                workers=None if seen.workers is None else list(seen.workers),
                breakers=list(seen.breakers),
                ended=_counted(seen.ended),
                ended_last_minute=_counted(seen.ended_last_minute),
                latency=seen.latency,
                latency_by_queue=seen.latency_by_queue,
                failures=[_failed(job) for job in seen.failures],
                untold=seen.untold,
            )
        )

    @router.get("/doctor", **describes("read", {200: Examination}, across=True))
    async def examine_database() -> Response:
        """Check the health of the database and its workers. Changes nothing."""
        found = await hf.examine()
        return answer(Examination(found.database, found.severity, list(found.findings)))

    return router


def _counted(counts: Iterable[Count]) -> list[EndedCount]:
    return [EndedCount(each.queue, each.state, each.jobs) for each in counts]


def _failed(job: Job) -> FailedJob:
    return FailedJob(**{name: getattr(job, name) for name in FailedJob.__struct_fields__})
