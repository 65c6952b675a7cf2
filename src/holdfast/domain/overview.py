"""Queues, workers and breakers at one moment, with throughput and latency."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.job import Count, Job
from holdfast.domain.queues import QueueStatus
from holdfast.domain.states import DEAD_STATES, State
from holdfast.domain.workers import WorkerStatus

RATE_SECONDS = 60.0
_DONE = (State.SUCCEEDED,)


class Ended(NamedTuple):
    """How long an ended job waited after it was due, and how long its last attempt ran."""

    queue: str
    waited_seconds: float
    ran_seconds: float


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """What a store knows about ended jobs: counts by queue and state, of all and of the last
    minute, and the newest jobs that ran."""

    now: datetime
    ended: Sequence[Count]
    ended_last_minute: Sequence[Count] = ()
    newest: Sequence[Ended]


class Spread(msgspec.Struct, frozen=True):
    p50: float
    p95: float


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long jobs waited after they were due, and how long they ran."""

    wait: Spread
    run: Spread
    jobs: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """`latency` is that of the newest ended jobs. `untold` says what the store can't tell, such as
    the `workers`, which are None then."""

    now: datetime
    queues: Sequence[QueueStatus]
    workers: Sequence[WorkerStatus] | None
    breakers: Sequence[BreakerStatus]
    ended: Sequence[Count]
    ended_last_minute: Sequence[Count] = ()
    latency: Latency | None
    latency_by_queue: dict[str, Latency]
    failures: Sequence[Job]
    untold: str | None = None


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


def with_quiet(queues: Sequence[QueueStatus], ended: Iterable[Count]) -> list[QueueStatus]:
    """Add the queues that have only ended jobs."""
    live = {queue.name for queue in queues}
    quiet = {each.queue for each in ended} - live
    return sorted(
        [*queues, *(QueueStatus(name=name) for name in quiet)], key=lambda each: each.name
    )


class Rate(NamedTuple):
    """Jobs per second: `done` succeeded, `failed` failed or died. Canceled jobs are neither."""

    done: float
    failed: float


class Meter:
    """Turns repeated readings of counts into rates over the last minute.

    The first reading says what happened in the minute before it. When a count falls because history
    was deleted, the jobs that ended since the last reading are left out.
    """

    def __init__(self) -> None:
        self._last: tuple[datetime, dict[tuple[str, State], int]] | None = None
        self._steps: deque[tuple[float, dict[tuple[str, State], int]]] = deque()
        self._before: dict[tuple[str, State], int] = {}  # in the minute before the first reading

    def read(
        self, now: datetime, ended: Iterable[Count], last_minute: Iterable[Count] = ()
    ) -> None:
        counts = _by_queue_and_state(ended)
        if self._last is None:
            self._before = _by_queue_and_state(last_minute)
        else:
            since, before = self._last
            seconds = (now - since).total_seconds()
            if seconds <= 0:
                return
            grown = {key: max(0, jobs - before.get(key, 0)) for key, jobs in counts.items()}
            self._steps.append((seconds, grown))
            while sum(each for each, _ in self._steps) > RATE_SECONDS and len(self._steps) > 1:
                self._steps.popleft()
                self._before = {}
        self._last = now, counts

    def rate(self, queue: str | None = None) -> Rate | None:
        """The rate of a queue, or of all; None if it is not known yet."""
        read_seconds = sum(seconds for seconds, _ in self._steps)
        left_seconds = max(0.0, RATE_SECONDS - read_seconds) if self._before else 0.0
        whole_seconds = read_seconds + left_seconds
        if not whole_seconds:
            return None

        def per_second(states: Sequence[State]) -> float:
            grown = sum(_total(grown, queue, states) for _, grown in self._steps)
            before = _total(self._before, queue, states) * left_seconds / RATE_SECONDS
            return (grown + before) / whole_seconds

        return Rate(per_second(_DONE), per_second(DEAD_STATES))

    def line(self) -> list[float]:
        """Jobs done per second in each step, oldest first."""
        return [_total(grown, None, _DONE) / seconds for seconds, grown in self._steps]


def _by_queue_and_state(counts: Iterable[Count]) -> dict[tuple[str, State], int]:
    return {(each.queue, each.state): each.jobs for each in counts}


def _total(grown: dict[tuple[str, State], int], queue: str | None, states: Sequence[State]) -> int:
    return sum(
        jobs
        for (name, state), jobs in grown.items()
        if (queue is None or name == queue) and state in states
    )
