"""A database and a clock for one test, lent to a `Holdfast` object that the tests share."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from holdfast.app import Holdfast
from holdfast.domain.job import Filter, Job
from holdfast.domain.limits import PAGE_ROWS_MAX
from holdfast.domain.states import State
from holdfast.testing.virtual_time import VirtualTime
from holdfast.worker.report import WorkerReport


class Sandbox:
    def __init__(self, hf: Holdfast, time: VirtualTime) -> None:
        self._hf = hf
        self._time = time

    async def drain(self, *, concurrency: int = 20, with_delayed: bool = False) -> WorkerReport:
        """Run all jobs that are due, and those that they enqueue, until none is left.

        With `with_delayed` time moves on to whatever waits (retries, snoozes, delays), until
        nothing does.
        """
        total = WorkerReport()
        while True:
            total += await self._hf.run_due(concurrency)
            due = await self._next_due() if with_delayed else None
            if due is None:
                return total
            self.advance((due - self._time.now()).total_seconds())

    async def _next_due(self) -> datetime | None:
        """When the next job is due that waits and has a handler."""
        waiting = await self.jobs(State.QUEUED)
        return min((job.run_at for job in waiting if job.name in self._hf.names), default=None)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._time.advance(seconds)

    async def jobs(self, *states: State) -> list[Job]:
        """All jobs in these states (any, if none is given), newest first."""
        found: list[Job] = []
        after = None
        while True:
            page = await self._hf.jobs.list(Filter(states=states), PAGE_ROWS_MAX, after)
            found += page.jobs
            after = page.after
            if after is None:
                return found


@asynccontextmanager
async def sandbox(hf: Holdfast) -> AsyncIterator[Sandbox]:
    """Lend `hf` an empty SQLite database and virtual time until the end of the block."""
    time = VirtualTime()
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        async with hf._borrowed(f"sqlite:///{Path(folder) / 'jobs.db'}", time):
            yield Sandbox(hf, time)
