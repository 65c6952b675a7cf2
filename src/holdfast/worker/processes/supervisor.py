"""The supervisor: keeps several worker processes alive, and stops them together."""

from __future__ import annotations

import asyncio
import signal
from logging import INFO

from holdfast.domain.limits import STOP_SECONDS_MAX
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff, is_set_within
from holdfast.runtime.seam import Seam
from holdfast.worker.events import Events
from holdfast.worker.processes.launch import Launch, ProcessGroup, ReclaimWorker, stopped_well
from holdfast.worker.signals import handling_signals

RESTART_SECONDS_MIN = 1.0
RESTART_SECONDS_MAX = 30.0
STEADY_SECONDS = 60.0  # a process that lived this long was no false start
KILL_SECONDS = STOP_SECONDS_MAX + 5.0  # after the grace time


class Supervisor:
    """Runs `count` processes of one launch. With `until_empty`, a process that exits with 0 is not
    replaced."""

    def __init__(
        self,
        *,
        launch: Launch,
        count: int,
        until_empty: bool,
        grace_seconds: float,
        seam: Seam,
        reclaim: ReclaimWorker,
        events: Events,
    ) -> None:
        self._launch = launch
        self._count = count
        self._until_empty = until_empty
        self._grace_seconds = grace_seconds
        self._seam = seam
        self._events = events
        self._processes = ProcessGroup(seam, reclaim, events, "worker")
        self._stopping = asyncio.Event()

    async def run(self) -> bool:
        """Work until a signal, or until all is done; return whether all processes ended well."""
        async with handling_signals(self._seam, self._on_signal):
            places = range(1, self._count + 1)
            return all(await asyncio.gather(*[self._fill(place) for place in places]))

    def _on_signal(self, number: signal.Signals) -> None:
        """Stop all processes. The second signal hurries them; late ones are killed."""
        hurry = self._stopping.is_set()
        self._events.signaled(number.name, hurry, len(self._processes))
        self._stopping.set()
        self._processes.stop()
        wait_seconds = KILL_SECONDS if hurry else self._grace_seconds + KILL_SECONDS
        asyncio.get_running_loop().call_later(wait_seconds, self._processes.kill_late)

    async def _fill(self, place: int) -> bool:
        """Keep one process running; return False if the last one failed."""
        name = f"{place}/{self._count}"
        backoff = Backoff(self._seam, RESTART_SECONDS_MIN, RESTART_SECONDS_MAX)
        while True:
            started_at = self._seam.monotonic()
            ended = await self._processes.run(self._launch, f"holdfast {name}", f"worker {name}")
            if self._stopping.is_set():
                return stopped_well(ended.code)
            if ended.code == 0 and self._until_empty:
                return True
            if self._seam.monotonic() - started_at > STEADY_SECONDS:
                backoff.reset()
            wait_seconds = backoff.next_seconds()
            text = f"restarting worker {name}"
            logs.event(INFO, "child_restarts", text, delay_seconds=round(wait_seconds, 1))
            if await is_set_within(self._stopping, wait_seconds):
                return ended.code <= 0  # a killed one would have been replaced
