"""Examples for the OpenAPI document, by type. Routes add examples of their own types."""

from __future__ import annotations

from typing import Any, Final

from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.job import Job
from holdfast.domain.queues import QueueStatus
from holdfast.domain.why import Why
from holdfast.domain.workers import WorkerStatus

JOB_ID: Final = "01a1eb4e-7c00-7000-8000-00000000002a"
WHEN: Final = "2026-11-17T09:30:00Z"

EXAMPLES: Final[dict[Any, Any]] = {
    Job: {
        "id": JOB_ID,
        "name": "resize",
        "state": "queued",
        "queue": "images",
        "priority": 0,
        "arguments": {"image": 17},
        "max_attempts": 5,
        "run_at": WHEN,
        "created_at": WHEN,
        "tenant": "acme",
    },
    Why: {
        "job_id": JOB_ID,
        "code": "queue_paused",
        "sentence": "queue images has been paused, by ann since 2026-11-17T09:30:00.000Z",
        "facts": {"state": "queued", "queue": "images"},
    },
    QueueStatus: {
        "name": "images",
        "ready": 12,
        "scheduled": 3,
        "parked": 0,
        "running": 4,
        "oldest_ready_seconds": 1.5,
        "paused_at": None,
        "paused_by": None,
        "paused_because": None,
        "running_max": 4,
    },
    BreakerStatus: {
        "key": "gateway",
        "failures": 5,
        "opened_at": WHEN,
        "opened_by": None,
        "opened_because": "TimeoutError: no answer within 10 s",
        "next_probe_at": "2026-11-17T09:30:10Z",
        "unparking": False,
        "times_opened": 1,
        "parked": 240,
    },
    WorkerStatus: {
        "id": "web-1:4711:9f3a",
        "host": "web-1",
        "pid": 4711,
        "version": "1.0.0",
        "app_version": "2026.11.17",
        "queues": {"images": 4, "*": None},
        "names": ["resize"],
        "concurrency": 10,
        "running": 4,
        "full_queues": ["images"],
        "messengers": [
            {
                "name": "rabbitmq",
                "address": "amqp://app:***@broker/",
                "live": False,
                "used": True,
                "fallback": "polling every 1 s",
                "since_seconds": 42.5,
                "because": "Connection refused",
                "heard_seconds": 51.0,
                "sent_seconds": None,
                "heard": 1200,
                "sent": 0,
                "dropped": 0,
            }
        ],
        "suspects_only": False,
        "lease_seconds": 30.0,
        "started_at": WHEN,
        "seen_at": WHEN,
        "unseen_seconds": 1.2,
        "lost": False,
    },
}
