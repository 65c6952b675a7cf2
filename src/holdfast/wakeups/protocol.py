"""A wake-up carries no job: it says where to look, and may say at which. Losing, doubling or
reordering every one of them costs latency only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol
from uuid import UUID


class Wakeup(NamedTuple):
    """Look at this queue, where this job is due, or let go of a job that was canceled; with none of
    these: look at everything."""

    queue: str | None = None
    canceled: UUID | None = None
    job_id: UUID | None = None


Heard = Callable[[Wakeup], None]


class Listener(Protocol):
    """Hears wake-ups from other processes until it is closed; a source that was lost is made
    again, followed by a `Wakeup()`, because nobody knows what was missed."""

    async def close(self) -> None: ...
