"""The watchdog: ends a process whose event loop is blocked by a handler that is past its time, or
past the time in which its worker has to stop."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Sequence
from logging import ERROR
from typing import Any, Protocol

from holdfast.context import current_context
from holdfast.domain.batches import batches, settled_bytes
from holdfast.domain.job import Settlement
from holdfast.domain.limits import ERROR_FRAMES_MAX, SETTLE_BATCH_MAX, SETTLE_BYTES_MAX
from holdfast.observability import logs
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store
from holdfast.worker.deadline import BLOCKED_CODE, TELL_SECONDS_MAX, StopDeadline
from holdfast.worker.run import Run

LOOK_SECONDS_MAX = 5.0
ANSWER_SECONDS = 1.0
QUESTIONS = 4
WRITE_SECONDS_MAX = 3.0


class Watched(Protocol):
    """What the watchdog asks the runner, from another thread."""

    def unsettled(self) -> list[Run]:
        """The runs that have not ended."""

    def settlements_under_way(self) -> list[Settlement]:
        """How runs have ended, where that is not yet acknowledged."""

    def time_out(self, run: Run, text: str) -> Settlement: ...

    def release(self, run: Run) -> Settlement: ...

    def kill_children(self) -> None:
        """End what handlers of executor="process" do."""


class Watchdog:
    """Runs on the keeper's thread and store: a loop that is blocked can't say so itself.

    A handler that waits is ended by its own timeout. One that blocks the loop can't be: every
    other job of the process stands still with it, and no thread can be made to stop. So its job
    is settled, the others are handed back, and the process ends. If the loop is blocked when the
    worker has to stop, all are handed back: a deploy is no failure.
    """

    def __init__(
        self, watched: Watched, seam: Seam, settings: Settings, deadline: StopDeadline
    ) -> None:
        self._watched = watched
        self._seam = seam
        self._settings = settings
        self._deadline = deadline
        self._workers_loop = asyncio.get_running_loop()
        self._workers_thread = threading.get_ident()

    async def run(self, store: Store) -> None:
        while True:
            await asyncio.sleep(self._seconds_to_next_look())
            if self._is_late() and await self._is_blocked() and self._is_late():
                try:
                    await self._end(store)
                finally:
                    self._seam.exit(BLOCKED_CODE)

    def _seconds_to_next_look(self) -> float:
        times = [run.gives_up_at for run in self._watched.unsettled() if run.gives_up_at]
        until = min(times, default=float("inf")) - self._seam.monotonic()
        most = min(self._settings.renewal_seconds, LOOK_SECONDS_MAX)
        return min(max(until, ANSWER_SECONDS / QUESTIONS), most)

    def _is_late(self) -> bool:
        return self._deadline.is_overdue or bool(self._overdue())

    def _overdue(self) -> list[Run]:
        now = self._seam.monotonic()
        unsettled = self._watched.unsettled()
        return [run for run in unsettled if run.gives_up_at and run.gives_up_at < now]

    async def _is_blocked(self) -> bool:
        """Does the loop not turn? Several short waits, because a process that was stopped and
        continued has to get some time to answer."""
        turned = threading.Event()
        try:
            self._workers_loop.call_soon_threadsafe(turned.set)
        except RuntimeError:
            return False  # The loop is closed: the worker has ended.
        for _ in range(QUESTIONS):
            await asyncio.sleep(ANSWER_SECONDS / QUESTIONS)
            if turned.is_set():
                return False
        return True

    async def _end(self, store: Store) -> None:
        unsettled = self._watched.unsettled()
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
        await self._tell(blocking, f"{past}; the process is exiting: {where}{trouble}")

    async def _settle_all(
        self, store: Store, unsettled: Sequence[Run], guilty: Sequence[Run]
    ) -> str:
        """Write what can be written in a few seconds, and answer what was in the way."""
        # What is handed back may start elsewhere at once.
        self._watched.kill_children()
        # One that its own transaction settles is left to that, or to the end of its lease.
        ours = [run for run in unsettled if not run.context.settles_itself]
        troubles = await self._write(store, [self._time_out(run) for run in ours if run in guilty])
        innocent = [run for run in ours if run not in guilty]
        troubles += await self._write(store, [self._watched.release(run) for run in innocent])
        # Last, because they may be locked by a connection that stands still with the loop.
        troubles += await self._write(store, self._watched.settlements_under_way())
        return f"; leases left to expire: {len(troubles)} ({troubles[0]})" if troubles else ""

    def _culprit(self, runs: Sequence[Run]) -> Run | None:
        """Whose code does the loop's thread run?"""
        task: Any = asyncio.current_task(self._workers_loop)
        for run in runs:
            if run.task is task:
                return run
        # A task that the handler has started: its context is a copy of the handler's. Python 3.11
        # does not show it.
        context = task.get_context().get(current_context) if hasattr(task, "get_context") else None
        return next((run for run in runs if run.context is context), None)

    def _time_out(self, run: Run) -> Settlement:
        seconds = self._seam.monotonic() - run.started_monotonic
        text = f"blocked the event loop; after {seconds:.1f} s its process was ended"
        return self._watched.time_out(run, text)

    async def _write(self, store: Store, settlements: Sequence[Settlement]) -> list[str]:
        """Write many at once; where one of them is locked or refused, each for itself."""
        troubles: list[str] = []
        for batch in batches(settlements, SETTLE_BATCH_MAX, SETTLE_BYTES_MAX, settled_bytes):
            found = [await self._trouble(store, batch)]
            if any(found) and len(batch) > 1:
                found = await asyncio.gather(*[self._trouble(store, [one]) for one in batch])
            troubles += filter(None, found)
        return troubles

    async def _trouble(self, store: Store, batch: Sequence[Settlement]) -> str:
        """Write, and answer what was in the way."""
        try:
            async with asyncio.timeout(WRITE_SECONDS_MAX):
                await store.settle(batch)
        except TimeoutError:
            return "the database did not answer in time"
        except Exception as error:
            return str(error) or repr(error)
        return ""

    def _where(self) -> str:
        """Where the loop's thread stands."""
        frame = sys._current_frames().get(self._workers_thread)
        frames = traceback.extract_stack(frame)[-ERROR_FRAMES_MAX:]
        return " > ".join(f"{each.name} ({each.filename}:{each.lineno})" for each in frames)

    async def _tell(self, blocking: Sequence[Run], message: str) -> None:
        """Log it, but not for long: what the handler blocks in may be the log itself."""

        def tell() -> None:
            if not blocking:
                logs.event(ERROR, "blocked", f"the event loop is blocked {message}")
            for run in blocking:
                self._log(run, f"the handler blocks the event loop {message}")

        telling = self._seam.threads("holdfast-last-words", 1).submit(tell)
        await asyncio.wait([asyncio.wrap_future(telling)], timeout=TELL_SECONDS_MAX)

    def _log(self, run: Run, message: str) -> None:
        job = run.job
        logs.event(
            ERROR,
            "blocked",
            message,
            job_id=job.id,
            name=job.name,
            queue=job.queue,
            attempt=job.attempt,
            fence=job.fence,
            duration_ms=round((self._seam.monotonic() - run.started_monotonic) * 1000, 2),
            correlation_id=job.correlation_id,
        )
