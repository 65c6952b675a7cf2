"""What the engine asks of a store, in the words of the domain: a core that every store has, and
capabilities that a store has or leaves out. Whoever needs one asks with `capability` or `require`,
once, not for each job.

Every write after a claim names the lease's fence and changes nothing if the fence is no longer the
job's. Every claim, settlement, reclaim and cancel raises the fence. The store's clock judges what
is due and which lease has run out; callers only ever say "in so many seconds".

A store raises `StoreUnavailable` when trying again may help and `StoreRefused` when it won't.
`holdfast.testing.conformance` is the suite that every store passes, for what it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable
from uuid import UUID

from holdfast.domain.breakers import BreakerStatus, Parking, Strike
from holdfast.domain.diagnosis.vitals import Patience, Vitals
from holdfast.domain.errors import NotInThisStore
from holdfast.domain.job import (
    Attempt,
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
)
from holdfast.domain.overview import Pulse
from holdfast.domain.queues import QueueStatus
from holdfast.domain.why import Circumstances
from holdfast.domain.workers import Load, NewWorker, WorkerStatus
from holdfast.transactions.drivers import Driver
from holdfast.wakeups.protocol import Heard, Listener

C = TypeVar("C")


class Claim(NamedTuple):
    """A request for jobs: at most `limit`, of these names and queues only (None: all queues but
    `except_queues`). `alone` says that each will be the only one in its process; `job_id` that it
    is enough to look at this job, which is of one of these queues."""

    worker: str
    limit: int
    lease_seconds: float
    names: Sequence[str]
    queues: Sequence[str] | None = None
    except_queues: Sequence[str] = ()
    alone: bool = False
    job_id: UUID | None = None


class Canceled(NamedTuple):
    """A job that a cancel ended, and whether a worker held it at that moment."""

    job_id: UUID
    was_running: bool


class Enrolled(Protocol):
    """The verbs that work on a connection of the caller's, in its open transaction.

    A driver's errors come translated, and leave a transaction that can go on where the database
    allows it.
    """

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]: ...

    async def get(self, job_id: UUID) -> Job | None: ...

    async def settle(self, settlement: Settlement) -> bool:
        """Write the end; False means that the lease is no longer held, and then nothing of this
        transaction may be committed."""


@runtime_checkable
class Pooled(Protocol):
    """A store that has a pool of connections."""

    @property
    def pool_use(self) -> tuple[int, int]:
        """How many are in use, and how many there may be; may be asked from any thread."""


class Store(Protocol):
    """The core that every store has.

    What belongs to a capability (suspects, paused queues, breakers, expiry, ...) is meant only
    where the store has it.
    """

    async def open(self) -> None:
        """Connect and check the schema; refuse with SchemaMismatch what this code can't run on."""

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """Close without waiting, after which the store is of no use. Where connections belong to an
        event loop that runs, it is called there."""

    async def migrate(self) -> Sequence[str]:
        """Bring the schema to this code's version; answer the names of the steps taken."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        """Record all of them or none, one receipt for each, in order; wake the workers."""

    async def claim(self, request: Claim) -> Sequence[Claimed]:
        """Lease due jobs that are no suspects: priority first (lower is better), then due time,
        then id. Not of a queue that is paused, nor more of one than it may run at a time, nor
        those whose breaker is open."""

    async def claim_by_id(self, job_id: UUID, worker: str, lease_seconds: float) -> Claimed | None:
        """Lease this job if it is queued and due, no suspect, its queue is neither paused nor full,
        and its breaker not open."""

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lost]:
        """Extend the leases, skipping locked rows; answer those that are no longer held."""

    async def release_strays(self, worker: str, known: Sequence[Lease], limit: int) -> int:
        """Release what is leased to this worker and is none of these: claims whose answer was lost.
        These jobs never started, so each gets its attempt back, and it counts as no release. Skip
        locked rows, wake the workers, answer how many there were; `limit` means maybe more."""

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Lost]:
        """Write all that are still held, in one transaction; answer those that are not."""

    async def reclaim(
        self, limit: int, dead_worker: str | None = None, reason: str = ""
    ) -> Sequence[Reclaimed]:
        """Take back, in one bounded and idempotent step, what ran out: leases of dead workers and
        waiting jobs past their expiry (canceled with EXPIRED). Locked rows are skipped.

        With `dead_worker` take back the leases of that worker, which is known to have died for
        this reason, whether they ran out or not; and nothing else.

        A job that the database does not let end is passed over; StoreRefused says that there are
        no others.

        A lost lease is a crash. A job that was alone in its process ends as dead at max_attempts.
        One that was in company may be innocent: it is queued again, with its attempt given back if
        it was the last one. It becomes a suspect when the next crash may end it, or when it has
        crashed CRASHES_IN_COMPANY_MAX times."""

    async def cancel(
        self, job_ids: Sequence[UUID], *, waiting_only: bool = False
    ) -> Sequence[Canceled]:
        """End these jobs if they are queued, or running unless `waiting_only`; tell the workers
        that hold them."""

    async def retry(self, job_id: UUID) -> bool:
        """Make a waiting job due now; False if it is not queued."""

    async def requeue(
        self, job_id: UUID, new_id: UUID, *, arguments: bytes | None = None, once: bool = False
    ) -> bool:
        """Enqueue an ended job anew, naming the old one, without its key; False if not ended.

        `arguments` replace the old ones. With `once`, False also if it was requeued before:
        whoever asks at the same moment, one of them gets True."""

    async def get(self, job_id: UUID) -> Job | None: ...

    async def page(self, filter: Filter, limit: int, after: UUID | None = None) -> Page:
        """Jobs that match, live and ended, newest first, going on behind `after`. The filter's
        fingerprint is left to the caller.

        One call looks at a bounded number of jobs, so a page may hold less than `limit`, or
        nothing, and still say where to go on."""

    async def counts(self, tenant: str | None = None) -> Sequence[Count]: ...

    async def queues(self) -> Sequence[QueueStatus]:
        """All queues that have live jobs, or of which an operator has said something, by name."""

    async def awaited(
        self, names: Sequence[str], queues: Sequence[str] | None, within_seconds: float
    ) -> bool:
        """Is any such job running, or queued and due within so many seconds? Not if its queue is
        paused, or its cap is 0: nobody knows when that ends."""


@runtime_checkable
class Transactions(Protocol):
    """Writes of the application and of its jobs in one transaction."""

    def connection(self, *, read_only: bool = False) -> AbstractAsyncContextManager[Any]:
        """A connection of the store's, which `holdfast.transactions.drivers` knows, for a
        transaction of the borrower's; `read_only` for one that blocks nobody."""

    def enrol(self, driver: Driver) -> Enrolled:
        """Work on this connection; the store itself need not be open."""

    def writing(self) -> AbstractContextManager[None]:
        """Mark this task or thread as one that may hold the store's only write lock."""

    async def standing(self, job_id: UUID) -> Standing | None:
        """Where the job stands, after waiting for a transaction that is about to settle it."""


@runtime_checkable
class Suspects(Protocol):
    """Jobs that may have killed their process, and run alone from then on."""

    async def claim_suspect(self, request: Claim) -> Claimed | None:
        """Lease the first due suspect of a queue that is not paused, to be run alone in its
        process. Suspects are not held by breakers."""

    async def suspects(self, names: Sequence[str], queues: Sequence[str] | None) -> int:
        """How many due suspects wait; SUSPECTS_COUNTED_MAX stand for any number above."""


@runtime_checkable
class QueueControl(Protocol):
    """Queues that operators pause and cap."""

    async def pause(self, queue: str, by: str | None, because: str | None) -> bool:
        """Let no job of the queue be claimed; False if it was paused already, which stands."""

    async def resume(self, queue: str) -> bool:
        """Let its jobs be claimed again, and wake the workers; False if it was not paused."""

    async def cap(self, queue: str, running_max: int | None) -> None:
        """Let at most so many of its jobs run at a time, over all workers; None lifts that."""


@runtime_checkable
class Breakers(Protocol):
    """Failures counted by what jobs depend on, and jobs that wait while it is down."""

    async def strike(self, strikes: Sequence[Strike]) -> Sequence[bool]:
        """Count failures against their breakers, in order, and take in the successes that are told
        with them. True for each that came when its breaker was open already: its job is to be
        queued again with its attempt."""

    async def open_breaker(self, key: str, by: str | None, because: str | None) -> None:
        """Open it by hand: its jobs are held, and none is sent ahead, until it is closed."""

    async def close_breaker(self, key: str, *, forget: bool = False, by_hand: bool = True) -> bool:
        """Close it and begin to count anew; False if it was not open. What it holds is let go by
        `hold`. With `forget`, nothing is known of it afterwards, and False if nothing was. Unless
        it is closed `by_hand`, one that was opened by hand stays open, and the failures so far
        stand beside the success that closes it."""

    async def park(self, limit: int) -> Parking:
        """Do one bounded step: hold due jobs whose breaker is open, let go those whose breaker has
        closed, and wake the workers for these. `moved` equal to `limit` means that more is left."""

    async def claim_probes(self, request: Claim) -> Sequence[Claimed]:
        """Lease one held job for each breaker whose next probe is due, and set the time of the next
        one; not of queues that are paused or full. Of those with the lowest fence, which were
        started least often, it takes in turn the newest and the first by the last 32 bits of its
        id, which are random."""

    async def breakers(self) -> Sequence[BreakerStatus]:
        """Those of which something is known: open ones first, then by key; at most
        BREAKERS_LISTED_MAX."""


@runtime_checkable
class WorkerPresence(Protocol):
    """Workers that tell the database that they are there."""

    async def register(self, worker: NewWorker, load: Load) -> None:
        """Note that this worker is there."""

    async def heartbeat(self, worker_id: str, load: Load) -> bool:
        """Note that this worker is still there; False if it is not known, or was forgotten."""

    async def deregister(self, worker_id: str) -> None:
        """Forget this worker, which has stopped."""

    async def workers(self) -> Sequence[WorkerStatus]:
        """Those that are there, and those that are lost: at most WORKERS_LISTED_MAX, seen last."""


@runtime_checkable
class Diagnosis(Protocol):
    """What a database tells of itself and of what its jobs wait for."""

    async def circumstances(self, job_id: UUID) -> Circumstances | None:
        """What may keep this job from running, as of one moment."""

    async def vitals(self, patience: Patience) -> Vitals:
        """How the database is, read in bounded steps that change nothing, by a store that need not
        be open. It raises what says that the database can't be reached; a part that can't be read
        is left out, and named."""

    async def pulse(self, newest_max: int) -> Pulse:
        """How much has ended, and how long the newest of it took; cheap enough for every second."""

    async def unknown_names(
        self, names: Sequence[str], queues: Sequence[str] | None
    ) -> Sequence[str]:
        """Some names of due jobs that are none of these, from a bounded look at the queues."""


@runtime_checkable
class History(Protocol):
    """What is kept of jobs beside their rows, for a time: attempts, requeues, ended jobs."""

    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        """The attempts that did not succeed, oldest first."""

    async def requeued(self, job_ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
        """Those of these jobs that were requeued, each with the job that was last made of it. Known
        for as long as the old job is kept."""

    async def tidy(self, limit: int) -> int:
        """Do one bounded step of upkeep: forget history, attempts and idempotency keys that were
        kept long enough, and workers that were lost long ago, move ended jobs that still stand
        among the live ones, make room for new history. Answer how many rows there were to do; less
        than `limit` means all was done.

        An ended job that the database does not let move is passed over; StoreRefused says that
        such jobs are all that is left."""


@runtime_checkable
class ProgressNotes(Protocol):
    """Room for how far a running job is."""

    async def progress(self, lease: Lease, progress: bytes) -> bool:
        """Write the progress; False if the lease is no longer held."""


@runtime_checkable
class Listening(Protocol):
    """Wake-ups."""

    async def listen(self, heard: Heard) -> Listener | None:
        """Call `heard` (on the loop) for each wake-up; None if this store can't hear any."""


CAPABILITIES: Final[tuple[type, ...]] = (
    Transactions,
    Suspects,
    QueueControl,
    Breakers,
    WorkerPresence,
    Diagnosis,
    History,
    ProgressNotes,
    Listening,
)


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
    Listening,
    Protocol,
):
    """A store that has every capability."""


def capability(store: object, kind: type[C]) -> C | None:
    """The store as one that has this capability, or None."""
    return store if isinstance(store, kind) else None


def require(store: object, kind: type[C], purpose: str) -> C:
    """The store as one that has this capability; `purpose` completes "this store can't ..."."""
    if isinstance(store, kind):
        return store
    raise NotInThisStore(f"this store ({type(store).__name__}) can't {purpose}")
