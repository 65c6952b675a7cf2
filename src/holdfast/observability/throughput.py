"""How long jobs waited for this process, and what its attempts came to, since its last sample: a
microsecond per attempt, and nothing that grows."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from holdfast.domain.job import Claimed
from holdfast.domain.limits import SAMPLED_QUEUES_MAX, SAMPLED_TIMES_MAX
from holdfast.domain.samples import ALL_QUEUES, COUNTED_AS, Ended
from holdfast.domain.waits import BOUNDS_MS, step_of


class _Queue:
    """Counts by outcome and by how long jobs waited, and how long the newest attempts took."""

    __slots__ = ("counts", "times", "waits")

    def __init__(self) -> None:
        self.waits = [0] * len(BOUNDS_MS)
        self.counts: Counter[str] = Counter()
        self.times: deque[float] = deque(maxlen=SAMPLED_TIMES_MAX)

    def add(self, counted_as: str, ran_seconds: float | None) -> None:
        self.counts[counted_as] += 1
        if ran_seconds is not None:
            self.counts["timed"] += 1
            self.times.append(ran_seconds)

    def ended(self, queue: str) -> Ended:
        return Ended(
            queue,
            **self.counts,
            p50_seconds=_percentile(self.times, 0.5),
            p95_seconds=_percentile(self.times, 0.95),
            waits={up_to: jobs for up_to, jobs in zip(BOUNDS_MS, self.waits, strict=True) if jobs},
        )


class Throughput:
    """Queues beyond the limit are counted among all queues only.

    It has no lock: if another thread takes what was counted at the same moment, one attempt may be
    left out of a chart.
    """

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._kept: dict[str, Ended] = {}

    def claimed(self, jobs: Iterable[Claimed]) -> None:
        queues = self._queues
        every = queues.get(ALL_QUEUES) or self._new(ALL_QUEUES)
        assert every is not None  # the first of all
        for job in jobs:
            if job.waited_seconds is not None:
                step = step_of(job.waited_seconds)
                every.waits[step] += 1
                known = queues.get(job.queue) or self._new(job.queue)
                if known is not None:
                    known.waits[step] += 1

    def settled(self, queue: str, outcome: str, ran_seconds: float | None) -> None:
        counted_as = COUNTED_AS.get(outcome)
        if counted_as is None:
            return
        for name in (ALL_QUEUES, queue):
            known = self._queues.get(name) or self._new(name)
            if known is not None:
                known.add(counted_as, ran_seconds)

    def _new(self, queue: str) -> _Queue | None:
        if len(self._queues) > SAMPLED_QUEUES_MAX:
            return None
        return self._queues.setdefault(queue, _Queue())

    def take(self) -> Sequence[Ended]:
        """Return what was counted, by queue and for all, and start again."""
        queues, self._queues = self._queues, {}
        taken, self._kept = self._kept, {}
        for name, counted in queues.items():
            ended = counted.ended(name)
            if name in taken:
                taken[name].add(ended)
            elif len(taken) <= SAMPLED_QUEUES_MAX:
                taken[name] = ended
        return list(taken.values())

    def give_back(self, ended: Iterable[Ended]) -> None:
        """Keep what could not be written for the next time."""
        self._kept = {each.queue: each for each in ended}


def _percentile(times: Iterable[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[int(share * (len(ordered) - 1))] if ordered else 0.0
