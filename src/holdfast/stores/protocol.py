"""The store protocol: a core that every store has, and capabilities that a store may leave out.
Code that needs a capability asks for it with `capability` or `require`, once and not for each job.

Every write after a claim names the lease's fence, and changes nothing if the job has another one.
Every claim, settlement, reclaim and cancel raises the fence. The store's clock decides what is due
and which leases have expired, so callers pass durations and never times.

A store raises `StoreUnavailable` if a retry may help, and `StoreRefused` if it won't.
Every store passes the suite in `holdfast.testing.conformance`, for the capabilities it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from holdfast.domain.breakers import BreakerStatus, Parking, Strike
from holdfast.domain.diagnosis.vitals import Patience, Vitals
from holdfast.domain.errors import NotInThisStore
from holdfast.domain.job import (
    Attempt,
    CappedCounts,
    Claimed,
    Count,
    Filter,
    Job,
    Lease,
    Lost,
    NewJob,
    Page,
    Receipt,
    Reclaimed,
    Settlement,
    Standing,
    Watched,
)
from holdfast.domain.overview import Pulse
from holdfast.domain.queues import QueueStatus
from holdfast.domain.why import Circumstances
from holdfast.domain.workers import Load, NewWorker, WorkerStatus
from holdfast.transactions.drivers import Driver
from holdfast.wakeups.protocol import Heard, Listener

C = TypeVar("C")

AfterCommit = Callable[[Callable[[], None]], None]  # takes a function to call after the commit


class Claim(NamedTuple):
    """A request for at most `limit` jobs with these names, from these queues (None: from all queues
    except `except_queues`). `alone` means that each job will run alone in its process. `job_id`
    limits the search to this job, which is in one of the queues. `tenant` limits it to the jobs of
    one tenant, which may have to be looked for among those of others. Renewals may be for as little
    as `renewal_seconds_min`, by default `lease_seconds`."""

    worker: str
    limit: int
    lease_seconds: float
    names: Sequence[str]
    queues: Sequence[str] | None = None
    except_queues: Sequence[str] = ()
    alone: bool = False
    job_id: UUID | None = None
    tenant: str | None = None
    renewal_seconds_min: float | None = None


class Canceled(NamedTuple):
    """A job that a cancel ended, and whether it was running at that moment."""

    job_id: UUID
    was_running: bool


class Enrolled(Protocol):
    """The verbs that work on a caller's connection, in its open transaction.

    They translate the driver's errors, and leave the transaction usable where the database allows.
    """

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]: ...

    async def get(self, job_id: UUID) -> Job | None: ...

    async def settle(self, settlement: Settlement) -> bool:
        """Write the end of the attempt. False means that the lease is lost: roll the transaction
        back."""

    async def cancel(
        self, job_ids: Sequence[UUID], *, by: str | None = None, because: str | None = None
    ) -> Sequence[Canceled]: ...

    async def retry(self, job_id: UUID) -> bool: ...

    async def requeue(
        self, job_id: UUID, new_id: UUID, *, arguments: bytes | None = None, once: bool = False
    ) -> bool: ...

    async def requeued(self, job_ids: Sequence[UUID]) -> Mapping[UUID, UUID]: ...

    async def wake(self, queue: str) -> None:
        """Wake the workers that serve this queue, if and when the transaction commits."""


@runtime_checkable
class Pooled(Protocol):
    """A store that has a pool of connections."""

    @property
    def pool_use(self) -> tuple[int, int]:
        """How many connections are in use, and the most there can be. Safe from any thread."""


class Store(Protocol):
    """The core that every store has.

    What it says about suspects, paused queues, breakers and the like applies only to stores with
    that capability.
    """

    async def open(self) -> None:
        """Connect and check the schema. Raise SchemaMismatch if this code can't run on it."""

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """Close without waiting; the store can't be used again. If connections belong to a running
        event loop, call this on that loop."""

    async def migrate(self) -> Sequence[str]:
        """Bring the schema to this code's version; return the names of the steps taken."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        """Record all jobs or none, and wake the workers. Return one receipt per job, in order."""

    async def claim(self, request: Claim) -> Sequence[Claimed]:
        """Lease due jobs, ordered by priority (lower is better), due time and id. Leave out
        suspects, paused queues, jobs beyond a queue's cap and jobs whose breaker is open."""

    async def claim_by_id(self, job_id: UUID, worker: str, lease_seconds: float) -> Claimed | None:
        """Lease this job if it is queued, due and not a suspect, its queue is neither paused nor
        full, and its breaker is not open."""

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lost]:
        """Extend the leases, skipping locked rows; return the lost ones."""

    async def release_strays(self, worker: str, known: Sequence[Lease], limit: int) -> int:
        """Release the jobs leased to this worker that it doesn't know: the answer to their claim
        was lost. They never started, so each gets its attempt back, and this is not counted as a
        release. Skip locked rows, and wake the workers. Return how many there were; if that equals
        `limit`, there may be more."""

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Lost]:
        """Write the settlements whose leases still hold, in one transaction; return the lost
        ones."""

    async def reclaim(
        self, limit: int, dead_worker: str | None = None, reason: str = ""
    ) -> Sequence[Reclaimed]:
        """Reclaim expired leases, and cancel waiting jobs past their expiry with EXPIRED, in one
        bounded and idempotent step. Skip locked rows.

        With `dead_worker`, reclaim only the leases of that worker, expired or not; `reason` says
        how it died.

        Skip jobs that the database refuses to end. Raise StoreRefused if there are no others.

        A lost lease is a crash. A job that ran alone in its process is dead at max_attempts. One
        that ran beside others may be innocent: queue it again, and give its attempt back if that
        was the last. It becomes a suspect when the next crash could end it, or after
        CRASHES_IN_COMPANY_MAX crashes."""

    async def cancel(
        self,
        job_ids: Sequence[UUID],
        *,
        waiting_only: bool = False,
        by: str | None = None,
        because: str | None = None,
    ) -> Sequence[Canceled]:
        """Cancel these jobs if they are queued or, unless `waiting_only`, running. Notify the
        workers that run them. Record who did it and why as the error's text."""

    async def retry(self, job_id: UUID) -> bool:
        """Make a queued job due now; False if it is not queued."""

    async def requeue(
        self, job_id: UUID, new_id: UUID, *, arguments: bytes | None = None, once: bool = False
    ) -> bool:
        """Enqueue an ended job again as a new job that names the old one but not its key; False if
        it has not ended.

        `arguments` replace the old ones. With `once`, also False if it was requeued before: of
        several concurrent calls, one gets True."""

    async def get(self, job_id: UUID) -> Job | None: ...

    async def page(self, filter: Filter, limit: int, after: UUID | None = None) -> Page:
        """Return matching jobs, live and ended, newest first, starting after `after`. The caller
        checks the filter's fingerprint.

        A call looks at a bounded number of jobs, so a page may hold fewer than `limit` jobs, or
        none, and still say where the next page starts."""

    async def counts(self, tenant: str | None = None) -> Sequence[Count]: ...

    async def now(self) -> datetime:
        """The time of the store's clock."""

    async def queues(self) -> Sequence[QueueStatus]:
        """All queues that have live jobs, or that an operator paused or capped, by name."""

    async def awaited(
        self, names: Sequence[str], queues: Sequence[str] | None, within_seconds: float
    ) -> bool:
        """Is any such job running, or queued and due within this time? Jobs in a queue that is
        paused or capped at 0 don't count: nobody knows when that ends."""


@runtime_checkable
class Transactions(Protocol):
    """Writes of the application and its jobs in one transaction."""

    def connection(self, *, read_only: bool = False) -> AbstractAsyncContextManager[Any]:
        """Lend a connection, of a kind that `holdfast.transactions.drivers` knows, for a
        transaction; a `read_only` one blocks nobody."""

    def enrol(self, driver: Driver, after_commit: AfterCommit | None = None) -> Enrolled:
        """Work on a caller's connection; the store itself need not be open. Unless the commit
        itself wakes the workers, `after_commit` gets a function that does."""

    def writing(self) -> AbstractContextManager[None]:
        """Mark this task or thread as a possible holder of the store's only write lock."""

    async def standing(self, job_id: UUID) -> Standing | None:
        """The job's state and fence, after waiting for a transaction that is settling it."""


@runtime_checkable
class Suspects(Protocol):
    """Jobs that may have killed their process, and now run alone."""

    async def claim_suspect(self, request: Claim) -> Claimed | None:
        """Lease the first due suspect of a queue that is not paused, to run alone in its process.
        Breakers don't park suspects."""

    async def suspects(self, names: Sequence[str], queues: Sequence[str] | None) -> int:
        """Count the due suspects, up to SUSPECTS_COUNTED_MAX."""


@runtime_checkable
class QueueControl(Protocol):
    """Queues that operators pause and cap."""

    async def pause(self, queue: str, by: str | None, because: str | None) -> bool:
        """Stop claims from this queue; False, and no change, if it is already paused."""

    async def is_paused(self, queue: str) -> bool: ...

    async def resume(self, queue: str) -> bool:
        """Allow claims from this queue again, and wake the workers; False if it is not paused."""

    async def cap(self, queue: str, running_max: int | None) -> None:
        """Limit how many of its jobs run at once, over all workers; None removes the cap."""


@runtime_checkable
class Breakers(Protocol):
    """Failures, counted for each thing that jobs depend on, and jobs that wait while it is down."""

    async def strike(self, strikes: Sequence[Strike]) -> Sequence[bool]:
        """Count failures against their breakers, in order, and note the successes that came with
        them. True for each whose breaker was already open: its job gets its attempt back."""

    async def open_breaker(self, key: str, by: str | None, because: str | None) -> None:
        """Open it by hand: its jobs are parked, without probes, until it is closed."""

    async def close_breaker(self, key: str, *, forget: bool = False, by_hand: bool = True) -> bool:
        """Close it and start counting from zero; False if it was not open. `park` unparks its jobs.

        With `forget`, delete everything known about it; False if nothing was. Without `by_hand`, a
        success closes it: its failures stay, and a breaker that was opened by hand stays open."""

    async def park(self, limit: int) -> Parking:
        """Do one bounded step: park due jobs whose breaker is open, unpark those whose breaker has
        closed, and wake the workers for these. If `moved` equals `limit`, more is left."""

    async def claim_probes(self, request: Claim) -> Sequence[Claimed]:
        """Lease one parked job for each breaker whose probe is due, and schedule the next probe.
        Leave out queues that are paused or full. Of the jobs with the lowest fence, which started
        least often, take alternately the newest and the first by the last 32 bits of its id, which
        are random."""

    async def breakers(self) -> Sequence[BreakerStatus]:
        """All known breakers, open ones first, then by key; at most BREAKERS_LISTED_MAX."""


@runtime_checkable
class WorkerPresence(Protocol):
    """Workers that send heartbeats."""

    async def register(self, worker: NewWorker, load: Load) -> None:
        """Add this worker."""

    async def heartbeat(self, worker_id: str, load: Load) -> bool:
        """Note that this worker is alive; False if it is unknown, or was deleted."""

    async def deregister(self, worker_id: str) -> None:
        """Remove this worker, which has stopped."""

    async def workers(self) -> Sequence[WorkerStatus]:
        """Workers that are alive or lost, latest heartbeat first; at most WORKERS_LISTED_MAX."""


@runtime_checkable
class Diagnosis(Protocol):
    """The health of the database, and what its jobs wait for."""

    async def circumstances(self, job_id: UUID) -> Circumstances | None:
        """What may keep this job from running, in one snapshot."""

    async def vitals(self, patience: Patience) -> Vitals:
        """Examine the database in bounded steps that change nothing; the store need not be open.
        Raise if the database can't be reached; leave out, and name, a part that can't be read."""

    async def pulse(self, newest_max: int) -> Pulse:
        """How many jobs have ended, and how long the newest took. Cheap enough for every second."""

    async def unknown_names(
        self, names: Sequence[str], queues: Sequence[str] | None
    ) -> Sequence[str]:
        """Some names of due jobs other than these, from a bounded look at the queues."""


@runtime_checkable
class Requeues(Protocol):
    """What a store with a history and an enrolled connection have in common."""

    async def requeued(self, job_ids: Sequence[UUID]) -> Mapping[UUID, UUID]: ...


@runtime_checkable
class History(Protocol):
    """What is kept for a time besides live jobs: attempts, requeues, ended jobs."""

    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        """The attempts that have ended, oldest first. A successful one is kept as long as its job;
        a release or a snooze leaves none."""

    async def requeued(self, job_ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
        """Those of these jobs that were requeued, each with the newest job made from it. Known for
        as long as the old job is kept."""

    async def tidy(self, limit: int) -> int:
        """Do one bounded step of upkeep: delete history, attempts and idempotency keys whose
        retention is over, and workers lost long ago; move ended jobs out of the live ones; make
        room for new history. Return how many rows there were to do; fewer than `limit` means that
        all is done.

        Skip ended jobs that the database refuses to move. Raise StoreRefused if only such jobs are
        left."""


@runtime_checkable
class ProgressNotes(Protocol):
    """Progress of running jobs."""

    async def progress(self, lease: Lease, progress: bytes) -> bool:
        """Write the progress; False if the lease is lost."""


@runtime_checkable
class RemoteLeases(Protocol):
    """Leases of workers that show nothing but the lease: what it is for is read from the job."""

    async def leased(self, lease: Lease) -> Claimed | None:
        """The job as its claim returned it; None if the lease is lost."""

    async def leases_of(self, workers: Sequence[str]) -> Mapping[str, Sequence[Claimed]]:
        """The leased jobs of those of these workers that have any, expired leases included."""

    async def assign(self, owners: Mapping[Lease, str]) -> Sequence[Lease]:
        """Record which worker has each lease from now on; return the lost leases."""


@runtime_checkable
class Watching(Protocol):
    """Many jobs at a glance."""

    async def changed(self, known: Mapping[UUID, str]) -> Mapping[UUID, Watched | None]:
        """Those of these jobs, live and ended, whose version is not the known one, in one
        statement; None for a job that does not exist. No job has an empty version."""


@runtime_checkable
class CountsUpTo(Protocol):
    """Counts that take no longer when millions of jobs are waiting."""

    async def counts_up_to(self, jobs_max: int, tenant: str | None = None) -> CappedCounts:
        """Like `counts`, but stop at `jobs_max` waiting jobs of a queue. For a tenant, look at
        COUNTS_LOOK_MAX jobs at most where no index leads to its own."""


@runtime_checkable
class Listening(Protocol):
    """Wake-ups."""

    async def listen(self, heard: Heard) -> Listener | None:
        """Call `heard`, on the event loop, for each wake-up; None if this store can't receive
        any."""

    async def wake(self, queue: str) -> None:
        """Wake the workers that serve this queue."""


@runtime_checkable
class FullStore(
    Store,
    Transactions,
    Suspects,
    QueueControl,
    Breakers,
    WorkerPresence,
    Diagnosis,
    History,
    ProgressNotes,
    RemoteLeases,
    Watching,
    CountsUpTo,
    Listening,
    Protocol,
):
    """A store that has every capability."""


CAPABILITIES: Final[tuple[type, ...]] = FullStore.__bases__[1:-1]  # not the core, nor `Protocol`


def capability(store: object, kind: type[C]) -> C | None:
    """Return the store if it has this capability, or None."""
    return store if isinstance(store, kind) else None


def require(store: object, kind: type[C], purpose: str) -> C:
    """Return the store if it has this capability, or raise: "this store can't {purpose}"."""
    if isinstance(store, kind):
        return store
    raise NotInThisStore(f"this store ({type(store).__name__}) can't {purpose}")
