"""What operators do with queues and breakers: pause, cap, drain, purge; open, close, forget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

from holdfast.bulk import Choice, Progress, cancel_together, make_pace
from holdfast.domain.errors import ConfigurationError, WrongState
from holdfast.domain.job import Filter
from holdfast.domain.limits import PURGE_ROWS_MAX, QUEUE_RUNNING_MAX
from holdfast.domain.queues import QueueSeen
from holdfast.domain.states import State
from holdfast.domain.texts import check_name
from holdfast.domain.times import exact
from holdfast.steering import Steering

LOOK_SECONDS = 1.0
LOOKS_TO_BE_SURE = 2


class Holds(Steering):
    """The part of a Holdfast object that holds jobs back, by their queue or their breaker."""

    async def pause(self, queue: str, *, by: str | None = None, because: str | None = None) -> None:
        """Let no job of the queue start, on any worker, until `resume`; what runs goes on.

        WrongState says who paused it if it is paused already.
        """
        check_name("queue", queue)
        _check_said(by, because)
        if not await (await self._store()).pause(queue, by, because):
            found = await self._queue(queue)
            raise WrongState(f"queue {queue} is paused already{_told(found)}; nothing was changed")

    async def resume(self, queue: str) -> None:
        """Let the jobs of a paused queue start again."""
        check_name("queue", queue)
        if not await (await self._store()).resume(queue):
            raise WrongState(f"queue {queue} is not paused; nothing was changed")

    async def cap(self, queue: str, running_max: int | None) -> None:
        """Let at most so many jobs of the queue run at a time, on all workers together.

        0 lets none start; None lifts the cap. What runs beyond a new cap goes on.
        """
        check_name("queue", queue)
        if running_max is not None and not (
            type(running_max) is int and 0 <= running_max <= QUEUE_RUNNING_MAX
        ):
            raise ConfigurationError(
                f"running_max must be 0 to {QUEUE_RUNNING_MAX:,}, or None, not {running_max!r}"
            )
        await (await self._store()).cap(queue, running_max)

    async def drain(
        self, queue: str, *, by: str | None = None, because: str | None = None
    ) -> AsyncIterator[QueueSeen]:
        """Pause the queue and wait until none of its jobs runs; yield how it stands, each second.

        It stays paused then. A queue that was paused before is drained all the same.
        """
        check_name("queue", queue)
        _check_said(by, because)
        await (await self._store()).pause(queue, by, because)
        quiet = 0
        while True:
            found = await self._queue(queue)
            if not found.paused:
                raise WrongState(f"queue {queue} was resumed by somebody while it was drained")
            yield found
            quiet = 0 if found.running else quiet + 1
            # A claim that had begun before the pause may end after it.
            if quiet == LOOKS_TO_BE_SURE:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def purge_preview(self, queue: str, *, running: bool = False) -> Choice:
        """Find the jobs that `purge` would cancel now."""
        check_name("queue", queue)
        states = (State.QUEUED, State.RUNNING) if running else (State.QUEUED,)
        return await self.choose(Filter(states=states, queue=queue))

    async def purge(
        self,
        queue: str,
        jobs: Sequence[UUID] | None = None,
        *,
        running: bool = False,
        jobs_per_second: float | None = None,
    ) -> AsyncIterator[Progress]:
        """Cancel all jobs of the queue that wait now, or these of them; yield how far it has come.

        They end as `canceled`, and stay in the history. Jobs that run, or begin to meanwhile, are
        left alone unless `running`.
        """
        pace = make_pace(jobs_per_second, PURGE_ROWS_MAX)
        if jobs is None:
            jobs = (await self.purge_preview(queue, running=running)).ids
        store = await self._store()
        steps = cancel_together(store, jobs, pace, self._seam, waiting_only=not running)
        async for progress in steps:
            yield progress

    async def open_breaker(
        self, key: str, *, by: str | None = None, because: str | None = None
    ) -> None:
        """Hold all jobs of this key, and send none ahead, until `close_breaker`.

        One that has opened by itself stays open then, whatever its jobs would come to.
        """
        check_name("breaker's key", key)
        _check_said(by, because)
        await (await self._store()).open_breaker(key, by, because)

    async def known_breakers(self) -> set[str]:
        """The keys of which something is recorded, and those that job functions name."""
        named = (each.breaker.key for each in self._definitions.values() if each.breaker)
        recorded = await (await self._store()).breakers()
        return {key for key in named if isinstance(key, str)} | {each.key for each in recorded}

    async def close_breaker(self, key: str) -> None:
        """Let the jobs go that it holds, and begin to count failures anew."""
        check_name("breaker's key", key)
        if not await (await self._store()).close_breaker(key):
            raise WrongState(f"breaker {key} is not open; nothing was changed")

    async def reset_breaker(self, key: str) -> None:
        """Close it if it is open, and forget all that is known of it."""
        check_name("breaker's key", key)
        if not await (await self._store()).close_breaker(key, forget=True):
            raise WrongState(f"nothing is known of a breaker {key}; nothing was changed")

    async def _queue(self, name: str) -> QueueSeen:
        found = await (await self._store()).queues()
        return next((each for each in found if each.name == name), QueueSeen(name=name))


def _check_said(by: str | None, because: str | None) -> None:
    if by is not None:
        check_name("operator", by)
    if because is not None:
        check_name("reason", because)


def _told(queue: QueueSeen) -> str:
    """Who paused it, when and why."""
    if queue.paused_at is None:  # resumed since
        return ""
    by = f", by {queue.paused_by}" if queue.paused_by else ""
    because = f": {queue.paused_because}" if queue.paused_because else ""
    return f"{by} since {exact(queue.paused_at)}{because}"
