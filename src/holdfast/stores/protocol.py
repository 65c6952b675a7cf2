"""What the engine asks of a store, in the words of the domain.

Every write after a claim names the lease's fence and changes nothing if the fence is no longer the
job's. Every claim, settlement, reclaim and cancel raises the fence. The store's clock judges what
is due and which lease has run out; callers only ever say "in so many seconds".

A store raises `StoreUnavailable` when trying again may help and `StoreRefused` when it won't.
`holdfast.testing.conformance` is the suite that every store passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol
from uuid import UUID

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
)
from holdfast.wakeups.protocol import Heard, Listener


class Claim(NamedTuple):
    """A request for jobs: at most `limit`, of these names and queues only (None: all queues but
    `except_queues`)."""

    worker: str
    limit: int
    lease_seconds: float
    names: Sequence[str]
    queues: Sequence[str] | None = None
    except_queues: Sequence[str] = ()


class Canceled(NamedTuple):
    """A job that a cancel ended, and whether a worker held it at that moment."""

    job_id: UUID
    was_running: bool


class Completion(Protocol):
    """A transaction that a handler writes through. `settle` is its last statement; False means
    that the lease is no longer held, and then nothing of it may be committed."""

    connection: Any

    async def settle(self, settlement: Settlement) -> bool: ...


class Store(Protocol):
    async def open(self) -> None:
        """Connect and check the schema; refuse with SchemaMismatch what this code can't run on."""

    async def close(self) -> None: ...

    async def migrate(self) -> Sequence[str]:
        """Bring the schema to this code's version; answer the names of the steps taken."""

    async def enqueue(self, jobs: Sequence[NewJob]) -> Sequence[Receipt]:
        """Record all of them or none, one receipt for each, in order; wake the workers."""

    async def claim(self, claim: Claim) -> Sequence[Claimed]:
        """Lease due jobs: priority first (lower is better), then due time, then id."""

    async def claim_by_id(self, job_id: UUID, worker: str, lease_seconds: float) -> Claimed | None:
        """Lease this job if it is queued and due."""

    async def renew(self, leases: Sequence[Lease], lease_seconds: float) -> Sequence[Lost]:
        """Extend the leases, skipping locked rows; answer those that are no longer held."""

    async def progress(self, lease: Lease, progress: bytes) -> bool:
        """Write the progress; False if the lease is no longer held."""

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[Lost]:
        """Write all that are still held, in one transaction; answer those that are not."""

    def completing(self) -> AbstractAsyncContextManager[Completion]:
        """A transaction that is committed at the end of the block, or rolled back by an error."""

    async def reclaim(self, limit: int) -> Sequence[Reclaimed]:
        """Take back, in one bounded and idempotent step, what ran out: leases of dead workers
        (queued again, or dead with LEASE_LOST at max_attempts) and waiting jobs past their expiry
        (canceled with EXPIRED). Locked rows are skipped."""

    async def prune_keys(self, limit: int) -> int:
        """Forget idempotency keys that were kept long enough; answer how many."""

    async def cancel(self, job_ids: Sequence[UUID]) -> Sequence[Canceled]:
        """End these jobs if they are queued or running; tell the workers that hold them."""

    async def retry(self, job_id: UUID) -> bool:
        """Make a waiting job due now; False if it is not queued."""

    async def requeue(self, job_id: UUID, new_id: UUID) -> bool:
        """Enqueue an ended job anew, naming the old one, without its key; False if not ended."""

    async def get(self, job_id: UUID) -> Job | None: ...

    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        """The attempts that did not succeed, oldest first."""

    async def page(self, filter: Filter, limit: int, after: UUID | None = None) -> Page:
        """Jobs that match, newest first, going on behind `after`."""

    async def counts(self, tenant: str | None = None) -> Sequence[Count]: ...

    async def awaited(
        self, names: Sequence[str], queues: Sequence[str] | None, within_seconds: float
    ) -> bool:
        """Is any such job running, or queued and due within so many seconds?"""

    async def unknown_names(
        self, names: Sequence[str], queues: Sequence[str] | None
    ) -> Sequence[str]:
        """Some names of due jobs that are none of these, from a bounded look at the queues."""

    async def listen(self, heard: Heard) -> Listener | None:
        """Call `heard` (on the loop) for each wake-up; None if this store can't hear any."""
