"""Suspects: jobs that may have killed their process run alone in one, where they harm nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from logging import WARNING

from holdfast.domain.job import Reclaimed
from holdfast.observability import logs
from holdfast.seam import Seam
from holdfast.worker import events
from holdfast.worker.backoff import Backoff
from holdfast.worker.processes import Launch, WorkerProcess, stopped_well

FALSE_STARTS_MAX = 2
STOP_SECONDS = 10.0

TakeBack = Callable[[str, str], Awaitable[Sequence[Reclaimed]]]


class Suspects:
    """Has them run in processes of their own, each a worker that runs one suspect after the other
    and ends when none is due.

    `find_launch` answers how such a process is started, or None: then, or if two in a row don't
    come to work, `run_here` is called instead. `take_back` frees what a process that died had
    leased; `look` asks how many suspects wait, and calls `found` again.
    """

    def __init__(
        self,
        *,
        find_launch: Callable[[], Launch | None],
        run_here: Callable[[], None],
        take_back: TakeBack,
        look: Callable[[], Awaitable[None]],
        died: Callable[[BaseException], None],
        processes_max: int,
        seam: Seam,
    ) -> None:
        self._find_launch = find_launch
        self._run_here = run_here
        self._take_back = take_back
        self._look = look
        self._died = died
        self._processes_max = processes_max
        self._seam = seam
        self._launch: Launch | None = None
        self._usable = True
        self._places = 0
        self._processes: set[WorkerProcess] = set()
        self._backoff = Backoff(seam, 0.5, 2.0)
        self._false_starts = 0
        self._signals = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def found(self, count: int) -> None:
        """So many wait: have as many processes, up to the most that is allowed."""
        if self._usable and self._launch is None:
            self._launch = self._find_launch()
        if not self._usable or self._launch is None:
            self._usable = False
            self._run_here()
            return
        while not self._signals and self._places < min(count, self._processes_max):
            self._places += 1
            task = asyncio.get_running_loop().create_task(self._fill(self._launch))
            self.tasks.add(task)
            task.add_done_callback(self._forget)

    def stop(self) -> None:
        """Let the processes finish their jobs, or hand them back; the second call hurries."""
        self._signals += 1
        for process in self._processes:
            process.tell_to_stop()

    async def end(self) -> None:
        """Wait for all to end, and kill the late ones."""
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=STOP_SECONDS)
        for process in self._processes:
            process.kill_late()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _fill(self, launch: Launch) -> None:
        try:
            died = await self._run_process(launch)
        except OSError as error:
            died = True
            self._count_false_start(str(error))
        finally:
            self._places -= 1
        if died and not self._signals:
            if self._false_starts:
                await self._backoff.wait()
            await self._look()

    async def _run_process(self, launch: Launch) -> bool:
        """Start one and wait for its end; answer whether it died."""
        process = await launch.start(self._seam, "holdfast alone", suspects_only=True)
        self._processes.add(process)
        events.log_child_started(process.worker_id, process.pid, "runs suspects, one at a time")
        # A signal that came while it was being started has not reached it.
        for _ in range(self._signals):
            process.tell_to_stop()
        code = await process.wait()
        self._processes.discard(process)
        reason = process.reason(code)
        events.log_child_ended(process.worker_id, process.pid, reason, code)
        died = code != 0 and not (self._signals and stopped_well(code))
        if died and not await self._take_back(process.worker_id, reason):
            self._count_false_start(reason)
        else:
            self._false_starts = 0
        return died

    def _count_false_start(self, reason: str) -> None:
        """It ended before it had a job: the module can't be imported again, say."""
        self._false_starts += 1
        if self._usable and self._false_starts >= FALSE_STARTS_MAX:
            self._usable = False
            logs.event(
                WARNING,
                "alone_unavailable",
                "processes for suspects don't come to work; this worker runs suspects itself, and"
                f" nothing else meanwhile: the last one {reason}",
            )

    def _forget(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._died(error)
