"""A wake-up carries no job, only a hint where to look. Losing, repeating or reordering them costs
latency only.

The database wakes the workers itself where it can. Messengers do so besides, through a broker:
`holdfast.wakeups.registry` makes them from URLs. Every messenger passes the suite in
`holdfast.testing.messengers`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

from holdfast.domain.job import Claimed, Job, Lease, Settlement
from holdfast.domain.messengers import MessengerStatus


class Wakeup(NamedTuple):
    """Look at this queue, in which this job is due, or stop a canceled job. Without any of these,
    look at everything."""

    queue: str | None = None
    canceled: UUID | None = None
    job_id: UUID | None = None


Heard = Callable[[Wakeup], None]
Look = Callable[[UUID], Coroutine[Any, Any, Job | None]]


class Listener(Protocol):
    """Receives wake-ups from other processes until it is closed. After a lost connection it
    reconnects and emits a `Wakeup()`, because nobody knows what it missed."""

    async def close(self) -> None: ...


class Hint(NamedTuple):
    """A job that was committed, and when it is due.

    What follows the delay is for brokers whose messages say more than the job's id: `attempt` is
    how many attempts there were, `again` how often the same message was put off, and `body` what
    it says instead of the id alone. Nothing of it counts: the job's row does.
    """

    job_id: UUID
    queue: str
    delay_seconds: float = 0.0
    tenant: str | None = None
    priority: int | None = None
    correlation_id: str | None = None
    attempt: int = 0
    again: int = 0
    body: bytes | None = None

    @classmethod
    def of(cls, job: Job, delay_seconds: float = 0.0) -> Hint:
        return cls(
            job.id,
            job.queue,
            delay_seconds,
            job.tenant,
            job.priority,
            job.correlation_id,
            job.attempts,
        )


class Messenger(Protocol):
    """Tells workers of new jobs. All methods can be called from any thread or event loop."""

    @property
    def name(self) -> str:
        """Its name in logs, metrics and `holdfast doctor`, for example "rabbitmq"."""

    def connect(self) -> None:
        """Connect in the background, to be ready, and to know whether the broker can be reached.
        Without this, the first hint connects."""

    def post(self, hints: Sequence[Hint]) -> None:
        """Send the hints some time soon. This neither waits nor raises: hints that can't be sent
        are dropped, and polling finds their jobs."""

    async def listen(self, heard: Heard) -> Listener:
        """Call `heard` on the running event loop for each message, as long as the broker can be
        reached, and again when it is back. A broker that is away is not an error."""

    def status(self) -> MessengerStatus:
        """How it is in this process. Heartbeats ask for it, so it must not wait."""

    async def close(self) -> None:
        """Send what is left, for a second at most. Disconnect unless somebody listens. It can be
        used again."""


@runtime_checkable
class Escort(Protocol):
    """A messenger whose messages accompany their jobs: it holds a message while its job runs on
    this worker. The worker calls these on its loop or the lease keeper's; none of them waits."""

    def attach(self, worker_id: str, look: Look, room: Callable[[], int]) -> None:
        """Begin. `look` reads a job's row, on the running event loop. `room` says from any thread
        how many more jobs the worker can start."""

    def detach(self, worker_id: str) -> None:
        """This worker starts no more jobs. Those that it has are still told of."""

    def started(self, job: Claimed) -> None: ...

    def renewed(self, leases: Collection[Lease]) -> None:
        """The database has just extended these leases."""

    def settled(self, job: Claimed, settlement: Settlement) -> None: ...

    def lost(self, job: Claimed) -> None: ...


class Box(StrEnum):
    """Where a broker keeps messages."""

    QUEUE = "queue"
    DEAD = "dead"


class Kept(NamedTuple):
    """A message that a broker keeps. It may name no job."""

    box: Box
    number: int
    hint: Hint | None  # what it would be sent again as
    state: str  # active, scheduled or deferred
    deliveries: int = 0
    sent_at: datetime | None = None
    due_at: datetime | None = None  # if it is scheduled
    reason: str | None = None  # why it is a dead letter
    description: str | None = None


class DeadLetters(Protocol):
    """The dead letters of a broker, received and locked."""

    def __aiter__(self) -> AsyncIterator[Kept]: ...

    async def remove(self, letter: Kept) -> None: ...

    async def replace(self, letter: Kept, hint: Hint) -> None:
        """Send the hint, and remove the letter when the broker has it."""


@runtime_checkable
class Inspectable(Protocol):
    """A messenger whose broker keeps messages, and dead letters, that operators can look at."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str:
        """Where the messages are, without a password."""

    async def peek(self, box: Box, limit: int) -> Sequence[Kept]:
        """Look at the oldest messages. This neither receives nor changes them."""

    def dead_letters(self, limit: int) -> AbstractAsyncContextManager[DeadLetters]:
        """Receive this many dead letters, the oldest. Those that are not removed inside the block
        stay."""

    async def send(self, hints: Sequence[Hint]) -> None:
        """Send now, and wait until the broker has them."""
