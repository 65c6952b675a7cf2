"""List, pause, resume, cap, drain, purge and wake queues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from holdfast.domain.errors import ConfigurationError, WrongState
from holdfast.domain.job import Filter
from holdfast.domain.limits import PURGE_ROWS_MAX, QUEUE_RUNNING_MAX
from holdfast.domain.queues import QueueStatus, is_pattern
from holdfast.domain.states import State
from holdfast.domain.texts import check_name
from holdfast.domain.times import exact
from holdfast.operations.desk import Desk, check_operator
from holdfast.operations.jobs import Jobs
from holdfast.operations.steps import Choice, Progress, cancel_together, in_steps, make_pace
from holdfast.runtime.blocking import blocking
from holdfast.stores.protocol import Listening, QueueControl, capability, require

LOOK_SECONDS = 1.0
LOOKS_TO_BE_SURE = 2


class Queues:
    """`hf.queues`: list, pause, resume, cap, drain, purge and wake queues."""

    def __init__(self, desk: Desk, jobs: Jobs) -> None:
        self._desk = desk
        self._jobs = jobs
        self._run_sync = desk.run_sync

    async def list(self) -> Sequence[QueueStatus]:
        """Return the queues that have live jobs, or that an operator paused or capped."""
        return await (await self._desk.store()).queues()

    async def get(self, queue: str) -> QueueStatus:
        """Return a queue. An unused queue is empty."""
        check_name("queue", queue)
        found = (each for each in await self.list() if each.name == queue)
        return next(found, QueueStatus(name=queue))

    async def names(self) -> set[str]:
        """Return the queues that jobs in the database have used, and those that jobs here name."""
        named = {each.queue for each in self._desk.definitions.values()}
        return named | {each.queue for each in await self._jobs.counts()}

    async def pause(self, queue: str, *, by: str | None = None, because: str | None = None) -> None:
        """Stop starting jobs of the queue, on all workers, until `resume`. Running jobs finish.

        Raises WrongState, which says by whom, if the queue is already paused.
        """
        await self._check_changeable(queue)
        check_operator(by, because)
        if not await (await self._control()).pause(queue, by, because):
            found = await self.get(queue)
            raise WrongState(
                f"queue {queue} has already been paused{_details(found)}; nothing was changed"
            )

    async def resume(self, queue: str) -> None:
        """Start the jobs of a paused queue again."""
        check_name("queue", queue)
        if not await (await self._control()).resume(queue):
            raise WrongState(f"queue {queue} is not paused; nothing was changed")

    async def cap(self, queue: str, running_max: int | None) -> None:
        """Run at most `running_max` jobs of the queue at once, across all workers.

        0 starts none; None removes the cap. Jobs that are already running finish.
        """
        await self._check_changeable(queue)
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
        """Pause the queue and wait until its running jobs have ended; yield its status each second.

        The queue stays paused. It may have been paused before.
        """
        await self._check_changeable(queue)
        check_operator(by, because)
        await (await self._control()).pause(queue, by, because)
        quiet = 0
        while True:
            found = await self.get(queue)
            if not found.paused:
                raise WrongState(f"queue {queue} was resumed while it was being drained")
            yield found
            quiet = 0 if found.running else quiet + 1
            # A claim that began before the pause may end after it.
            if quiet == LOOKS_TO_BE_SURE:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def purge_preview(self, queue: str, *, running: bool = False) -> Choice:
        """Return the jobs that `purge` would cancel now."""
        check_name("queue", queue)
        states = (State.QUEUED, State.RUNNING) if running else (State.QUEUED,)
        return await self._jobs.choose(Filter(states=states, queue=queue))

    async def purge(
        self,
        queue: str,
        jobs: Sequence[UUID] | None = None,
        *,
        running: bool = False,
        by: str | None = None,
        because: str | None = None,
        jobs_per_second: float | None = None,
    ) -> AsyncIterator[Progress]:
        """Cancel the waiting jobs of the queue, or those in `jobs`; yield the progress.

        They end as `canceled` and stay in the history, with `by` and `because` as the text of their
        error. With `running`, running jobs are canceled too. `jobs_per_second` limits the rate.
        """
        check_operator(by, because)
        pace = make_pace(jobs_per_second, PURGE_ROWS_MAX)
        if jobs is None:
            jobs = (await self.purge_preview(queue, running=running)).ids
        store = await self._desk.store()
        cancel = cancel_together(
            partial(store.cancel, waiting_only=not running, by=by, because=because)
        )
        async for progress in in_steps(cancel, jobs, pace, self._desk.seam()):
            yield progress

    async def wake(self, queue: str, *, connection: Any = None) -> None:
        """Have workers look at the queue now: for jobs, and with its sweeps.

        With `connection`, they look when that connection's transaction has been committed.
        """
        check_name("queue", queue)
        if connection is not None:
            await self._desk.through(connection, "wake", lambda enrolled: enrolled.wake(queue))
        elif (store := capability(await self._desk.store(), Listening)) is not None:
            await store.wake(queue)

    async def _check_changeable(self, queue: str) -> None:
        """Any queue can be changed before its first job, unless its name looks like a pattern."""
        check_name("queue", queue)
        if is_pattern(queue) and queue not in await self.names():
            raise ConfigurationError(
                f"{queue!r}: queues can't be selected by pattern; name one queue"
            )

    async def _control(self) -> QueueControl:
        return require(await self._desk.store(), QueueControl, "pause or cap queues")

    list_sync = blocking(list)
    get_sync = blocking(get)
    names_sync = blocking(names)
    pause_sync = blocking(pause)
    resume_sync = blocking(resume)
    cap_sync = blocking(cap)
    drain_sync = blocking(drain)
    purge_preview_sync = blocking(purge_preview)
    purge_sync = blocking(purge)
    wake_sync = blocking(wake)


def _details(queue: QueueStatus) -> str:
    if queue.paused_at is None:  # resumed since
        return ""
    by = f", by {queue.paused_by}" if queue.paused_by else ""
    because = f": {queue.paused_because}" if queue.paused_because else ""
    return f"{by} since {exact(queue.paused_at)}{because}"
