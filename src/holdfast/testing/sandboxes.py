"""Give a `Holdfast` object an empty database and a clock that tests move."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from uuid import UUID

from holdfast.app import Holdfast
from holdfast.domain.errors import ConfigurationError, JobFailed
from holdfast.domain.job import Filter, Job
from holdfast.domain.states import DEAD_STATES, State
from holdfast.job_function import JobFunction
from holdfast.operations.jobs import pages
from holdfast.runtime.blocking import blocking, entered_sync, refuse_on_loop, wait_for
from holdfast.runtime.seam import Seam
from holdfast.testing.borrowed import borrowed
from holdfast.testing.databases import Database, private_database
from holdfast.testing.runs import Runs
from holdfast.worker.report import WorkerReport
from holdfast.worker.sweeps import SweepContext


class Sandbox:
    """What `sandbox(hf)` gives to its block. `url` is the URL of the private database."""

    def __init__(self, hf: Holdfast, database: Database, runs: Runs) -> None:
        self.url = database.url
        self._hf = hf
        self._database = database
        self._runs = runs
        self._run_sync = hf._run_sync

    async def drain(
        self, *, concurrency: int = 20, with_delayed: bool = False, raise_errors: bool = False
    ) -> WorkerReport:
        """Run all due jobs, and those that they enqueue, until none is left, except remote ones.

        With `with_delayed`, also advance time to run jobs that are due later: retries, snoozes,
        delayed jobs, and what sweeps wait for. With `raise_errors`, raise at the end what the first
        failing handler raised, unless a retry succeeded; or JobFailed for a job that failed without
        an exception.
        """
        self._runs.errors.clear()
        failed_before = {job.id for job in await self.jobs(*DEAD_STATES)} if raise_errors else set()
        total = WorkerReport()
        while True:
            total += await self._hf.run_due(concurrency)
            seconds = await self._seconds_to_next() if with_delayed else None
            if seconds is None:
                break
            await self.advance(seconds)
        if raise_errors:
            await self._raise_first(failed_before)
        return total

    async def _seconds_to_next(self) -> float | None:
        """Return when the next waiting job that has a handler is due, or a sweep."""
        definitions = self._hf._definitions
        own = {name for name, each in definitions.items() if not each.is_remote}
        waiting = await self.jobs(State.QUEUED)
        now = await self.now()
        due = [(job.run_at - now).total_seconds() for job in waiting if job.name in own]
        due += [seconds async for seconds in self._sweep()]
        return max(0.0, min(due)) if due else None

    async def _sweep(self) -> AsyncIterator[float]:
        context = SweepContext(self._hf._seam.identity())
        for sweep in self._hf._sweeps:
            if (seconds := await sweep.function(context)) is not None:
                yield seconds

    async def _raise_first(self, failed_before: set[UUID]) -> None:
        for job_id, error in self._runs.errors.items():
            if (await self._hf.get(job_id)).state is not State.SUCCEEDED:
                raise error
        for job in reversed(await self.jobs(*DEAD_STATES)):
            if job.id not in failed_before:
                raise JobFailed(job)

    async def advance(self, seconds: float) -> None:
        """Let time pass: delays, retries, leases, expiries and breakers follow.

        On SQLite this moves the clock. The clock of a PostgreSQL server can't be moved, so there it
        moves all times that Holdfast has recorded into the past.
        """
        if seconds < 0:
            raise ValueError(f"time can't go backward: {seconds:g} s")
        await self._database.advance(self._hf, seconds)

    async def now(self) -> datetime:
        """Return the time by the sandbox's clock."""
        return await self._hf.now()

    async def jobs(self, *states: State) -> list[Job]:
        """List all jobs in these states, or in any state, newest first."""
        found = pages(self._hf.jobs, Filter(states=states))
        return [job async for page in found for job in page.jobs]

    def crash_before_commit(self, job_function: JobFunction[..., object], times: int = 1) -> None:
        """Make the worker die after each of the next `times` runs of this job, before it settles.

        The handler runs to its end, but that is not recorded: the lease expires, and `drain` runs
        the job again. What the handler wrote in `ctx.completing()` is rolled back. All its other
        effects stay, so check that the second run does not repeat them.
        """
        if job_function.name not in self._hf.names:
            raise ConfigurationError(f"{job_function.name} is not a job of the sandbox's object")
        self._runs.crash(job_function.name, times)

    drain_sync = blocking(drain)
    advance_sync = blocking(advance)
    now_sync = blocking(now)
    jobs_sync = blocking(jobs)


@asynccontextmanager
async def sandbox(hf: Holdfast, url: str | None = None) -> AsyncIterator[Sandbox]:
    """Run `hf` on an empty database until the end of the block.

    The database is an SQLite file with a virtual clock. With the URL of a PostgreSQL server, it is
    a new database on that server, with your tables, and is dropped at the end; the role in the URL
    needs the right to create databases.
    """
    async with private_database(url) as database:
        runs = Runs(hf._definitions, partial(database.expire, hf))
        async with borrowed(hf, database.url, database.seam, runs.around(hf._middleware)):
            await hf.migrate()
            yield Sandbox(hf, database, runs)


@contextmanager
def sandbox_sync(hf: Holdfast, url: str | None = None) -> Iterator[Sandbox]:
    """`sandbox` for tests without an event loop: use `drain_sync` and the other `_sync` methods."""
    refuse_on_loop("sandbox_sync", "async with sandbox(hf)")
    loop = Seam().side_loop("holdfast-sandbox")
    try:
        with entered_sync(lambda work: wait_for(loop.submit(work)), sandbox(hf, url)) as entered:
            yield entered
    finally:
        loop.close()
