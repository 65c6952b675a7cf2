"""The quarantine: jobs that may have killed their process run alone in one, where they harm no
other job."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from logging import WARNING

from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.seam import Seam
from holdfast.worker.events import Events
from holdfast.worker.processes.launch import Launch, ProcessGroup, ReclaimWorker

FALSE_STARTS_MAX = 2
TRY_AGAIN_SECONDS = 300.0


class Quarantine:
    """Runs suspects in separate processes. Each is a worker that runs one suspect after the other
    and ends when none is due.

    `find_launch` returns how to start such a process, or None. In that case, or if two in a row
    fail to start, `run_here` is called instead for some minutes. `look` counts the waiting
    suspects, and calls `found` again.
    """

    def __init__(
        self,
        *,
        find_launch: Callable[[], Launch | None],
        run_here: Callable[[], None],
        reclaim: ReclaimWorker,
        events: Events,
        look: Callable[[], Awaitable[None]],
        died: Callable[[BaseException], None],
        processes_max: int,
        seam: Seam,
    ) -> None:
        self._find_launch = find_launch
        self._run_here = run_here
        self._look = look
        self._died = died
        self._processes_max = processes_max
        self._seam = seam
        self._launch: Launch | None = None
        self._here_until = seam.monotonic()
        self._places = 0
        self._processes = ProcessGroup(seam, reclaim, events, "suspects")
        self._backoff = Backoff(seam, 0.5, 2.0)
        self._false_starts = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def found(self, count: int) -> None:
        """Start a process for each waiting suspect, up to the limit."""
        launch = self._usable_launch()
        if launch is None:
            self._run_here()
            return
        while not self._processes.is_stopping and self._places < min(count, self._processes_max):
            self._places += 1
            task = asyncio.get_running_loop().create_task(self._fill(launch))
            self.tasks.add(task)
            task.add_done_callback(self._forget)

    def _usable_launch(self) -> Launch | None:
        if self._seam.monotonic() < self._here_until:
            return None
        self._launch = self._launch or self._find_launch()
        if self._launch is None:
            self._stay_here()
        return self._launch

    def _stay_here(self) -> None:
        self._here_until = self._seam.monotonic() + TRY_AGAIN_SECONDS

    def stop(self) -> None:
        """Let the processes finish or release their jobs. The second call hurries them."""
        self._processes.stop()

    async def end(self, seconds: float) -> None:
        """Wait for all processes to end, and kill those that are late."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=seconds)
        self._processes.kill_late()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _fill(self, launch: Launch) -> None:
        false_starts = self._false_starts
        try:
            ended = await self._processes.run(
                launch, "holdfast alone", "a quarantine process", suspects_only=True
            )
        finally:
            self._places -= 1
        if ended.had_work or not ended.died:
            self._false_starts = 0
        # Several processes that start together and fail are one false start.
        elif ended.had_work is False and self._false_starts == false_starts:
            self._count_false_start(ended.reason)
        if ended.died and not self._processes.is_stopping:
            if not ended.had_work:
                await self._backoff.wait()
            await self._look()

    def _count_false_start(self, reason: str) -> None:
        """It ended before it had a job, for example because the app's module can't be imported."""
        self._false_starts += 1
        if self._false_starts >= FALSE_STARTS_MAX:
            self._stay_here()
            logs.event(
                WARNING,
                "alone_unavailable",
                "quarantine processes can't start, so this worker runs suspects itself, one at a"
                f" time and nothing else beside them; the last process {reason}",
            )

    def _forget(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._died(error)
