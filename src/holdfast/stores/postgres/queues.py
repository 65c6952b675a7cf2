"""Queues: paused and capped by operators."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.queues import QueueStatus
from holdfast.stores.postgres.rows import Fetch


async def queues(fetch: Fetch) -> Sequence[QueueStatus]:
    return [QueueStatus(**row) for row in await fetch("queues")]


async def queue(fetch: Fetch, name: str) -> QueueStatus | None:
    """The queue's pause, cap and running jobs; its waiting jobs are not counted."""
    rows = await fetch("queue", queue=name)
    return QueueStatus(**rows[0]) if rows else None


async def pause(fetch: Fetch, queue: str, by: str | None, because: str | None) -> bool:
    return bool(await fetch("pause", queue=queue, by=by, because=because))


async def is_paused(fetch: Fetch, queue: str) -> bool:
    return bool(await fetch("is_paused", queue=queue))


async def resume(fetch: Fetch, queue: str) -> bool:
    return bool(await fetch("resume", queue=queue))


async def cap(fetch: Fetch, queue: str, running_max: int | None) -> None:
    await fetch("cap", queue=queue, running_max=running_max)
