"""What the suite needs from the author of a store, and the helpers that its tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Protocol, TypeVar
from uuid import UUID

import msgspec
import pytest
import pytest_asyncio

from holdfast.domain.ids import IdMaker
from holdfast.domain.job import Attempt, Claimed, Job, Lease, NewJob, Settlement
from holdfast.domain.queues import QueueStatus
from holdfast.domain.retention import A_WEEK, Retention
from holdfast.domain.states import State
from holdfast.domain.why import Circumstances
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Claim, History, ProgressNotes, capability
from holdfast.stores.protocol import FullStore as Store

LEASE_SECONDS = 30.0

_seam = Seam()
_ids = IdMaker(_seam.random)


class Room(StrEnum):
    """What a store can record. A store that keeps its jobs in another system's records may lack
    some of it: name it in `Kind(lacks=...)`, and in the store's documentation."""

    QUEUES = "any queue and job name"
    OPTIONS = "tenants, parents, tags, expiry and max_attempts per job"
    ANY_JSON = "arguments and results of any JSON shape"
    CHOSEN_IDS = "IDs chosen by the caller"
    NEW_IDS = "a new job for each requeue"
    KEY_TIMES = "keys that expire"
    DUE_ORDER = "jobs of one priority in the order of their due times"
    TIMES = "when an attempt started and when the job ended"
    COUNTERS = "how often a job was snoozed, released, crashed, or failed with a code"
    WHOLE_BATCHES = "batches of settlements written all or nothing"
    CONSTRAINTS = "database constraints that repeat the domain's tables"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that the suite makes, and the `Room` that the store lacks.

    `many` is how many jobs a test makes at most, for a database that is slow with more.
    """

    name: str = "job"
    queue: str = "default"
    arguments: bytes = b"{}"
    result: bytes = b'"done"'
    many: int = 1000
    lacks: frozenset[Room] = frozenset()


F = TypeVar("F", bound=Callable[..., Any])
_kind = Kind()


def needs(*wanted: type | Room) -> Callable[[F], F]:
    """Leave out this test, or all tests of this class, for a store that lacks one of these."""

    def mark(test: F) -> F:
        test.needs = {*wanted}  # type: ignore[attr-defined]
        return test

    return mark


def needs_of(suite: type, test: str) -> set[type | Room]:
    """Return what the test needs, and what all tests of its class need."""
    part = next(each for each in suite.__mro__ if test in vars(each))
    return {*vars(part).get("needs", ()), *getattr(vars(part)[test], "needs", ())}


class Harness(Protocol):
    """An empty database, for one test."""

    async def open_store(self, retention: Retention = A_WEEK) -> Any:
        """Open another instance of the store on the same database."""

    async def advance(self, seconds: float) -> None:
        """Let time pass for the database."""

    async def write(self, job_id: UUID, columns: Mapping[str, object]) -> bool:
        """Update a job's row, live or in the history, without the store; return False if the
        database rejects it. The history has no columns for leases. Only tests that need
        `Room.CONSTRAINTS` or `History` call this."""


class Suite:
    """A part of the suite. `store` and `other` stand for the stores of two processes."""

    pytestmark = pytest.mark.asyncio
    kind: ClassVar[Kind] = Kind()

    @pytest.fixture(autouse=True)
    def use_kind(self) -> Iterator[None]:
        global _kind
        before, _kind = _kind, self.kind
        yield
        _kind = before

    async def _opened(self, harness: Harness) -> AsyncIterator[Store]:
        store = await harness.open_store()
        yield store
        await store.close()

    store = pytest_asyncio.fixture(_opened)
    other = pytest_asyncio.fixture(_opened)


RICH: dict[str, Any] = {
    "queue": "q",
    "priority": 7,
    "arguments": b'{"a": [1, "\\u00fc"]}',
    "max_attempts": 9,
    "expires_in_seconds": 600.0,
    "tenant": "t",
    "correlation_id": "c",
    "tags": ("x", "y z"),
    "parent_id": UUID(int=7),
}


def new_id() -> UUID:
    return _ids.make(int(_seam.now().timestamp() * 1000))


def new_job(**changes: Any) -> NewJob:
    job = NewJob(id=new_id(), name=_kind.name, queue=_kind.queue, arguments=_kind.arguments)
    return msgspec.structs.replace(job, **changes)


async def enqueue(store: Store, **changes: Any) -> UUID:
    receipts = await store.enqueue([new_job(**changes)])
    return receipts[0].id


async def enqueue_many(store: Store, jobs: int, **changes: Any) -> list[UUID]:
    """Enqueue this many jobs, or as many as the store's `Kind` allows."""
    receipts = await store.enqueue([new_job(**changes) for _ in range(min(jobs, _kind.many))])
    return [receipt.id for receipt in receipts]


async def kept_attempts(store: Store, job_id: UUID) -> Sequence[Attempt]:
    """Return the attempt history; it is empty if the store keeps none."""
    history = capability(store, History)
    return [] if history is None else await history.attempts(job_id)


async def reports(store: Store, lease: Lease) -> bool:
    """Report progress under this lease; return whether the store accepts it."""
    notes = capability(store, ProgressNotes)
    return notes is not None and await notes.progress(lease, b"1")


def request(limit: int = 100, **changes: Any) -> Claim:
    return Claim("worker", limit, LEASE_SECONDS, names=(_kind.name,))._replace(**changes)


async def claim(store: Store, limit: int = 100, **changes: Any) -> Sequence[Claimed]:
    return await store.claim(request(limit, **changes))


async def claim_suspect(store: Store, **changes: Any) -> Claimed | None:
    return await store.claim_suspect(request(1, **changes))


async def claim_alone(store: Store, **changes: Any) -> Claimed:
    """Claim a suspect; there must be one."""
    claimed = await claim_suspect(store, **changes)
    assert claimed is not None
    return claimed


async def claim_one(store: Store, **changes: Any) -> Claimed:
    """Enqueue a job and claim it."""
    job_id = await enqueue(store, **changes)
    claimed = await store.claim_by_id(job_id, "worker", LEASE_SECONDS)
    assert claimed is not None
    return claimed


async def make_suspect(store: Store, **changes: Any) -> UUID:
    """Enqueue a job and let its workers die until it is a suspect."""
    job_id = await enqueue(store, **changes)
    while True:
        assert await store.claim_by_id(job_id, "doomed", LEASE_SECONDS) is not None
        (reclaimed,) = await store.reclaim(10, "doomed", "died")
        if reclaimed.suspect:
            return job_id


async def queue_status(store: Store, name: str) -> QueueStatus:
    (found,) = [queue for queue in await store.queues() if queue.name == name]
    return found


async def circumstances(store: Store, job_id: UUID) -> Circumstances:
    found = await store.circumstances(job_id)
    assert found is not None
    return found


def settlement(job: Claimed, state: State, **changes: Any) -> Settlement:
    return Settlement(job_id=job.id, fence=job.fence, state=state, **changes)


def success(job: Claimed) -> Settlement:
    return settlement(job, State.SUCCEEDED, result=_kind.result)


def failure(job: Claimed, state: State = State.QUEUED, delay_seconds: float = 0) -> Settlement:
    return settlement(
        job,
        state,
        delay_seconds=delay_seconds,
        error_code="BROKEN",
        error_text="it broke",
        outcome="failed",
    )


def release(job: Claimed) -> Settlement:
    return settlement(job, State.QUEUED, attempt_back=True, released=True)


def snooze(job: Claimed, delay_seconds: float) -> Settlement:
    return settlement(
        job, State.QUEUED, delay_seconds=delay_seconds, attempt_back=True, snoozed=True
    )


async def recorded(store: Store, job_id: UUID) -> Job:
    job = await store.get(job_id)
    assert job is not None
    return job


async def end(store: Store, job: Claimed, state: State) -> None:
    """End a running job in this state."""
    if state is State.CANCELED:
        await store.cancel([job.id])
    else:
        await store.settle([success(job) if state is State.SUCCEEDED else failure(job, state)])


async def job_in(store: Store, state: State, **changes: Any) -> UUID:
    """Enqueue a job and bring it into this state."""
    if state is State.QUEUED:
        return await enqueue(store, **changes)
    job = await claim_one(store, **changes)
    if state is not State.RUNNING:
        await end(store, job, state)
    return job.id
