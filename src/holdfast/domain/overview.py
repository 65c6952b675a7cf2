"""One look at everything: queues, workers, breakers, how much ends and how long it takes."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from holdfast.domain.breakers import BreakerSeen
from holdfast.domain.job import Count, Job
from holdfast.domain.queues import QueueSeen
from holdfast.domain.states import State
from holdfast.domain.workers import WorkerSeen

RATE_SECONDS = 60.0


class Ended(NamedTuple):
    """How long a job that has ended waited after it was due, and how long its last attempt ran."""

    queue: str
    waited_seconds: float
    ran_seconds: float


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """What a store tells of the jobs that have ended: how many it keeps by queue and state, and the
    newest of those that ran."""

    now: datetime
    ended: Sequence[Count]
    newest: Sequence[Ended]


class Spread(msgspec.Struct, frozen=True):
    """Half of the values are at most p50, all but a twentieth at most p95."""

    p50: float
    p95: float


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long jobs waited after they were due, and how long they ran."""

    wait: Spread
    run: Spread
    jobs: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at about one moment. `latency` is that of the newest jobs that have ended."""

    now: datetime
    queues: Sequence[QueueSeen]
    workers: Sequence[WorkerSeen]
    breakers: Sequence[BreakerSeen]
    ended: Sequence[Count]
    latency: Latency | None
    latency_by_queue: dict[str, Latency]
    failures: Sequence[Job]


def latency(ended: Sequence[Ended]) -> Latency | None:
    if not ended:
        return None
    return Latency(
        wait=_spread([each.waited_seconds for each in ended]),
        run=_spread([each.ran_seconds for each in ended]),
        jobs=len(ended),
    )


def latency_by_queue(ended: Iterable[Ended]) -> dict[str, Latency]:
    by_queue: defaultdict[str, list[Ended]] = defaultdict(list)
    for each in ended:
        by_queue[each.queue].append(each)
    return {queue: found for queue, each in by_queue.items() if (found := latency(each))}


def _spread(values: list[float]) -> Spread:
    ordered = sorted(values)
    return Spread(*(ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.95)))


def with_quiet(queues: Sequence[QueueSeen], ended: Iterable[Count]) -> list[QueueSeen]:
    """Add the queues of which only ended jobs are left."""
    live = {queue.name for queue in queues}
    quiet = {each.queue for each in ended} - live
    return sorted([*queues, *(QueueSeen(name=name) for name in quiet)], key=lambda each: each.name)


class Rate(NamedTuple):
    """Jobs that ended in a second: all of them, and those that failed for good."""

    done: float = 0.0
    failed: float = 0.0


class Meter:
    """Turns counts that are read again and again into rates over the last minute.

    Counts fall when history is forgotten: what ended between such two readings is not known, and
    left out.
    """

    def __init__(self) -> None:
        self._last: tuple[datetime, dict[tuple[str, State], int]] | None = None
        self._steps: deque[tuple[float, dict[tuple[str, State], int]]] = deque()

    def read(self, now: datetime, ended: Iterable[Count]) -> None:
        counts = {(each.queue, each.state): each.jobs for each in ended}
        if self._last is not None:
            since, before = self._last
            seconds = (now - since).total_seconds()
            if seconds <= 0:
                return
            grown = {key: max(0, jobs - before.get(key, 0)) for key, jobs in counts.items()}
            self._steps.append((seconds, grown))
            while sum(each for each, _ in self._steps) > RATE_SECONDS and len(self._steps) > 1:
                self._steps.popleft()
        self._last = now, counts

    def rate(self, queue: str | None = None) -> Rate:
        """The rate of a queue, or of all."""
        seconds = sum(each for each, _ in self._steps)
        if not seconds:
            return Rate()
        done = sum(_total(grown, queue, tuple(State)) for _, grown in self._steps)
        failed = sum(_total(grown, queue, (State.FAILED, State.DEAD)) for _, grown in self._steps)
        return Rate(done / seconds, failed / seconds)

    def line(self) -> list[float]:
        """The rate of all in each step, oldest first."""
        return [_total(grown, None, tuple(State)) / seconds for seconds, grown in self._steps]


def _total(grown: dict[tuple[str, State], int], queue: str | None, states: Sequence[State]) -> int:
    return sum(
        jobs
        for (name, state), jobs in grown.items()
        if (queue is None or name == queue) and state in states
    )
