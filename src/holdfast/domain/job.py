"""The shapes of a job: new, claimed, settled, recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from holdfast.domain.states import State, as_states

if TYPE_CHECKING:
    # Python knows defaults from 3.13 on; type checkers know them here. `Job` is `Job[Any]`.
    from typing_extensions import TypeVar as TypeVarWithDefault

    R = TypeVarWithDefault("R", covariant=True, default=Any)
else:
    R = TypeVar("R", covariant=True)

NO_TIME = timedelta(0)
DEFAULT_TENANT: Final = "default"  # of jobs that name none


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job for a store to record. Due times are relative: the store's clock decides."""

    id: UUID
    name: str
    arguments: bytes
    id_is_chosen: bool = False  # by the caller, so the history may have it already
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 5
    delay_seconds: float = 0.0
    run_at: datetime | None = None
    expires_in_seconds: float | None = None
    tenant: str = DEFAULT_TENANT
    correlation_id: str | None = None
    tags: tuple[str, ...] = ()
    idempotency_key: str | None = None
    body_hash: bytes | None = None
    other_hashes: tuple[bytes, ...] = ()  # the same body's, under other secret keys
    key_kept_seconds: float = 0.0
    breaker: str | None = None
    trace: str | None = None
    parent_id: UUID | None = None  # the job whose handler enqueued it

    @property
    def named_tenant(self) -> str | None:
        """The tenant, unless it is the default one."""
        return None if self.tenant == DEFAULT_TENANT else self.tenant

    @property
    def hashes(self) -> tuple[bytes, ...]:
        """The hashes of its body, under each secret key."""
        return (self.body_hash or b"", *self.other_hashes)

    def has_body(self, body_hash: bytes) -> bool:
        """Whether this is the hash of its body."""
        return body_hash in self.hashes

    def enqueued(self, job_id: UUID, now: datetime) -> Job:
        """The job as just recorded, with times from this process' clock. Some stores choose the
        id."""
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
            parent_id=self.parent_id,
            max_attempts=self.max_attempts,
            run_at=self.run_at or now + (timedelta(seconds=wait) if wait else NO_TIME),
            expires_at=None if expires_in is None else now + timedelta(seconds=expires_in),
            created_at=now,
        )


class Receipt(NamedTuple):
    """A store's answer for a new job: its id, or that of the job that has its key."""

    id: UUID
    created: bool


class Lease(NamedTuple):
    """A worker's claim on a job. The fence rises with every lease of the job."""

    job_id: UUID
    fence: int


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """A job leased to this worker: what it needs to run it."""

    id: UUID
    name: str
    arguments: bytes
    queue: str
    priority: int
    tenant: str
    correlation_id: str | None
    attempt: int
    max_attempts: int
    fence: int
    snoozes: int
    releases: int
    expired: bool
    breaker: str | None = None
    trace: str | None = None
    capped: bool = False  # its queue has a cap
    # How often it failed, by error code, for codes with a limit; None if the store can't tell.
    failures: Mapping[str, int] | None = None
    probes: int = 0  # how often it was sent as a probe, including now; 0 if it is none now
    suspect: bool = False  # runs in quarantine, and its breaker does not park it
    waited_seconds: float | None = None  # from its due time to the claim; None if nobody can tell

    @property
    def lease(self) -> Lease:
        return Lease(self.id, self.fence)

    @property
    def probe(self) -> bool:
        return self.probes > 0


class Settlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How an attempt ends. The store writes it only if the fence is still the job's.

    A negative `delay_seconds` makes it due since then. `attempt_back` returns the attempt (a
    release or a snooze). `crashed` means that the handler's child process died. `outcome` is for
    the attempt history; None leaves no row there. `failures` replace those of the job; None leaves
    them as they are.
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
    failures: Mapping[str, int] | None = None


def cancel_reason(by: str | None, because: str | None) -> str | None:
    """What to record as the reason of a cancel; None if nobody gave one."""
    if by is None and because is None:
        return None
    return f"canceled{f' by {by}' if by else ''}{f': {because}' if because else ''}"


class Lost(NamedTuple):
    """A lost lease, and the state of its job now (None if it is gone)."""

    job_id: UUID
    fence: int
    state: State | None


class Standing(NamedTuple):
    state: State
    fence: int


class Reclaimed(NamedTuple):
    """A job whose lease expired, or that expired while it waited, and its state now.

    A suspect may have killed its process, and waits to run in quarantine.
    """

    job_id: UUID
    name: str
    queue: str
    tenant: str
    correlation_id: str | None
    attempt: int
    fence: int
    state: State
    worker: str | None
    error_code: str | None
    suspect: bool = False


class Job(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """A job, as recorded in the database.

    Its arguments and result are JSON values, as they are stored. `hf.result(job)` returns an `R`.
    If the job is `encrypted`, they and its progress are decrypted here; without the key, each is an
    `EncryptedValue`.
    """

    id: UUID
    name: str
    state: State
    queue: str
    priority: int
    arguments: Any
    max_attempts: int
    run_at: datetime
    created_at: datetime
    tenant: str = DEFAULT_TENANT
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
    breaker: str | None = None  # the key of its breaker
    trace: str | None = None  # in the format of the `traceparent` header
    parent_id: UUID | None = None  # the job whose handler enqueued it
    encrypted: bool = False  # whether its values are encrypted in the database

    @property
    def last_error(self) -> dict[str, str] | None:
        """The code and the text of the last error."""
        if self.error_code is None:
            return None
        return {"code": self.error_code, "text": self.error_text or ""}


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What changes about a job. Its arguments and its result are left out: they may be large."""

    job_id: UUID
    state: State
    attempts: int
    max_attempts: int
    run_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: Any = None
    error_code: str | None = None
    error_text: str | None = None

    @classmethod
    def of(cls, job: Job) -> JobStatus:
        return cls(
            job_id=job.id, **{name: getattr(job, name) for name in cls.__struct_fields__[1:]}
        )


class Watched(NamedTuple):
    """A job that someone watches. Its version differs whenever its status does; only the process
    that read it compares it."""

    version: str
    tenant: str
    name: str
    status: JobStatus


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that has ended: its lease, its worker, its times, and its error if it had one."""

    job_id: UUID
    attempt: int
    fence: int
    outcome: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    error_code: str | None
    error_text: str | None

    @property
    def lease(self) -> Lease:
        """The lease under which it ran."""
        return Lease(self.job_id, self.fence)


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to find: those that match all of these."""

    states: tuple[State, ...] = ()  # or names, like ("queued", "running")
    queue: str | None = None
    name: str | None = None
    tenant: str | None = None
    tag: str | None = None
    correlation_id: str | None = None
    parent_id: UUID | None = None
    error_code: str | None = None
    fingerprint: str | None = None  # of an ErrorGroup
    since: datetime | None = None  # ended at or after this time, or created if not ended
    until: datetime | None = None  # ended or created before this time

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "states", as_states(self.states))

    def fits_end(self, job: Job) -> bool:
        """Whether the job matches the error code and the times."""
        when = job.finished_at or job.created_at
        return (
            self.error_code in (None, job.error_code)
            and (self.since is None or when >= self.since)
            and (self.until is None or when < self.until)
        )


class Page(NamedTuple):
    """Jobs, newest first. Pass `after` to get the next page; it is None on the last one."""

    jobs: Sequence[Job]
    after: UUID | None


class Count(NamedTuple):
    """How many jobs of a queue are in a state."""

    queue: str
    state: State
    jobs: int


class CappedCount(NamedTuple):
    """How many jobs of a queue are in a state; with `is_capped`, there may be more."""

    queue: str
    state: State
    jobs: int
    is_capped: bool


class CappedCounts(NamedTuple):
    """With `is_capped`, some jobs were not counted, perhaps of queues that are not named here."""

    counts: Sequence[CappedCount]
    is_capped: bool

    @classmethod
    def of(cls, counts: Iterable[CappedCount], jobs_max: int) -> CappedCounts:
        """Cut waiting jobs that were counted beyond `jobs_max`, and leave out empty queues."""
        capped = [
            CappedCount(queue, state, jobs_max, True)
            if state is State.QUEUED and jobs > jobs_max
            else CappedCount(queue, state, jobs, is_capped)
            for queue, state, jobs, is_capped in counts
        ]
        return cls(
            sorted(each for each in capped if each.jobs), any(each.is_capped for each in capped)
        )
