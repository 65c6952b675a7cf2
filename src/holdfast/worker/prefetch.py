"""Prefetched jobs: claimed before a slot is free for them, because jobs end soon here.

A claim costs the database as much as about 25 jobs, and so does a settlement. Where jobs take
milliseconds, a worker that claims no more than it has free slots spends its time on these. So while
jobs are short, it claims as many as its slots will start within PREFETCH_SECONDS, not counting the
slots of long jobs. When one has waited here for PREFETCHED_SECONDS_MAX, all are released: another
worker may be idle.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile

from holdfast.domain.job import Claimed
from holdfast.domain.limits import IN_HAND_MAX, PREFETCH_SECONDS, PREFETCHED_SECONDS_MAX
from holdfast.runtime.seam import Seam
from holdfast.worker.run import Run
from holdfast.worker.slots import Slots

MEAN_JOBS = 48  # a new time has this share of the mean
START_SECONDS = 2 * PREFETCH_SECONDS  # the mean at first: dozens of short jobs must lower it
RUN_SECONDS_MIN = 1e-6
CLAIM_MIN = 200  # half of what is in hand is claimed at a time, but not fewer for that reason
LOOK_SECONDS_MIN = 0.001


class Prefetch:
    """The prefetched jobs of a worker, in order, and how many it may have in hand: running ones and
    prefetched ones. Prefetched jobs wait only while all slots are taken.

    It prefetches nothing before some dozens of jobs have shown that they are short; nor with a
    concurrency of 1, where a job runs alone in its process; nor where queues have limits in this
    worker, because their jobs need free slots to be claimed.

    `release` is called with jobs that have to be released.
    """

    def __init__(self, slots: Slots, seam: Seam, release: Callable[[Sequence[Run]], None]) -> None:
        self._slots = slots
        self._seam = seam
        self._release = release
        self._is_possible = slots.concurrency > 1 and not slots.caps
        self._runs: deque[Run] = deque()
        self._started: dict[Run, None] = {}  # in this order
        self._timer: asyncio.TimerHandle | None = None
        self._has_room = asyncio.Event()
        self.start_over()

    def start_over(self) -> None:
        """Prefetch nothing until jobs have shown again that they are short."""
        self._mean_seconds = START_SECONDS
        self.plan(0)

    def plan(self, claim_max: int) -> None:
        """Decide how many jobs to have in hand, if one claim brings so many at most.

        While jobs end soon, half of them run while the other half is claimed."""
        concurrency = in_hand = self._slots.concurrency
        long = 0
        self.ends_soon = self._is_possible and self._mean_seconds < PREFETCH_SECONDS
        if self.ends_soon:
            long = self._count_long()
            startable = int((concurrency - long) * PREFETCH_SECONDS / self._mean_seconds)
            in_hand = max(concurrency, min(long + startable, IN_HAND_MAX, 2 * claim_max))
        self._in_hand_max = in_hand
        self.claim_max = max(in_hand // 2, CLAIM_MIN) if self.ends_soon else concurrency
        self._claim_at = min(max((long + in_hand) // 2, concurrency - 1), in_hand - 1)
        self._update_room()

    def _count_long(self) -> int:
        """How many of the running jobs have not ended within PREFETCH_SECONDS."""
        since = self._seam.monotonic() - PREFETCH_SECONDS
        return sum(1 for _ in takewhile(lambda run: run.started_monotonic < since, self._started))

    @property
    def room(self) -> int:
        """How many more jobs may be claimed."""
        return self._in_hand_max - self._slots.used - len(self._runs)

    async def wait_room(self) -> None:
        """Wait until it is worthwhile to claim more."""
        await self._has_room.wait()

    def release_waiters(self) -> None:
        self._has_room.set()

    def _update_room(self) -> None:
        if self._slots.used + len(self._runs) <= self._claim_at:
            self._has_room.set()
        else:
            self._has_room.clear()

    def add(self, runs: Sequence[Run]) -> list[Run]:
        """Add claimed jobs, and take slots for those that can start now."""
        if len(runs) <= self._slots.free:
            started = list(runs)
        else:
            best = min(run.job.priority for run in self._runs.copy() or runs)
            urgent = dict.fromkeys(run for run in runs if _is_urgent(run.job, best))
            self._runs.extendleft(reversed(urgent))
            self._runs.extend(run for run in runs if run not in urgent)
            started = [run for _ in range(self._slots.free) if (run := self._pop())]
            if any(run.job.capped for run in urgent):
                self.start_over()  # others can't run them while they wait here
            self._watch(PREFETCHED_SECONDS_MAX)
        self._slots.take([run.job.queue for run in started])
        self._started.update(dict.fromkeys(started))
        self._update_room()
        return started

    def follow(self, run: Run, ran_seconds: float) -> Run | None:
        """A job has ended: give its slot to the next one, or back."""
        self._mean_seconds += (max(ran_seconds, RUN_SECONDS_MIN) - self._mean_seconds) / MEAN_JOBS
        del self._started[run]
        following = self._pop()
        if following is None:
            self._slots.give_back(run.job.queue)
        else:
            self._started[following] = None
        self._update_room()
        return following

    def _pop(self) -> Run | None:
        if self._runs:
            try:
                return self._runs.popleft()
            except IndexError:  # another thread was faster
                pass
        return None

    def release_all(self) -> None:
        """Release all prefetched jobs, and prefetch nothing for now."""
        runs = self._take_all()
        self.start_over()
        self._release(runs)

    def take_overdue(self, seconds: float) -> list[Run]:
        """Take all jobs away if one has been here for so long, which only happens while the event
        loop is blocked. Call it from any thread."""
        return self._take_all() if self._seconds_waited() > seconds else []

    def _take_all(self) -> list[Run]:
        return [*iter(self._pop, None)]

    def _seconds_waited(self) -> float:
        """How long the first of them has waited."""
        now = self._seam.monotonic()
        return max((now - run.started_monotonic for run in self._runs.copy()), default=0.0)

    def _watch(self, seconds: float) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._runs:
            return
        left = PREFETCHED_SECONDS_MAX - self._seconds_waited()
        if left <= 0:
            self.release_all()
        else:
            self._watch(max(left, LOOK_SECONDS_MIN))


def _is_urgent(job: Claimed, best_priority: int) -> bool:
    """Whether others would wait because this one waits here."""
    return job.capped or job.probe or job.priority < best_priority
