"""Give a `Holdfast` object an empty database and a virtual clock for one test."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from holdfast.app import Holdfast
from holdfast.domain.job import Filter, Job
from holdfast.domain.states import State
from holdfast.operations.jobs import pages
from holdfast.testing.virtual_time import VirtualTime
from holdfast.worker.report import WorkerReport


class Sandbox:
    def __init__(self, hf: Holdfast, time: VirtualTime) -> None:
        self._hf = hf
        self._time = time

    async def drain(self, *, concurrency: int = 20, with_delayed: bool = False) -> WorkerReport:
        """Run all due jobs, and those that they enqueue, until none is left.

        With `with_delayed`, also advance time to run jobs that are due later: retries, snoozes and
        delayed jobs.
        """
        total = WorkerReport()
        while True:
            total += await self._hf.run_due(concurrency)
            due = await self._next_due() if with_delayed else None
            if due is None:
                return total
            self.advance((due - self._time.now()).total_seconds())

    async def _next_due(self) -> datetime | None:
        """Return when the next waiting job that has a handler is due."""
        waiting = await self.jobs(State.QUEUED)
        return min((job.run_at for job in waiting if job.name in self._hf.names), default=None)

    def advance(self, seconds: float) -> None:
        """Advance the virtual clock."""
        self._time.advance(seconds)

    async def jobs(self, *states: State) -> list[Job]:
        """List all jobs in these states, or in any state, newest first."""
        found = pages(self._hf.jobs, Filter(states=states))
        return [job async for page in found for job in page.jobs]


@asynccontextmanager
async def sandbox(hf: Holdfast) -> AsyncIterator[Sandbox]:
    """Run `hf` on an empty SQLite database and virtual time until the end of the block."""
    time = VirtualTime()
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        async with hf._borrowed(f"sqlite:///{Path(folder) / 'jobs.db'}", time):
            yield Sandbox(hf, time)
