"""`hf.queues`: pause, resume, cap, drain and purge queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

from holdfast.domain.errors import ConfigurationError, WrongState
from holdfast.domain.job import Filter
from holdfast.domain.limits import PURGE_ROWS_MAX, QUEUE_RUNNING_MAX
from holdfast.domain.queues import QueueStatus
from holdfast.domain.states import State
from holdfast.domain.texts import check_name
from holdfast.domain.times import exact
from holdfast.operations.bulk import Choice, Progress, cancel_together, make_pace
from holdfast.operations.desk import Desk, check_operator
from holdfast.operations.jobs import Jobs
from holdfast.stores.protocol import QueueControl, require

LOOK_SECONDS = 1.0
LOOKS_TO_BE_SURE = 2


class Queues:
    def __init__(self, desk: Desk, jobs: Jobs) -> None:
        self._desk = desk
        self._jobs = jobs

    async def list(self) -> Sequence[QueueStatus]:
        """The queues that have live jobs, or of which an operator has said something."""
        return await (await self._desk.store()).queues()

    async def pause(self, queue: str, *, by: str | None = None, because: str | None = None) -> None:
        """Let no job of the queue start, on any worker, until `resume`; what runs goes on.

        WrongState says who paused it if it is paused already.
        """
        check_name("queue", queue)
        check_operator(by, because)
        if not await (await self._control()).pause(queue, by, because):
            found = await self._queue(queue)
            raise WrongState(
                f"queue {queue} has already been paused{_told(found)}; nothing was changed"
            )

    async def resume(self, queue: str) -> None:
        """Let the jobs of a paused queue start again."""
        check_name("queue", queue)
        if not await (await self._control()).resume(queue):
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
        await (await self._control()).cap(queue, running_max)

    async def drain(
        self, queue: str, *, by: str | None = None, because: str | None = None
    ) -> AsyncIterator[QueueStatus]:
        """Pause the queue and wait until none of its jobs runs; yield how it stands, each second.

        It stays paused then. A queue that was paused before is drained all the same.
        """
        check_name("queue", queue)
        check_operator(by, because)
        await (await self._control()).pause(queue, by, because)
        quiet = 0
        while True:
            found = await self._queue(queue)
            if not found.paused:
                raise WrongState(f"queue {queue} was resumed while it was being drained")
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
        return await self._jobs.choose(Filter(states=states, queue=queue))

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
        store = await self._desk.store()
        steps = cancel_together(store, jobs, pace, self._desk.seam(), waiting_only=not running)
        async for progress in steps:
            yield progress

    async def _control(self) -> QueueControl:
        return require(await self._desk.store(), QueueControl, "pause or cap queues")

    async def _queue(self, name: str) -> QueueStatus:
        return next(
            (each for each in await self.list() if each.name == name), QueueStatus(name=name)
        )


def _told(queue: QueueStatus) -> str:
    """Who paused it, when and why."""
    if queue.paused_at is None:  # resumed since
        return ""
    by = f", by {queue.paused_by}" if queue.paused_by else ""
    because = f": {queue.paused_because}" if queue.paused_because else ""
    return f"{by} since {exact(queue.paused_at)}{because}"
