"""A job, in the shapes that it has on its way: new, claimed, recorded, settled."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from holdfast.domain.states import State, as_states

NO_TIME = timedelta(0)


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is handed to a store. Due times are relative: the store's clock decides."""

    id: UUID
    name: str
    arguments: bytes
    id_is_chosen: bool = False  # by the caller: history may hold a job of this id already
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 5
    delay_seconds: float = 0.0
    run_at: datetime | None = None
    expires_in_seconds: float | None = None
    tenant: str | None = None
    correlation_id: str | None = None
    tags: tuple[str, ...] = ()
    idempotency_key: str | None = None
    body_hash: bytes | None = None
    key_kept_seconds: float = 0.0
    breaker: str | None = None
    trace: str | None = None

    def enqueued(self, job_id: UUID, now: datetime) -> Job:
        """The job as it was just recorded under this id (some stores give their own), with the
        times that this process reckons with."""
        wait, expires_in = self.delay_seconds, self.expires_in_seconds
        return Job(
            id=job_id,
            name=self.name,
            state=State.QUEUED,
            queue=self.queue,
            priority=self.priority,
            arguments=msgspec.json.decode(self.arguments),
            tenant=self.tenant,
            correlation_id=self.correlation_id,
            tags=self.tags,
            idempotency_key=self.idempotency_key,
            breaker=self.breaker,
            trace=self.trace,
            max_attempts=self.max_attempts,
            run_at=self.run_at or now + (timedelta(seconds=wait) if wait else NO_TIME),
            expires_at=None if expires_in is None else now + timedelta(seconds=expires_in),
            created_at=now,
        )


class Receipt(NamedTuple):
    """What a store answers for a new job: its id, or that of the job that holds its key."""

    id: UUID
    created: bool


class Lease(NamedTuple):
    job_id: UUID
    fence: int


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A job that this worker holds: what it needs to run it, and no more."""

    id: UUID
    name: str
    arguments: bytes
    queue: str
    priority: int
    tenant: str | None
    correlation_id: str | None
    attempt: int
    max_attempts: int
    fence: int
    snoozes: int
    releases: int
    expired: bool
    breaker: str | None = None
    trace: str | None = None
    capped: bool = False  # its queue runs no more than so many, over all workers
    probes: int = 0  # how often it was sent ahead, this time included; 0 if it is not now
    suspect: bool = False  # runs alone, and is not parked by its breaker

    @property
    def lease(self) -> Lease:
        return Lease(self.id, self.fence)

    @property
    def probe(self) -> bool:
        """Is it a probe: its breaker is open?"""
        return self.probes > 0


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How an attempt ends. The store writes it if the fence is still the job's, or not at all.

    `attempt_back` gives the attempt back (a release or a snooze); `crashed` says that the handler's
    own child process died. `outcome` names the row that the attempt leaves in the attempt history,
    or None where it leaves none.
    """

    job_id: UUID
    fence: int
    state: State
    delay_seconds: float = 0.0
    result: bytes | None = None
    error_code: str | None = None
    error_text: str | None = None
    attempt_back: bool = False
    snoozed: bool = False
    released: bool = False
    crashed: bool = False
    outcome: str | None = None


class Lost(NamedTuple):
    """A lease that is no longer held, and the state in which its job was found (None: gone)."""

    job_id: UUID
    fence: int
    state: State | None


class Standing(NamedTuple):
    state: State
    fence: int


class Reclaimed(NamedTuple):
    """A job whose lease ran out, or that expired while it waited, and what became of it.

    A suspect is one that may have killed its process: it waits for a process of its own.
    """

    job_id: UUID
    name: str
    queue: str
    tenant: str | None
    correlation_id: str | None
    attempt: int
    fence: int
    state: State
    worker: str | None
    error_code: str | None
    suspect: bool = False


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is recorded."""

    id: UUID
    name: str
    state: State
    queue: str
    priority: int
    arguments: Any
    max_attempts: int
    run_at: datetime
    created_at: datetime
    tenant: str | None = None
    correlation_id: str | None = None
    tags: tuple[str, ...] = ()
    idempotency_key: str | None = None
    attempts: int = 0
    snoozes: int = 0
    releases: int = 0
    crashes: int = 0
    fence: int = 0
    lease_owner: str | None = None
    lease_expires_at: datetime | None = None
    expires_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: Any = None
    result: Any = None
    error_code: str | None = None
    error_text: str | None = None
    requeued_from: UUID | None = None
    breaker: str | None = None  # what it depends on
    trace: str | None = None  # as the header `traceparent` writes it

    @property
    def last_error(self) -> dict[str, str] | None:
        if self.error_code is None:
            return None
        return {"code": self.error_code, "text": self.error_text or ""}


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that did not succeed, as the attempt history keeps it."""

    job_id: UUID
    attempt: int
    fence: int
    outcome: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    error_code: str | None
    error_text: str | None


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    states: tuple[State, ...] = ()  # or their names: ("queued", "running")
    queue: str | None = None
    name: str | None = None
    tenant: str | None = None
    tag: str | None = None
    correlation_id: str | None = None
    error_code: str | None = None
    fingerprint: str | None = None  # of `holdfast.domain.fingerprint`
    since: datetime | None = None  # ended at or after this time; created, if it has not ended
    until: datetime | None = None  # and before this one

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "states", as_states(self.states))

    def fits_end(self, job: Job) -> bool:
        """Does the job fit the filter's error code and times?"""
        when = job.finished_at or job.created_at
        return (
            self.error_code in (None, job.error_code)
            and (self.since is None or when >= self.since)
            and (self.until is None or when < self.until)
        )


class Page(NamedTuple):
    """Jobs, newest first. `after` is the id to go on from, None at the end."""

    jobs: Sequence[Job]
    after: UUID | None


class Count(NamedTuple):
    queue: str
    state: State
    jobs: int
