"""Change many jobs in small, paced steps that report progress and can be repeated."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from holdfast.domain.errors import AlreadyRequeued, ConfigurationError, JobNotFound, WrongState
from holdfast.domain.job import Job
from holdfast.domain.limits import BULK_RATE_MIN, CHANGES_TOGETHER_MAX
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Canceled

STEPS_PER_SECOND = 10


class Choice(NamedTuple):
    """The jobs to change, newest first: all ids, and the first few jobs as a sample.

    `requeued_already` counts those that were left out because they were requeued before."""

    ids: Sequence[UUID]
    sample: Sequence[Job]
    requeued_already: int = 0


class Progress(NamedTuple):
    """The progress of a bulk change; `jobs` are those of the last step, as they are now.

    Of the jobs `done` so far, `changed` were changed, `requeued_already` were skipped, and
    `moved_on` had another state by then, or were gone."""

    total: int
    done: int = 0
    changed: int = 0
    requeued_already: int = 0
    moved_on: int = 0
    jobs: Sequence[Job] = ()


class Pace(NamedTuple):
    """A rate limit, in ten steps per second. None is unlimited, in steps of `together_max`."""

    jobs_per_second: float | None = None
    together_max: int = CHANGES_TOGETHER_MAX

    @property
    def step(self) -> int:
        if self.jobs_per_second is None:
            return self.together_max
        return min(self.together_max, math.ceil(self.jobs_per_second / STEPS_PER_SECOND))

    def wait_seconds(self, done: int, passed_seconds: float) -> float:
        if self.jobs_per_second is None:
            return 0.0
        return max(0.0, done / self.jobs_per_second - passed_seconds)


def make_pace(jobs_per_second: float | None, together_max: int = CHANGES_TOGETHER_MAX) -> Pace:
    if jobs_per_second is not None and not BULK_RATE_MIN <= jobs_per_second < math.inf:
        raise ConfigurationError(
            f"jobs_per_second must be at least {BULK_RATE_MIN}, not {jobs_per_second!r}"
        )
    return Pace(jobs_per_second, together_max)


Change = Callable[[Progress, Sequence[UUID]], Awaitable[Progress]]


def change_each(apply: Callable[[UUID], Awaitable[Job]]) -> Change:
    """Change the jobs of a step one by one, and skip those that can't be changed any more."""

    async def change(progress: Progress, step: Sequence[UUID]) -> Progress:
        answers = await asyncio.gather(*map(apply, step), return_exceptions=True)
        reasons = Counter(map(_reason, answers))
        changed = [answer for answer in answers if isinstance(answer, Job)]
        return Progress(
            total=progress.total,
            done=progress.done + len(answers),
            changed=progress.changed + len(changed),
            requeued_already=progress.requeued_already + reasons["requeued_already"],
            moved_on=progress.moved_on + reasons["moved_on"],
            jobs=changed,
        )

    return change


def cancel_together(cancel: Callable[[Sequence[UUID]], Awaitable[Sequence[Canceled]]]) -> Change:
    """Cancel the jobs of a step in one statement: faster, but without reading them."""

    async def change(progress: Progress, step: Sequence[UUID]) -> Progress:
        changed = len(await cancel(step))
        return Progress(
            total=progress.total,
            done=progress.done + len(step),
            changed=progress.changed + changed,
            moved_on=progress.moved_on + len(step) - changed,
        )

    return change


async def in_steps(
    change: Change, ids: Sequence[UUID], pace: Pace, seam: Seam
) -> AsyncIterator[Progress]:
    progress = Progress(len(ids))
    began = seam.monotonic()
    while progress.done < len(ids):
        wait = pace.wait_seconds(progress.done, seam.monotonic() - began)
        if wait > 0:
            await asyncio.sleep(wait)
        step = ids[progress.done : progress.done + pace.step]
        progress = await change(progress, step)
        yield progress


def _reason(answer: Job | BaseException) -> str:
    match answer:
        case Job():
            return "changed"
        case AlreadyRequeued():
            return "requeued_already"
        case JobNotFound() | WrongState():
            return "moved_on"
    raise answer
