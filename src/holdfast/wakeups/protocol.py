"""A wake-up carries no job, only a hint where to look. Losing, repeating or reordering them costs
latency only.

The database wakes the workers itself where it can. Messengers do so besides, through a broker:
`holdfast.wakeups.registry` makes them from URLs. Every messenger passes the suite in
`holdfast.testing.messengers`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple, Protocol, runtime_checkable
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
Look = Callable[[UUID], Awaitable[Job | None]]


class Listener(Protocol):
    """Receives wake-ups from other processes until it is closed. After a lost connection it
    reconnects and emits a `Wakeup()`, because nobody knows what it missed."""

    async def close(self) -> None: ...


class Hint(NamedTuple):
    """A job that was committed, and when it is due."""

    job_id: UUID
    queue: str
    delay_seconds: float = 0.0


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

    def attach(self, worker_id: str, look: Look) -> None:
        """Begin. `look` reads a job's row, on the event loop that called `listen`."""

    def started(self, job: Claimed) -> None: ...

    def renewed(self, leases: Collection[Lease]) -> None:
        """The database has just extended these leases."""

    def settled(self, job: Claimed, settlement: Settlement) -> None: ...

    def lost(self, job: Claimed) -> None: ...
