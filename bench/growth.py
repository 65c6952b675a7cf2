"""What is measured of Holdfast alone: how it takes more of everything, and special loads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from statistics import median
from typing import Any

from bench.cases import (
    MEGABYTE,
    MEMORY_CONCURRENCY,
    Measuring,
    add_latency,
    enqueue,
    latency,
    percentile,
    pilot,
)
from bench.driver import Driver, Subject, SubjectFailed
from bench.machine import CORES, memory_bytes
from bench.past import write_past
from bench.targets import MEMORY_CASE
from holdfast import Holdfast, State
from holdfast.domain.job import Claimed, Settlement
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.rows import SQL
from holdfast.stores.protocol import Claim
from holdfast.stores.registry import make_store
from tests.support.processes import wait_until
from tests.support.running import working

CLAIM_JOBS = 100
CLAIM_REPEATS = 20
IMPORT_REPEATS = 7
DAY_SECONDS = 86_400
BURST_DELAY_SECONDS = 5
SAMPLES = 30
HELD_OPEN_ROUNDS = 5
WINDOW_SECONDS = 15.0
STREAM_JOBS_PER_SECOND = 500
BATCHES_PER_SECOND = 4
CAPPED_QUEUE = "queue-2"
CAP = 50
# What each worker serves, by what it is.
SERVED = {
    "a worker": "default",
    "a new worker": "queue-1",
    "a worker with caps": f"{CAPPED_QUEUE}:10",
    "an idle worker": "queue-3",
}
IDLE_SECONDS_MAX = 120.0
WAKE_SECONDS_MAX = 30.0
# Each with the jobs at a time that suit it: 0 for as many as there may be.
HANDLERS = {"nothing": 0, "wait": 0, "burn-thread": 20, "burn-process": CORES}
WORKERS_CONCURRENCY = 100
QUEUE = "default"

Case = Callable[[Measuring, Subject], None]


def finished(measuring: Measuring, subject: Subject) -> None:
    jobs = pilot(measuring, subject)
    with ExitStack() as stack:
        drivers = {
            behind: stack.enter_context(measuring.driving(subject, f"{behind:,} finished"))
            for behind in measuring.scale.finished
        }
        for behind, driver in drivers.items():
            _write_past(measuring, driver, behind)
        for _ in range(measuring.scale.growth_rounds):
            for behind, driver in drivers.items():
                measuring.tell(f"{subject.name}: drain after {behind:,} finished")
                driver.ask("bulk", jobs)
                claiming = asyncio.run(_claim_seconds(driver.url))
                measuring.add(subject, "claim after finished", claiming * 1000, "ms", behind)
                rate = jobs / driver.drain(jobs).seconds
                measuring.add(subject, "drain after finished", rate, "jobs/s", behind)
        if not measuring.scale.only_drains:
            for behind, driver in drivers.items():
                add_latency(measuring, driver, "pick-up after finished", behind)


def _write_past(measuring: Measuring, driver: Driver, jobs: int) -> None:
    if jobs:
        asyncio.run(
            write_past(driver.url, jobs, lambda done: measuring.tell(f"{done:,} of {jobs:,}"))
        )


async def _claim_seconds(url: str) -> float:
    """The median time of a claim; claimed jobs are released."""
    store = make_store(url, Seam(), Holdfast(url).settings)
    await store.open()
    claimed: list[Claimed] = []
    seconds = []
    for _ in range(CLAIM_REPEATS):
        began = time.perf_counter()
        claimed += await store.claim(Claim("bench", CLAIM_JOBS, 30.0, ["nothing"]))
        seconds.append(time.perf_counter() - began)
    back = [
        Settlement(job_id=job.id, fence=job.fence, state=State.QUEUED, attempt_back=True)
        for job in claimed
    ]
    await store.settle(back)
    await store.close()
    return median(seconds)


def queued(measuring: Measuring, subject: Subject) -> None:
    """The first of many, against all of few."""
    jobs = pilot(measuring, subject)
    for _ in range(measuring.scale.growth_rounds):
        for more in measuring.scale.queued:
            with measuring.driving(subject, f"{more:,} more queued") as driver:
                driver.ask("bulk", jobs + more)
                with driver.working():
                    driver.until_handled(jobs)
                seen = driver.handled()
                acknowledged = jobs + more - driver.unfinished()
                rate = acknowledged / (seen.last_at - seen.first_at)
                measuring.add(subject, "drain with queued", rate, "jobs/s", more)


def scheduled(measuring: Measuring, subject: Subject) -> None:
    jobs = pilot(measuring, subject)
    for ahead in measuring.scale.scheduled:
        with measuring.driving(subject, f"{ahead:,} scheduled ahead") as driver:
            if ahead:
                driver.ask("bulk", ahead, "--delay", DAY_SECONDS)
            driver.ask("bulk", jobs)
            rate = jobs / driver.drain(jobs, left=ahead).seconds
            measuring.add(subject, "drain with scheduled", rate, "jobs/s", ahead)


def workers(measuring: Measuring, subject: Subject) -> None:
    jobs = pilot(measuring, subject)
    for processes in measuring.scale.workers:
        what = f"drain by {processes}"
        with measuring.driving(subject, what, concurrency=WORKERS_CONCURRENCY) as driver:
            driver.ask("bulk", jobs)
            rate = jobs / driver.drain(jobs, processes).seconds
            measuring.add(subject, "drain by workers", rate, "jobs/s", processes)


def queues(measuring: Measuring, subject: Subject) -> None:
    jobs = pilot(measuring, subject)
    for number in measuring.scale.queues:
        with measuring.driving(subject, f"{number} queues") as driver:
            driver.ask("bulk", jobs, "--queues", number)
            rate = jobs / driver.drain(jobs).seconds
            measuring.add(subject, "drain by queues", rate, "jobs/s", number)


def payloads(measuring: Measuring, subject: Subject) -> None:
    jobs = pilot(measuring, subject)
    for size in measuring.scale.payloads:
        enqueue(measuring, subject, size)
        fewer = max(measuring.scale.drain_jobs_min, min(jobs, 100 * MEGABYTE // size))
        with measuring.driving(subject, f"payloads of {size:,} bytes") as driver:
            driver.ask("bulk", fewer, "--payload", size)
            rate = fewer / driver.drain(fewer).seconds
            measuring.add(subject, "drain by payload", rate, "jobs/s", size)


def handlers(measuring: Measuring, subject: Subject) -> None:
    for handler, concurrency in HANDLERS.items():
        said = {"handler": handler, "concurrency": concurrency}
        jobs = pilot(measuring, subject, **said)
        with measuring.driving(subject, f"handler: {handler}", **said) as driver:
            driver.ask("bulk", jobs)
            rate = jobs / driver.drain(jobs).seconds
            measuring.add(subject, f"drain, handler {handler}", rate, "jobs/s")


def held_open(measuring: Measuring, subject: Subject) -> None:
    """A worker drains again and again while a transaction keeps everything that died. Then it takes
    turns with one on another database: the machine itself may be twice as fast ten minutes later.
    """
    seconds = measuring.scale.held_open_seconds
    jobs = pilot(measuring, subject)
    with ExitStack() as stack:
        drivers = [
            stack.enter_context(measuring.driving(subject, what))
            for what in ("without a transaction", "a transaction held open")
        ]
        for driver in drivers:
            stack.enter_context(driver.working())
            _drain_again(driver, jobs)
        without, under = drivers
        stack.enter_context(measuring.place.held_open(under.url))
        began = time.monotonic()
        while (held := time.monotonic() - began) < seconds:
            measuring.tell(f"{subject.name}: transaction open for {held:.0f} s")
            _drain_again(under, jobs)
        for _ in range(HELD_OPEN_ROUNDS):
            for driver, x in ((without, 0.0), (under, seconds)):
                rate = _drain_again(driver, jobs)
                measuring.add(subject, "drain under an open transaction", rate, "jobs/s", x)


def pick_up_held_open(measuring: Measuring, subject: Subject) -> None:
    """How long jobs that come in bulk are on their way while a transaction keeps everything that
    died: to one worker from the start, one that is replaced halfway, one with a cap of its own and
    one of the queue, and one that is idle but for a job each second."""
    scale = measuring.scale
    with (
        measuring.driving(subject, "pick-up under an open transaction") as driver,
        ExitStack() as streams,
    ):
        asyncio.run(_cap(driver.url))
        workers = _Workers(driver)
        streams.enter_context(workers)
        for kind in SERVED:
            workers.start(kind)
        for stream in _streams(scale.held_pick_up_seconds):
            streams.enter_context(driver.beside(*subject.command, "stream", *stream))
        time.sleep(WINDOW_SECONDS)
        workers.latencies()  # of their start
        time.sleep(2 * WINDOW_SECONDS)
        _add_window(measuring, subject, workers, 0.0)
        with measuring.place.held_open(driver.url):
            began = time.monotonic()
            for window in range(1, int(scale.held_pick_up_seconds / WINDOW_SECONDS) + 1):
                time.sleep(max(0.0, began + window * WINDOW_SECONDS - time.monotonic()))
                measuring.tell(f"{subject.name}: open for {window * WINDOW_SECONDS:.0f} s")
                _add_window(measuring, subject, workers, window * WINDOW_SECONDS)
                if window == scale.held_pick_up_seconds // WINDOW_SECONDS // 2:
                    workers.start("a new worker")


def _streams(seconds: float) -> list[tuple[object, ...]]:
    """The arguments of both: one to all but the idle worker, and one to that."""
    longer = int(2 * seconds + 10 * WINDOW_SECONDS)
    jobs, batch = STREAM_JOBS_PER_SECOND * longer, STREAM_JOBS_PER_SECOND // BATCHES_PER_SECOND
    busy = (jobs, 1 / BATCHES_PER_SECOND, "--batch", batch, "--queues", len(SERVED) - 1)
    return [busy, (longer, 1.0, "--batch", 1, "--queue", len(SERVED) - 1)]


class _Workers(ExitStack):
    """One of each kind. What they have handled since the last look."""

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver
        self._each: dict[str, tuple[ExitStack, subprocess.Popen[str]]] = {}
        self._seen: dict[int, int] = {}

    def start(self, kind: str) -> None:
        """Start one, in the place of the one before."""
        if kind in self._each:
            self._each[kind][0].close()
        stack = self.enter_context(ExitStack())
        (worker,) = stack.enter_context(self._driver.working(queues=SERVED[kind]))
        self._each[kind] = stack, worker

    def latencies(self) -> dict[str, list[float]]:
        found = {}
        for kind, (_, worker) in self._each.items():
            all_of_them = self._driver.latencies_so_far(worker)
            found[kind] = sorted(all_of_them[self._seen.get(worker.pid, 0) :])
            self._seen[worker.pid] = len(all_of_them)
        return found


def _add_window(measuring: Measuring, subject: Subject, workers: _Workers, x: float) -> None:
    for kind, ascending in workers.latencies().items():
        for percent in (50, 99):
            case = f"pick-up under an open transaction, {kind} p{percent}"
            measuring.add(subject, case, percentile(ascending, percent) * 1000, "ms", x)


async def _cap(url: str) -> None:
    async with Holdfast(url) as hf:
        await hf.queues.cap(CAPPED_QUEUE, CAP)


def _drain_again(driver: Driver, jobs: int) -> float:
    """Fill the queue of a worker that runs already, and see how fast it gets empty."""
    handled = driver.handled().jobs
    asyncio.run(_pause(driver.url, paused=True))
    driver.ask("bulk", jobs)
    began = time.time()
    asyncio.run(_pause(driver.url, paused=False))
    return jobs / (driver.until_handled(handled + jobs).last_at - began)


async def _pause(url: str, *, paused: bool) -> None:
    async with Holdfast(url) as hf:
        await (hf.queues.pause(QUEUE) if paused else hf.queues.resume(QUEUE))


def memory(measuring: Measuring, subject: Subject) -> None:
    jobs = pilot(measuring, subject)
    concurrency = MEMORY_CONCURRENCY
    with measuring.driving(subject, "memory", concurrency=concurrency) as driver:
        driver.ask("bulk", jobs)
        taken = driver.drain(jobs).memory_bytes / MEGABYTE
        measuring.add(subject, MEMORY_CASE, taken, "MB")


def sustained(measuring: Measuring, subject: Subject) -> None:
    """A steady load: memory and dead tuples over time."""
    scale = measuring.scale
    with (
        measuring.driving(subject, "sustained load") as driver,
        driver.working() as (worker,),
    ):
        driver.ask("bulk", 1)
        driver.until_handled(1)
        began = time.monotonic()
        sent = 1
        next_sample = 0.0
        while (passed := time.monotonic() - began) < scale.sustained_seconds:
            due = int(passed * scale.sustained_jobs_per_second) - sent
            if due > 0:
                driver.ask("bulk", due)
                sent += due
            if passed >= next_sample:
                next_sample += scale.sustained_seconds / SAMPLES
                measuring.tell(f"{subject.name}: sustained for {passed:.0f} s")
                memory = memory_bytes(worker.pid, "VmRSS") / MEGABYTE
                measuring.add(subject, "memory over time", memory, "MB", round(passed))
                if subject.service == "postgresql":
                    dead = measuring.place.dead_tuples(driver.url)
                    measuring.add(subject, "dead tuples over time", dead, "rows", round(passed))
                    for part, size in measuring.place.sizes(driver.url).items():
                        case = f"size of the jobs' {part} over time"
                        measuring.add(subject, case, size / MEGABYTE, "MB", round(passed))
        driver.until_handled(sent)


def burst(measuring: Measuring, subject: Subject) -> None:
    """Many jobs that become due in the same second, before an idle worker."""
    jobs = measuring.scale.burst_jobs
    with measuring.driving(subject, f"a burst of {jobs:,}") as driver:
        with driver.working():
            driver.ask("bulk", jobs, "--delay", BURST_DELAY_SECONDS)
            seen = driver.until_handled(jobs)
        measuring.add(subject, "burst", jobs / (seen.last_at - seen.first_at), "jobs/s", jobs)


def polling(measuring: Measuring, subject: Subject) -> None:
    latency(measuring, subject, "pick-up by polling", wakeups="poll")


def start_of_python(measuring: Measuring, subject: Subject) -> None:
    """What a program that defines jobs takes to import, beyond the interpreter's own start. The
    package alone imports nothing."""

    def seconds(code: str) -> float:
        found = []
        for _ in range(IMPORT_REPEATS):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            found.append(time.perf_counter() - began)
        return median(found)

    taken = seconds("from holdfast import Holdfast") - seconds("pass")
    measuring.add(subject, "import holdfast", taken * 1000, "ms")


def idle_workers(measuring: Measuring, subject: Subject) -> None:
    """One job for many idle workers: how many claims does it cause?"""
    number = measuring.scale.idle_workers
    with measuring.driving(subject, f"{number} idle workers") as driver:
        claims = asyncio.run(claims_for_one_job(driver.url, number))
        measuring.add(subject, "claims for one job", claims, "claims", number)


class CountingSeam(Seam):
    """Counts the claims that go to PostgreSQL."""

    CLAIMS = tuple(SQL[name].sql for name in ("claim", "claim_named", "claim_onwards"))

    def __init__(self) -> None:
        super().__init__()
        self.claims = 0

    async def connect_postgres(self, url: str, **options: Any) -> Any:
        connection = await super().connect_postgres(url, **options)
        connection.add_query_logger(self._note)
        return connection

    def _note(self, query: Any) -> None:
        self.claims += query.query in self.CLAIMS


async def claims_for_one_job(url: str, workers: int) -> int:
    """They poll so rarely that only the one wake-up is counted."""
    seam, done = CountingSeam(), asyncio.Event()
    async with AsyncExitStack() as stack:
        apps = [Holdfast(url, seam=seam, poll_seconds=3600.0) for _ in range(workers)]
        jobs = []
        for app in apps:

            @app.job
            async def signal() -> None:
                done.set()

            jobs.append(signal)
            await stack.enter_async_context(app)
            await stack.enter_async_context(working(app, concurrency=1))
        await wait_until(lambda: seam.claims >= workers, "a look by each", IDLE_SECONDS_MAX)
        before = seam.claims
        await jobs[0].enqueue()
        try:
            await asyncio.wait_for(done.wait(), WAKE_SECONDS_MAX)
        except TimeoutError:
            raise SubjectFailed("no idle worker was woken") from None
        await asyncio.sleep(1.0)
        return seam.claims - before


POSTGRES: tuple[Case, ...] = (
    memory,
    finished,
    queued,
    scheduled,
    workers,
    queues,
    payloads,
    handlers,
    polling,
    burst,
    idle_workers,
    held_open,
    pick_up_held_open,
    sustained,
    start_of_python,
)
SQLITE: tuple[Case, ...] = (finished, queued, scheduled, payloads, handlers, burst)
# What has a floor or a goal, and what takes no time.
QUICK: tuple[Case, ...] = (
    memory,
    finished,
    queued,
    burst,
    idle_workers,
    held_open,
    start_of_python,
)
