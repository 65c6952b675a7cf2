"""The supervisor: keeps several worker processes alive, and stops them together."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from logging import INFO, WARNING

from holdfast.observability import logs
from holdfast.seam import Seam
from holdfast.worker import events
from holdfast.worker.backoff import Backoff
from holdfast.worker.processes import Launch, WorkerProcess, stopped_well

RESTART_SECONDS_MIN = 1.0
RESTART_SECONDS_MAX = 30.0
STEADY_SECONDS = 60.0  # a process that lived so long was no false start
STOP_SECONDS = 10.0  # what a worker may need to stop beyond its grace time

TakeBack = Callable[[str, str], Awaitable[object]]


class Supervisor:
    """Runs `count` processes of one launch. With `until_empty` one that ends well is not
    replaced. `take_back` frees at once what a process that crashed had leased."""

    def __init__(
        self,
        *,
        launch: Launch,
        count: int,
        until_empty: bool,
        grace_seconds: float,
        seam: Seam,
        take_back: TakeBack,
    ) -> None:
        self._launch = launch
        self._count = count
        self._until_empty = until_empty
        self._grace_seconds = grace_seconds
        self._seam = seam
        self._take_back = take_back
        self._processes: set[WorkerProcess] = set()
        self._signals = 0
        self._stopping = asyncio.Event()

    async def run(self) -> bool:
        """Work until told to stop, or until all is done; answer whether all ended well."""
        async with self._handling_signals():
            places = range(1, self._count + 1)
            return all(await asyncio.gather(*[self._fill(place) for place in places]))

    def _on_signal(self, number: signal.Signals) -> None:
        """Tell all processes. The second signal hurries them; late ones are killed."""
        hurry = self._stopping.is_set()
        name = signal.Signals(number).name
        message = f"{name}: stopping now" if hurry else f"{name}: finishing what runs"
        logs.event(INFO, "shutdown", message, count=len(self._processes))
        self._stopping.set()
        self._signals += 1
        for process in self._processes:
            process.tell_to_stop()
        wait_seconds = STOP_SECONDS if hurry else self._grace_seconds + STOP_SECONDS
        asyncio.get_running_loop().call_later(wait_seconds, self._kill_late)

    def _kill_late(self) -> None:
        for process in self._processes:
            process.kill_late()

    async def _fill(self, place: int) -> bool:
        """Keep one place filled; answer whether its last process ended well."""
        backoff = Backoff(self._seam, RESTART_SECONDS_MIN, RESTART_SECONDS_MAX)
        while True:
            started_at = self._seam.monotonic()
            code = await self._run_one(f"{place}/{self._count}")
            if self._stopping.is_set():
                return stopped_well(code)
            if code == 0 and self._until_empty:
                return True
            if self._seam.monotonic() - started_at > STEADY_SECONDS:
                backoff.reset()
            wait_seconds = backoff.next_seconds()
            logs.event(
                INFO,
                "child_restarts",
                f"worker {place}/{self._count} starts again",
                delay_seconds=round(wait_seconds, 1),
            )
            if await self._stopped_within(wait_seconds):
                return code == 0

    async def _run_one(self, place: str) -> int:
        try:
            process = await self._launch.start(self._seam, f"holdfast {place}")
        except OSError as error:
            logs.event(WARNING, "child_ended", f"worker {place} could not be started: {error}")
            return 1
        self._processes.add(process)
        events.log_child_started(process.worker_id, process.pid, f"worker {place}")
        # A signal that came while it was being started has not reached it.
        for _ in range(self._signals):
            process.tell_to_stop()
        code = await process.wait()
        self._processes.discard(process)
        reason = process.reason(code)
        events.log_child_ended(process.worker_id, process.pid, f"worker {place} {reason}", code)
        if code and not (self._stopping.is_set() and stopped_well(code)):
            await self._take_back(process.worker_id, reason)
        return code

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    @asynccontextmanager
    async def _handling_signals(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)
