"""The messages between workers and the desk. Times are durations, so clocks need not agree."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta

from holdfast.api.examples import EXAMPLES, JOB_ID, WHEN
from holdfast.api.fields import Name, RequestId, Seconds, WorkerName
from holdfast.api.leases.lease_ids import CHARS
from holdfast.api.limits import (
    LEASE_SECONDS_MAX,
    LEASE_SECONDS_MIN,
    LEASES_MAX,
    NAMES_MAX,
    RENEWALS_MAX,
    WAIT_SECONDS_MAX,
)
from holdfast.domain.limits import ERROR_CODE_CHARS_MAX, ERROR_TEXT_CHARS_MAX
from holdfast.domain.states import State

Names = Annotated[list[Name], Meta(min_length=1, max_length=NAMES_MAX)]
LeaseSeconds = Annotated[float, Meta(ge=LEASE_SECONDS_MIN, le=LEASE_SECONDS_MAX)]
LeaseId = Annotated[str, Meta(min_length=1, max_length=2 * CHARS)]
ErrorText = Annotated[str, Meta(max_length=ERROR_TEXT_CHARS_MAX)]


class LeaseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker's request for up to `max` jobs: in these queues (default: all) and with these names
    (default: all remote jobs).

    If the response is lost, send the request again with the same `request_id`: the response has the
    same leases. `worker` is a name for people to read.
    """

    queues: Names | None = None
    names: Names | None = None
    max: Annotated[int, Meta(ge=1, le=LEASES_MAX)] = 1
    ttl_seconds: LeaseSeconds | None = None
    wait_seconds: Annotated[float, Meta(ge=0, le=WAIT_SECONDS_MAX)] = 0.0
    request_id: RequestId | None = None
    worker: WorkerName | None = None


class JobLease(msgspec.Struct, frozen=True, kw_only=True):
    """A job to run now. Renew the lease after `renew_after` seconds; after `expires_in` seconds,
    another worker may get the job."""

    lease_id: str
    job_id: UUID
    name: str
    queue: str
    arguments: msgspec.Raw
    attempt: int
    max_attempts: int
    tenant: str
    correlation_id: str
    trace: str | None
    timeout_seconds: float | None
    expires_in: float
    renew_after: float


class Leases(msgspec.Struct, frozen=True):
    """The jobs that a worker has leased."""

    leases: list[JobLease]


class RenewedLease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A lease to renew, and optionally the progress of its job, as any JSON value."""

    lease_id: LeaseId
    progress: Any = msgspec.UNSET


class Renewal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Leases to renew."""

    leases: Annotated[list[RenewedLease], Meta(min_length=1, max_length=RENEWALS_MAX)]
    ttl_seconds: LeaseSeconds | None = None


class LeaseStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """`ok`: the lease was renewed. `lost`: another worker may have the job. `cancel_requested`: the
    job was canceled. After `lost` or `cancel_requested`, stop working on the job: its outcome is no
    longer accepted."""

    lease_id: str
    status: Literal["ok", "lost", "cancel_requested"]
    expires_in: float | None = None
    renew_after: float | None = None


class Renewed(msgspec.Struct, frozen=True):
    """The status of each lease, in the order of the request."""

    leases: list[LeaseStatus]


class _Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="status"):
    pass


class SucceededOutcome(_Outcome, frozen=True, tag="succeeded"):
    """The job is done. The result is a JSON value of the type that the job declares, or any if it
    declares none."""

    result: Any = None


class FailedOutcome(_Outcome, frozen=True, tag="failed"):
    """The attempt failed. With `permanent`, the job is not retried. If `permanent` is false, it is
    retried; if omitted, the job's declaration decides by the code."""

    code: Annotated[str, Meta(min_length=1, max_length=ERROR_CODE_CHARS_MAX)]
    text: ErrorText = ""
    permanent: bool | None = None
    retry_after_seconds: Seconds | None = None


class SnoozedOutcome(_Outcome, frozen=True, tag="snoozed"):
    """Run the job again after this many seconds, without using up an attempt."""

    seconds: Seconds
    text: ErrorText = ""


class ReleasedOutcome(_Outcome, frozen=True, tag="released"):
    """The worker can't run the job now, for example because it is stopping. The job is due again
    immediately, and gets its attempt back."""


LeaseOutcome = SucceededOutcome | FailedOutcome | SnoozedOutcome | ReleasedOutcome


class RecordedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the job after the attempt, and when it is due again, if it is queued."""

    job_id: UUID
    state: State
    attempt: int
    run_at: datetime | None


_LEASE_ID = "AaHrTnwAcACAAAAAAAAAKgAAAAAAAAABz1V7Hq2dKp0m3l8Qw4ZyXfTt"
EXAMPLES.update(
    {
        LeaseRequest: {
            "names": ["resize"],
            "max": 10,
            "wait_seconds": 50,
            "request_id": "c7f3-1",
            "worker": "render-3",
        },
        Leases: {
            "leases": [
                {
                    "lease_id": _LEASE_ID,
                    "job_id": JOB_ID,
                    "name": "resize",
                    "queue": "images",
                    "arguments": {"image": 17},
                    "attempt": 1,
                    "max_attempts": 5,
                    "tenant": "acme",
                    "correlation_id": "order-1001",
                    "trace": None,
                    "timeout_seconds": 60.0,
                    "expires_in": 30.0,
                    "renew_after": 10.0,
                }
            ]
        },
        Renewal: {"leases": [{"lease_id": _LEASE_ID, "progress": {"percent": 40}}]},
        Renewed: {
            "leases": [
                {"lease_id": _LEASE_ID, "status": "ok", "expires_in": 30.0, "renew_after": 10.0}
            ]
        },
        LeaseOutcome: {"status": "succeeded", "result": {"width": 100}},
        RecordedOutcome: {"job_id": JOB_ID, "state": "queued", "attempt": 1, "run_at": WHEN},
    }
)
