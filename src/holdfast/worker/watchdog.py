"""The watchdog: exits the process if a handler blocks the event loop past its timeout, or past the
time in which the worker has to stop. Before that, it releases what waits behind such a handler."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Sequence
from functools import partial
from logging import ERROR
from typing import Any

from holdfast.context import current_context
from holdfast.domain.batches import batches, settled_bytes
from holdfast.domain.job import Settlement
from holdfast.domain.limits import ERROR_FRAMES_MAX, SETTLE_BATCH_MAX, SETTLE_BYTES_MAX
from holdfast.domain.outcomes import Released
from holdfast.observability import logs
from holdfast.stores.protocol import Store
from holdfast.worker.deadline import BLOCKED_CODE, LOG_SECONDS_MAX, StopDeadline
from holdfast.worker.prefetch import Prefetch
from holdfast.worker.processes.pool import Children
from holdfast.worker.run import Run
from holdfast.worker.runner import Runner
from holdfast.worker.setup import Setup

LOOK_SECONDS_MAX = 5.0
ANSWER_SECONDS = 1.0
QUESTIONS = 4
WRITE_SECONDS_MAX = 3.0
PREFETCHED_OVERDUE_SECONDS = 1.0  # a loop that turns would have released them


class Watchdog:
    """Runs on the keeper's thread and store: a blocked loop can't report itself.

    A handler that waits is ended by its own timeout. One that blocks the loop can't be ended: all
    other jobs of the process stop with it, and no thread can be killed. So the watchdog settles its
    job, releases the others and exits the process. If the loop is blocked when the worker has to
    stop, it releases all jobs: a deploy is no failure.
    """

    def __init__(
        self,
        runner: Runner,
        prefetch: Prefetch,
        children: Children,
        setup: Setup,
        deadline: StopDeadline,
    ) -> None:
        self._runner = runner
        self._prefetch = prefetch
        self._children = children
        self._seam = setup.seam
        self._settings = setup.settings
        self._deadline = deadline
        self._workers_loop = asyncio.get_running_loop()
        self._workers_thread = threading.get_ident()

    async def run(self, store: Store) -> None:
        while True:
            await asyncio.sleep(self._seconds_to_next_look())
            await self._release_prefetched(store)
            if self._is_late() and await self._is_blocked() and self._is_late():
                try:
                    await self._end(store)
                finally:
                    self._seam.exit(BLOCKED_CODE)

    async def _release_prefetched(self, store: Store) -> None:
        """Release what waits behind a handler that blocks the loop: other workers may be idle."""
        runs = self._prefetch.take_overdue(PREFETCHED_OVERDUE_SECONDS)
        if not runs:
            return
        endings = []
        for run in runs:
            run.settlement = self._runner.decide(run, self._runner.unstarted(run))
            endings.append((run, run.settlement))
        troubles = await self._write(store, [settlement for _, settlement in endings])
        report = partial(self._runner.released_unstarted, endings, are_written=not troubles)
        self._workers_loop.call_soon_threadsafe(report)

    def _seconds_to_next_look(self) -> float:
        times = [run.gives_up_at for run in self._runner.unsettled() if run.gives_up_at]
        until = min(times, default=float("inf")) - self._seam.monotonic()
        most = min(self._settings.renewal_seconds, LOOK_SECONDS_MAX)
        return min(max(until, ANSWER_SECONDS / QUESTIONS), most)

    def _is_late(self) -> bool:
        return self._deadline.is_overdue or bool(self._overdue())

    def _overdue(self) -> list[Run]:
        now = self._seam.monotonic()
        unsettled = self._runner.unsettled()
        return [run for run in unsettled if run.gives_up_at and run.gives_up_at < now]

    async def _is_blocked(self) -> bool:
        """Check that the loop turns. Wait several times: a process that was stopped and continued
        needs some time to answer."""
        turned = threading.Event()
        try:
            self._workers_loop.call_soon_threadsafe(turned.set)
        except RuntimeError:
            return False  # the loop is closed: the worker has ended
        for _ in range(QUESTIONS):
            await asyncio.sleep(ANSWER_SECONDS / QUESTIONS)
            if turned.is_set():
                return False
        return True

    async def _end(self, store: Store) -> None:
        unsettled = self._runner.unsettled()
        culprit = self._culprit(unsettled)
        overdue = self._overdue()
        blocking = [culprit] if culprit else overdue
        guilty = blocking if overdue else []
        past = "past its timeout" if overdue else "although the worker has to stop"
        where = self._where()
        try:
            trouble = await self._settle_all(store, unsettled, guilty)
        except Exception as error:
            trouble = f"; all leases are left to expire: {error!r}"
        await self._log(blocking, f"{past}; the process is exiting: {where}{trouble}")

    async def _settle_all(
        self, store: Store, unsettled: Sequence[Run], guilty: Sequence[Run]
    ) -> str:
        """Write what can be written in a few seconds; return what went wrong."""
        # A released job may start elsewhere at once.
        self._children.kill()
        # A job that its own transaction settles is left to that, or to the end of its lease.
        ours = [run for run in unsettled if not run.context._settles_itself]
        troubles = await self._write(store, [self._time_out(run) for run in ours if run in guilty])
        innocent = [run for run in ours if run not in guilty]
        released = [
            self._runner.decide(run, Released() if run.has_started else self._runner.unstarted(run))
            for run in innocent
        ]
        troubles += await self._write(store, released)
        # Last, because a connection of the blocked loop may have locked them.
        troubles += await self._write(store, self._runner.settler.under_way())
        return f"; leases left to expire: {len(troubles)} ({troubles[0]})" if troubles else ""

    def _culprit(self, runs: Sequence[Run]) -> Run | None:
        """The run whose code blocks the loop's thread."""
        task: Any = asyncio.current_task(self._workers_loop)
        for run in runs:
            if run.task is task:
                return run
        # A task that the handler started has a copy of its context. Python 3.11 does not show it.
        context = task.get_context().get(current_context) if hasattr(task, "get_context") else None
        return next((run for run in runs if run.context is context), None)

    def _time_out(self, run: Run) -> Settlement:
        seconds = self._seam.monotonic() - run.started_monotonic
        text = f"blocked the event loop; its process was ended after {seconds:.1f} s"
        return self._runner.time_out(run, text)

    async def _write(self, store: Store, settlements: Sequence[Settlement]) -> list[str]:
        """Write in batches; if one fails, write each of its settlements separately."""
        troubles: list[str] = []
        for batch in batches(settlements, SETTLE_BATCH_MAX, SETTLE_BYTES_MAX, settled_bytes):
            found = [await self._trouble(store, batch)]
            if any(found) and len(batch) > 1:
                found = await asyncio.gather(*[self._trouble(store, [one]) for one in batch])
            troubles += filter(None, found)
        return troubles

    async def _trouble(self, store: Store, batch: Sequence[Settlement]) -> str:
        """Write; return what went wrong."""
        try:
            async with asyncio.timeout(WRITE_SECONDS_MAX):
                await store.settle(batch)
        except TimeoutError:
            return "the database did not answer in time"
        except Exception as error:
            return str(error) or repr(error)
        return ""

    def _where(self) -> str:
        """The stack of the loop's thread."""
        frame = sys._current_frames().get(self._workers_thread)
        frames = traceback.extract_stack(frame)[-ERROR_FRAMES_MAX:]
        return " > ".join(f"{each.name} ({each.filename}:{each.lineno})" for each in frames)

    async def _log(self, blocking: Sequence[Run], message: str) -> None:
        """Log, but wait only briefly: the log itself may be what the handler blocks in."""

        def log() -> None:
            if not blocking:
                logs.event(ERROR, "blocked", f"the event loop is blocked {message}")
            for run in blocking:
                seconds = self._seam.monotonic() - run.started_monotonic
                logs.event(
                    ERROR,
                    "blocked",
                    f"the handler blocks the event loop {message}",
                    job_id=run.job.id,
                    name=run.job.name,
                    queue=run.job.queue,
                    attempt=run.job.attempt,
                    fence=run.job.fence,
                    duration_ms=round(seconds * 1000, 2),
                    correlation_id=run.job.correlation_id,
                )

        logging = self._seam.threads("holdfast-last-words", 1).submit(log)
        await asyncio.wait([asyncio.wrap_future(logging)], timeout=LOG_SECONDS_MAX)
