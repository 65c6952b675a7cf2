"""Messages that a broker keeps, beside the jobs that they name."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from holdfast.domain.job import Job
from holdfast.domain.states import State


class MessageStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A message on the `queue` or among the dead letters (`dead`) of a broker, and its job's row.

    `number` is the broker's. `job_id` is None if the message names no job, and `job_state` if no
    job has that id. `reason` is why the broker, or a worker, made it a dead letter.
    """

    messenger: str  # its address, without a password
    box: str
    number: int
    state: str  # active, scheduled or deferred
    job_id: UUID | None = None
    job_state: State | None = None
    job_attempts: int | None = None
    job_run_at: datetime | None = None
    attempt: int | None = None  # that the message is about
    deliveries: int = 0
    sent_at: datetime | None = None
    due_at: datetime | None = None
    correlation_id: str | None = None
    reason: str | None = None
    description: str | None = None


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a dead letter: sent again as a new message, or left, and why."""

    message: MessageStatus
    sent: bool
    because: str


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair did, or would do: dead letters removed, jobs announced by a new message.

    With `is_whole` False, there were too many messages or jobs to look at all of them.
    """

    removed: tuple[MessageStatus, ...] = ()
    announced: tuple[UUID, ...] = ()
    is_whole: bool = True


def is_over(job: Job | None) -> bool:
    """Whether nothing is left to do that a message could announce."""
    return job is None or job.state.ended


def why_not_replayed(job_id: UUID | None, job: Job | None) -> str | None:
    """Why a dead letter is not sent again; None if it is."""
    if job_id is None:
        return "it names no job"
    if job is None:
        return "no job has its ID"
    if job.state is State.RUNNING:
        return "its job is running"
    if job.state.ended:
        return f"its job has ended ({job.state})"
    return None
