"""A wake-up carries no job, only a hint where to look. Losing, repeating or reordering them costs
latency only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol
from uuid import UUID


class Wakeup(NamedTuple):
    """Look at this queue, in which this job is due, or stop a canceled job. Without any of these,
    look at everything."""

    queue: str | None = None
    canceled: UUID | None = None
    job_id: UUID | None = None


Heard = Callable[[Wakeup], None]


class Listener(Protocol):
    """Receives wake-ups from other processes until it is closed. After a lost connection it
    reconnects and emits a `Wakeup()`, because nobody knows what it missed."""

    async def close(self) -> None: ...
