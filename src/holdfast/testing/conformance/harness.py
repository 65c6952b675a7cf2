"""What the suite needs of a store under test, and the words that its tests are written in."""

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
from holdfast.domain.limits import CRASHES_IN_COMPANY_MAX
from holdfast.domain.queues import QueueStatus
from holdfast.domain.retention import A_WEEK, Retention
from holdfast.domain.states import State
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Claim, History, ProgressNotes, capability
from holdfast.stores.protocol import FullStore as Store

LEASE_SECONDS = 30.0

_seam = Seam()
_ids = IdMaker(_seam.random)


class Room(StrEnum):
    """What a store has room for. One whose records belong to somebody else, or that has no
    database, may lack some of it: `Kind(lacks=...)` says so, and its documentation."""

    QUEUES = "queues and names of any kind"
    OPTIONS = "tenants, tags, an expiry and a number of attempts of its own"
    ANY_JSON = "arguments and results of any shape"
    CHOSEN_IDS = "ids of the caller's choice"
    NEW_IDS = "a new job for each requeue"
    KEY_TIMES = "keys that are forgotten after a time"
    DUE_ORDER = "jobs of one priority in the order of their due times"
    TIMES = "when an attempt started and when the job ended"
    COUNTERS = "how often a job was snoozed, released, or crashed"
    WHOLE_BATCHES = "settlements that are written together or not at all"
    CONSTRAINTS = "constraints of the database that repeat the domain's tables"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that the suite makes, and the room that the store lacks for others.

    `many` are enough to be many for this database.
    """

    name: str = "job"
    queue: str = "default"
    arguments: bytes = b"{}"
    result: bytes = b'"done"'
    many: int = 1000
    lacks: frozenset[Room] = frozenset()


Needs = tuple[type | Room, ...]
F = TypeVar("F", bound=Callable[..., Any])
_kind = Kind()


def needs(*wanted: type | Room) -> Callable[[F], F]:
    """Leave this test out for a store that lacks one of these."""

    def note(test: F) -> F:
        test.needs = {*wanted}  # type: ignore[attr-defined]
        return test

    return note


def needs_of(suite: type, test: str) -> set[type | Room]:
    """What a test needs by itself, and by the part of the suite that it belongs to."""
    part = next(each for each in suite.__mro__ if test in vars(each))
    return {*vars(part).get("all_need", ()), *getattr(vars(part)[test], "needs", ())}


class Harness(Protocol):
    """One empty database, for one test."""

    async def open_store(self, retention: Retention = A_WEEK) -> Any:
        """Open one more instance of the store, with what it has, on the same database."""

    async def advance(self, seconds: float) -> None:
        """Let time pass for the database."""

    async def write(self, job_id: UUID, columns: Mapping[str, object]) -> bool:
        """Update a job's row past the store, among the live ones or in the history; False if the
        database itself refuses. The history has no columns for leases. Only tests that
        need `Room.CONSTRAINTS` or `History` call it."""


class Suite:
    """Two instances of the store, as two processes would have them."""

    pytestmark = pytest.mark.asyncio
    all_need: Needs = ()
    kind: ClassVar[Kind] = Kind()

    @pytest.fixture(autouse=True)
    def speak_of_its_jobs(self) -> Iterator[None]:
        global _kind
        before, _kind = _kind, self.kind
        yield
        _kind = before

    @pytest_asyncio.fixture
    async def store(self, harness: Harness) -> AsyncIterator[Store]:
        store = await harness.open_store()
        yield store
        await store.close()

    @pytest_asyncio.fixture
    async def other(self, harness: Harness) -> AsyncIterator[Store]:
        store = await harness.open_store()
        yield store
        await store.close()


def new_id() -> UUID:
    return _ids.make(int(_seam.now().timestamp() * 1000))


def new_job(**changes: Any) -> NewJob:
    job = NewJob(id=new_id(), name=_kind.name, queue=_kind.queue, arguments=_kind.arguments)
    return msgspec.structs.replace(job, **changes)


async def enqueue(store: Store, **changes: Any) -> UUID:
    receipts = await store.enqueue([new_job(**changes)])
    return receipts[0].id


async def enqueue_many(store: Store, jobs: int, **changes: Any) -> list[UUID]:
    """Enqueue so many, but no more than are many for this store."""
    receipts = await store.enqueue([new_job(**changes) for _ in range(min(jobs, _kind.many))])
    return [receipt.id for receipt in receipts]


async def kept_attempts(store: Store, job_id: UUID) -> Sequence[Attempt]:
    """The attempts that a store has kept; none where it keeps none."""
    history = capability(store, History)
    return [] if history is None else await history.attempts(job_id)


async def reports(store: Store, lease: Lease) -> bool:
    """Does the store take progress from whoever has this lease?"""
    notes = capability(store, ProgressNotes)
    return notes is not None and await notes.progress(lease, b"1")


async def claim(
    store: Store,
    limit: int = 100,
    *,
    names: Sequence[str] | None = None,
    queues: Sequence[str] | None = None,
    except_queues: Sequence[str] = (),
    worker: str = "worker",
    alone: bool = False,
) -> Sequence[Claimed]:
    return await store.claim(
        Claim(
            worker=worker,
            limit=limit,
            lease_seconds=LEASE_SECONDS,
            names=(_kind.name,) if names is None else names,
            queues=queues,
            except_queues=except_queues,
            alone=alone,
        )
    )


async def claim_suspect(
    store: Store,
    *,
    names: Sequence[str] = ("job",),
    queues: Sequence[str] | None = None,
    except_queues: Sequence[str] = (),
    worker: str = "worker",
) -> Claimed | None:
    return await store.claim_suspect(
        Claim(
            worker=worker,
            limit=1,
            lease_seconds=LEASE_SECONDS,
            names=names,
            queues=queues,
            except_queues=except_queues,
        )
    )


async def claim_one(store: Store, **changes: Any) -> Claimed:
    """Enqueue a job and lease it."""
    job_id = await enqueue(store, **changes)
    claimed = await store.claim_by_id(job_id, "worker", LEASE_SECONDS)
    assert claimed is not None
    return claimed


async def new_suspect(store: Store, **changes: Any) -> UUID:
    """Enqueue a job and let its process die until it is a suspect."""
    job_id = await enqueue(store, **changes)
    for _ in range(CRASHES_IN_COMPANY_MAX):
        assert await store.claim_by_id(job_id, "doomed", LEASE_SECONDS) is not None
        assert len(await store.reclaim(1, "doomed", "died")) == 1
    return job_id


async def queue_seen(store: Store, name: str) -> QueueStatus:
    (found,) = [queue for queue in await store.queues() if queue.name == name]
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


async def job_in(store: Store, state: State) -> UUID:
    """Bring a job into this state by the store's own verbs."""
    if state is State.QUEUED:
        return await enqueue(store)
    job = await claim_one(store)
    match state:
        case State.SUCCEEDED:
            await store.settle([success(job)])
        case State.FAILED | State.DEAD:
            await store.settle([failure(job, state)])
        case State.CANCELED:
            await store.cancel([job.id])
        case _:
            pass
    return job.id
