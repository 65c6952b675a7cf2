"""What is to be reached: a floor and a goal for each row, mostly as ratios to the raw loops."""

from __future__ import annotations

from dataclasses import dataclass

from bench.figures import Recording

MEMORY_CASE = "memory at concurrency 100"
BARE_CASE = "bare route over HTTP"
ENQUEUE_CASE = "enqueue over HTTP"
BULK_CASE = "bulk beside HTTP"
BATCHES_CASE = "batches over HTTP"
WATCHED_CASE = "drain with watchers"

POSTGRES = "holdfast-postgresql"
SQLITE = "holdfast-sqlite"
RAW_POSTGRES = "raw_postgres"
RAW_SQLITE = "raw_sqlite"
RAW = {"postgresql": RAW_POSTGRES, "sqlite": RAW_SQLITE}
MOST = float("inf")  # the largest x that was measured


@dataclass(frozen=True)
class Measured:
    subject: str
    case: str
    x: float = 0.0

    def find_x(self, recording: Recording) -> float:
        if self.x != MOST:
            return self.x
        xs = recording.xs(self.subject, self.case)
        if not xs:
            raise KeyError(f"{self.case} of {self.subject}")
        return xs[-1]

    def find(self, recording: Recording) -> float:
        return recording.median(self.subject, self.case, self.find_x(recording))


@dataclass(frozen=True)
class Bound:
    """A multiple of another figure, or the number itself.

    Other queues are measured minutes earlier or later, when the machine may be faster or slower,
    so their share of the raw loop beside them is compared.
    """

    times: float
    of: Measured | None = None
    name: str = ""

    def value(self, recording: Recording, reached: Measured) -> float:
        if self.of is None:
            return self.times
        case, x = self.of.case, self.of.find_x(recording)
        if self.of.subject in RAW.values():
            return self.times * recording.beside(reached.subject, self.of.subject, case, x)
        found = self.times * self.of.find(recording)
        if self.of.subject == reached.subject or not recording.xs(RAW_POSTGRES, case):
            return found
        then = recording.beside(self.of.subject, RAW_POSTGRES, case, x)
        return found * recording.beside(reached.subject, RAW_POSTGRES, case, x) / then

    def text(self) -> str:
        return f"{self.times:g} x {self.name}" if self.of else ""


@dataclass(frozen=True)
class Target:
    """`title` may name {x}, what the case was varied by."""

    title: str
    unit: str
    reached: Measured
    floors: tuple[Bound, ...]
    goals: tuple[Bound, ...]
    more_is_better: bool = True


def _times(
    floor: float, goal: float, of: Measured, name: str
) -> tuple[tuple[Bound, ...], tuple[Bound, ...]]:
    return (Bound(floor, of, name),), (Bound(goal, of, name),)


def _target(
    title: str,
    unit: str,
    reached: Measured,
    bounds: tuple[tuple[Bound, ...], tuple[Bound, ...]],
    *,
    more_is_better: bool = True,
) -> Target:
    return Target(title, unit, reached, *bounds, more_is_better)


def _raw(floor: float, goal: float, case: str) -> tuple[tuple[Bound, ...], tuple[Bound, ...]]:
    return _times(floor, goal, Measured(RAW_POSTGRES, case), "raw")


def _own(floor: float, goal: float, case: str) -> tuple[tuple[Bound, ...], tuple[Bound, ...]]:
    return _times(floor, goal, Measured(POSTGRES, case), "without")


_DRAIN = Measured(POSTGRES, "drain", 1)
_RAW_DRAIN = Measured(RAW_POSTGRES, "drain", 1)

TARGETS = (
    Target(
        "PostgreSQL drain, 1 process",
        "jobs/s",
        _DRAIN,
        (Bound(0.35, _RAW_DRAIN, "raw"), Bound(2.0, Measured("pgqueuer", "drain", 1), "PgQueuer")),
        (
            Bound(0.6, _RAW_DRAIN, "raw"),
            Bound(1.5, Measured("graphile", "drain", 1), "Graphile Worker"),
        ),
    ),
    _target(
        "PostgreSQL drain, 2 processes",
        "jobs/s",
        Measured(POSTGRES, "drain", 2),
        _times(1.0, 1.5, _DRAIN, "one process"),
    ),
    _target(
        "bulk enqueue, with ids returned",
        "jobs/s",
        Measured(POSTGRES, "bulk"),
        _times(0.4, 0.7, Measured(RAW_POSTGRES, "bulk"), "COPY"),
    ),
    _target(
        "enqueue one at a time, with wake-up",
        "jobs/s",
        Measured(POSTGRES, "enqueue"),
        _raw(0.7, 0.95, "enqueue"),
    ),
    *(
        _target(
            f"idle pick-up latency {percentile}",
            "ms",
            Measured(POSTGRES, f"pick-up {percentile}"),
            _raw(1.5, 1.1, f"pick-up {percentile}"),
            more_is_better=False,
        )
        for percentile in ("p50", "p99")
    ),
    _target(
        "SQLite drain at FULL, 1 process",
        "jobs/s",
        Measured(SQLITE, "drain", 1),
        _times(0.25, 0.5, Measured(RAW_SQLITE, "drain", 1), "raw"),
    ),
    _target(
        "drain with {x:,.0f} finished jobs behind it",
        "jobs/s",
        Measured(POSTGRES, "drain after finished", MOST),
        _own(0.9, 1.0, "drain after finished"),
    ),
    _target(
        "drain with {x:,.0f} more queued",
        "jobs/s",
        Measured(POSTGRES, "drain with queued", MOST),
        _own(0.8, 0.95, "drain with queued"),
    ),
    _target(
        "drain while a transaction is held open for {x:,.0f} s",
        "jobs/s",
        Measured(POSTGRES, "drain under an open transaction", MOST),
        _own(0.8, 0.95, "drain under an open transaction"),
    ),
    *(
        _target(
            f"{name} enqueue over HTTP, {{x:,.0f}} connections",
            "requests/s",
            Measured(subject, ENQUEUE_CASE, MOST),
            _times(0.5, 0.7, Measured(subject, BARE_CASE, MOST), "bare FastAPI route"),
        )
        for name, subject in (("PostgreSQL", POSTGRES), ("SQLite", SQLITE))
    ),
    *(
        _target(
            f"{name} batches of 1,000 over HTTP",
            "jobs/s",
            Measured(subject, BATCHES_CASE),
            _times(0.25, 0.4, Measured(subject, BULK_CASE), "direct"),
        )
        for name, subject in (("PostgreSQL", POSTGRES), ("SQLite", SQLITE))
    ),
    _target(
        "drain with {x:,.0f} streams of events on running jobs",
        "jobs/s",
        Measured(POSTGRES, WATCHED_CASE, MOST),
        _own(0.9, 0.95, WATCHED_CASE),
    ),
    _target(
        "worker memory at concurrency 100",
        "MB",
        Measured(POSTGRES, MEMORY_CASE),
        ((Bound(50.0),), (Bound(35.0),)),
        more_is_better=False,
    ),
)
