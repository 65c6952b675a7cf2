"""What is measured of every subject, in figures of one kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

from bench.driver import Drained, Driver, Subject
from bench.figures import Figure
from bench.machine import Others
from bench.place import Place
from bench.targets import POSTGRES

MEGABYTE = 1_000_000
PILOT_JOBS = 200
SLOW_JOBS = 20
MEMORY_CONCURRENCY = 100
PERCENTILES = (50, 95, 99)


@dataclass(frozen=True)
class Scale:
    """The size of a run. A slow subject gets fewer jobs, so that all drains take about as long."""

    # Of Holdfast itself, with the raw loop between them; others have one.
    drain_rounds: int = 3
    short_rounds: int = 7  # for drains of a few seconds, because processes differ
    growth_rounds: int = 3
    only_drains: bool = False  # by one process; of Holdfast on PostgreSQL all is measured
    drain_seconds: float = 6.0
    drain_jobs_min: int = 500
    drain_jobs_max: int = 100_000
    enqueue_jobs: int = 2000
    bulk_jobs: int = 20_000
    latency_jobs: int = 100
    latency_workers: int = 4  # one after the other: they differ more than their jobs do
    latency_gap_seconds: float = 0.02
    processes: Sequence[int] = (1, 2)
    finished: Sequence[int] = (0, 500_000, 5_000_000)
    queued: Sequence[int] = (0, 1_000_000)
    scheduled: Sequence[int] = (0, 100_000)
    workers: Sequence[int] = (1, 2, 4, 8, 16, 32, 64)
    queues: Sequence[int] = (1, 10, 200)
    payloads: Sequence[int] = (100, 1_000, 64_000)
    idle_workers: int = 200
    burst_jobs: int = 10_000
    http_requests: int = 10_000
    held_open_seconds: float = 600.0
    held_pick_up_seconds: float = 600.0
    sustained_seconds: float = 900.0
    sustained_jobs_per_second: int = 10_000

    def only_drains_of(self, subject: Subject) -> bool:
        return self.only_drains and subject.name != POSTGRES


QUICK = Scale(
    growth_rounds=5,
    only_drains=True,
    drain_seconds=2.0,
    drain_jobs_max=40_000,
    bulk_jobs=10_000,
    latency_workers=2,
    finished=(0, 200_000),
    queued=(0, 100_000),
    idle_workers=20,
    burst_jobs=2000,
    http_requests=3000,
    held_open_seconds=15.0,
    held_pick_up_seconds=60.0,
)


@dataclass
class Measuring:
    """Records figures with the subject's name, the turn, and how busy the machine was otherwise."""

    place: Place
    scale: Scale
    note: Callable[[Figure], None]
    tell: Callable[[str], None]
    turn: int = 0
    _others: Others = field(default_factory=Others)

    @contextmanager
    def driving(self, subject: Subject, what: str, **said: object) -> Iterator[Driver]:
        self.tell(f"{subject.name} ({subject.variant}): {what}")
        self._others = Others()
        with Driver(subject, self.place, **said) as driver:
            yield driver

    def add(self, subject: Subject, case: str, value: float, unit: str, x: float = 0.0) -> None:
        figure = Figure(
            case=case,
            subject=subject.name,
            value=value,
            unit=unit,
            x=x,
            variant=subject.variant,
            others=round(self._others.share(), 3),
            turn=self.turn,
        )
        self.note(figure)

    def jobs_for(self, rate: float) -> int:
        wanted = int(rate * self.scale.drain_seconds)
        return max(self.scale.drain_jobs_min, min(wanted, self.scale.drain_jobs_max))


def enqueue(measuring: Measuring, subject: Subject, payload: int | None = None) -> None:
    scale, x = measuring.scale, float(payload or 0)
    by_payload = "" if payload is None else " by payload"
    with measuring.driving(subject, "enqueue") as driver:
        rate = driver.rate("enqueue", scale.enqueue_jobs, "--payload", payload or 0)
        measuring.add(subject, f"enqueue{by_payload}", rate, "jobs/s", x)
    with measuring.driving(subject, "enqueue in bulk") as driver:
        rate = driver.rate("bulk", scale.bulk_jobs, "--payload", payload or 0)
        measuring.add(subject, f"bulk{by_payload}", rate, "jobs/s", x)


def drain(measuring: Measuring, subject: Subject) -> None:
    """With two processes there are twice as many jobs: one that is late must not be too late."""
    jobs_each = pilot(measuring, subject)
    scale = measuring.scale
    for processes in (1,) if scale.only_drains_of(subject) else scale.processes:
        jobs = jobs_each * processes
        with measuring.driving(subject, f"drain by {processes}") as driver:
            driver.ask("bulk", jobs)
            drained = driver.drain(jobs, processes)
            measuring.add(subject, "drain", jobs / drained.seconds, "jobs/s", processes)
            if processes == 1:
                add_costs(measuring, subject, drained)


def pilot(measuring: Measuring, subject: Subject, **said: object) -> int:
    """How many jobs make a drain that lasts long enough?"""
    if subject.slow:
        return SLOW_JOBS
    with measuring.driving(subject, "warm-up", **said) as driver:
        driver.ask("bulk", PILOT_JOBS)
        return measuring.jobs_for(PILOT_JOBS / driver.drain(PILOT_JOBS).seconds)


def add_costs(measuring: Measuring, subject: Subject, drained: Drained) -> None:
    jobs = drained.jobs
    add = measuring.add
    add(subject, "start-up", drained.start_seconds, "s")
    add(subject, "memory", drained.memory_bytes / MEGABYTE, "MB")
    add(subject, "worker CPU", drained.worker_cpu_seconds / jobs * 1e6, "µs/job")
    if subject.service == "postgresql":
        add(subject, "server CPU", drained.server_cpu_seconds / jobs * 1e6, "µs/job")
        add(subject, "WAL", drained.written.wal_bytes / jobs, "bytes/job")
        add(subject, "commits", drained.written.commits / jobs, "per job")
        add(subject, "dead tuples", drained.written.dead_tuples / jobs, "per job")


def latency(measuring: Measuring, subject: Subject, case: str = "pick-up", **said: object) -> None:
    with measuring.driving(subject, case, **said) as driver:
        add_latency(measuring, driver, case)


def add_latency(measuring: Measuring, driver: Driver, case: str, x: float = 0.0) -> None:
    scale = measuring.scale
    jobs = SLOW_JOBS if driver.subject.slow else scale.latency_jobs
    workers = 1 if driver.subject.slow else scale.latency_workers
    found = [driver.latencies(jobs, scale.latency_gap_seconds) for _ in range(workers)]
    ascending = sorted(chain.from_iterable(found))
    for percent in PERCENTILES:
        seconds = percentile(ascending, percent)
        measuring.add(driver.subject, f"{case} p{percent}", seconds * 1000, "ms", x)


def percentile(ascending: Sequence[float], percent: int) -> float:
    """The smallest value that this percentage of values does not exceed."""
    return ascending[max(0, -(-len(ascending) * percent // 100) - 1)]


ALL: Sequence[Callable[[Measuring, Subject], None]] = (enqueue, drain, latency)
"""The cases of every subject, each with an empty queue."""
