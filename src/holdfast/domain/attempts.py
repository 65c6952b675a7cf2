"""The attempts of a job in one line, the one in progress included."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.domain.job import Attempt, Job
from holdfast.domain.states import State


class JobAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt: its fence, worker, times, and error if there was one.

    An attempt in progress has the outcome `running`. If a Python worker releases or snoozes a job,
    that leaves no attempt; over HTTP, it leaves one with the outcome `released`.
    """

    attempt: int
    fence: int
    outcome: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime | None
    error_code: str | None = None
    error_text: str | None = None


def all_attempts(job: Job, ended: Sequence[Attempt]) -> list[JobAttempt]:
    """The attempts that have ended, and the one in progress if there was one when the job was read,
    which was before them."""
    found = [_ended(attempt) for attempt in ended]
    if job.state is State.RUNNING and all(each.fence != job.fence for each in found):
        found.append(_running(job))
    return found


def _ended(attempt: Attempt) -> JobAttempt:
    values = msgspec.structs.asdict(attempt)
    del values["job_id"]
    return JobAttempt(**values)


def _running(job: Job) -> JobAttempt:
    return JobAttempt(
        attempt=job.attempts,
        fence=job.fence,
        outcome="running",
        worker=job.lease_owner,
        started_at=job.started_at,
        ended_at=None,
    )
