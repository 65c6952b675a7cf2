"""Whatever happens to wake-ups, workers do every job, and none twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import pytest

from holdfast.app import Holdfast
from holdfast.domain.states import State
from holdfast.job_function import JobFunction
from holdfast.testing.messengers.faults import Fault, Faults
from holdfast.testing.messengers.wiring import Wiring

PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.2
NEVER_SECONDS = 10_000.0  # longer than any test: polling finds nothing
JOBS = 40
CUTS = 3


class App(NamedTuple):
    hf: Holdfast
    count: JobFunction[[int], None]


class Work:
    """The jobs of one test, and how often each was done."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._more = asyncio.Event()
        self.enqueued: list[int] = []
        self.done: Counter[int] = Counter()

    def app(self, *faults: Fault, poll_seconds: float = POLL_SECONDS) -> App:
        hf = self._wiring.app(Faults(*faults), poll_seconds=poll_seconds, grace_seconds=0.0)

        @hf.job(name="count")
        async def count(number: int) -> None:
            self.done[number] += 1
            self._more.set()

        return App(hf, count)

    async def enqueue(self, app: App, jobs: int) -> None:
        """Enqueue this many jobs: the first half one by one, the others at once."""
        first = len(self.enqueued)
        numbers = range(first, first + jobs)
        self.enqueued += numbers
        for number in numbers[: jobs // 2]:
            await app.count.enqueue(number)
        await app.hf.enqueue_many([app.count.call(number) for number in numbers[jobs // 2 :]])

    async def all_done(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.done) < len(self.enqueued):
                self._more.clear()
                await self._more.wait()

    async def check(self, hf: Holdfast) -> None:
        """Wait until every job has succeeded, at its first attempt, and was done once."""
        await self.all_done()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                jobs, _ = await hf.jobs.list(limit=1000)
                if all(job.state is State.SUCCEEDED for job in jobs):
                    break
                await asyncio.sleep(POLL_SECONDS / 4)
        assert [job.attempts for job in jobs] == [1] * len(self.enqueued)
        assert self.done == Counter(self.enqueued)


@asynccontextmanager
async def working(*apps: App) -> AsyncIterator[None]:
    """Run a worker of each app until the end of the block."""
    workers = [asyncio.create_task(app.hf.run_worker()) for app in apps]
    try:
        yield
    finally:
        for worker in workers:
            worker.cancel()
        for worker in workers:
            with suppress(asyncio.CancelledError):
                await worker


class PollingConformance:
    """For any way to learn of jobs, polling included."""

    pytestmark = pytest.mark.asyncio

    @pytest.mark.parametrize("fault", [None, *Fault])
    async def test_every_job_is_done_once(self, wiring: Wiring, fault: Fault | None) -> None:
        await self._run_all(wiring, *([] if fault is None else [fault]))

    async def test_every_job_is_done_once_despite_all_faults_together(self, wiring: Wiring) -> None:
        await self._run_all(wiring, *(each for each in Fault if each is not Fault.LOSE))

    async def _run_all(self, wiring: Wiring, *faults: Fault) -> None:
        work = Work(wiring)
        sender, first, second = (work.app(*faults) for _ in range(3))
        async with sender.hf, first.hf, second.hf:
            await work.enqueue(sender, JOBS // 4)  # before anybody listens
            async with working(first, second):
                await work.enqueue(sender, JOBS)
                await work.check(sender.hf)


class WakeupConformance(PollingConformance):
    """For what wakes workers, so that they need not poll."""

    async def test_jobs_start_without_polling(self, wiring: Wiring) -> None:
        work = Work(wiring)
        sender, app = (work.app(poll_seconds=NEVER_SECONDS) for _ in range(2))
        async with sender.hf, app.hf, working(app):
            for _ in range(5):  # a worker that starts or connects looks by itself, once each
                await work.enqueue(sender, 1)
                await work.all_done()
            await work.check(sender.hf)

    async def test_a_rolled_back_job_wakes_nobody_and_a_committed_one_does(
        self, wiring: Wiring
    ) -> None:
        work = Work(wiring)
        sender, app = (work.app(poll_seconds=NEVER_SECONDS) for _ in range(2))
        async with sender.hf, app.hf, working(app):
            for _ in range(3):
                with suppress(ZeroDivisionError):
                    async with sender.hf.transaction() as connection:
                        await sender.count.options(connection=connection).enqueue(-1)
                        raise ZeroDivisionError
                async with sender.hf.transaction() as connection:
                    work.enqueued.append(len(work.enqueued))
                    await sender.count.options(connection=connection).enqueue(work.enqueued[-1])
                await work.all_done()
            await work.check(sender.hf)

    async def test_cut_connections_cost_latency_only(self, wiring: Wiring) -> None:
        if wiring.cut is None:
            pytest.skip("this wiring can't be cut")
        work = Work(wiring)
        sender, first, second = (work.app() for _ in range(3))
        async with sender.hf, first.hf, second.hf, working(first, second):
            for _ in range(CUTS):
                await work.enqueue(sender, JOBS // 4)
                await wiring.cut()
                await work.enqueue(sender, JOBS // 4)
            await work.check(sender.hf)

    async def test_wakeups_return_by_themselves_after_a_cut(self, wiring: Wiring) -> None:
        if wiring.cut is None:
            pytest.skip("this wiring can't be cut")
        work = Work(wiring)
        sender, app = (work.app(poll_seconds=NEVER_SECONDS) for _ in range(2))
        async with sender.hf, app.hf, working(app):
            await work.enqueue(sender, 1)
            await work.all_done()
            await wiring.cut()
            await work.enqueue(sender, 1)
            await work.check(sender.hf)
