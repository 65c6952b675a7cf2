"""Many jobs changed in small steps: paced, told as it goes, and safe to be run again."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from holdfast.domain.errors import AlreadyRequeued, ConfigurationError, JobNotFound, WrongState
from holdfast.domain.job import Job
from holdfast.domain.limits import CHANGES_TOGETHER_MAX
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Store

STEPS_PER_SECOND = 10


class Choice(NamedTuple):
    """The jobs that a change is about: their ids and the first few of them, newest first.

    `requeued_already` were left out, because they have been requeued before."""

    ids: Sequence[UUID]
    sample: Sequence[Job]
    requeued_already: int = 0


class Progress(NamedTuple):
    """How far a change of many jobs has come; `jobs` are those of the last step, as they are now.

    Of those looked at so far (`done`) some were left alone: `requeued_already`, or `moved_on`
    because they were in another state by then, or gone."""

    total: int
    done: int = 0
    changed: int = 0
    requeued_already: int = 0
    moved_on: int = 0
    jobs: Sequence[Job] = ()


class Pace(NamedTuple):
    """At most so many jobs a second, in about ten steps; None is as fast as it goes, in steps of
    `together_max`."""

    jobs_per_second: float | None = None
    together_max: int = CHANGES_TOGETHER_MAX

    @property
    def step(self) -> int:
        if self.jobs_per_second is None:
            return self.together_max
        return min(self.together_max, math.ceil(self.jobs_per_second / STEPS_PER_SECOND))

    def wait_seconds(self, done: int, passed_seconds: float) -> float:
        """How long to wait before the next step."""
        if self.jobs_per_second is None:
            return 0.0
        return max(0.0, done / self.jobs_per_second - passed_seconds)


def make_pace(jobs_per_second: float | None, together_max: int = CHANGES_TOGETHER_MAX) -> Pace:
    if jobs_per_second is not None and not 0 < jobs_per_second < math.inf:
        raise ConfigurationError(f"jobs_per_second must be above 0, not {jobs_per_second!r}")
    return Pace(jobs_per_second, together_max)


async def change_many(
    apply: Callable[[UUID], Awaitable[Job]], ids: Sequence[UUID], pace: Pace, seam: Seam
) -> AsyncIterator[Progress]:
    """Change the jobs step by step; go on behind those that can't be changed any more."""

    async def change(progress: Progress, step: Sequence[UUID]) -> Progress:
        answers = await asyncio.gather(*map(apply, step), return_exceptions=True)
        return _after_step(progress, answers)

    async for progress in _in_steps(change, ids, pace, seam):
        yield progress


async def cancel_together(
    store: Store, ids: Sequence[UUID], pace: Pace, seam: Seam, *, waiting_only: bool
) -> AsyncIterator[Progress]:
    """Cancel the jobs step by step, those of a step at once: faster, but without reading them."""

    async def change(progress: Progress, step: Sequence[UUID]) -> Progress:
        changed = len(await store.cancel(step, waiting_only=waiting_only))
        return Progress(
            total=progress.total,
            done=progress.done + len(step),
            changed=progress.changed + changed,
            moved_on=progress.moved_on + len(step) - changed,
        )

    async for progress in _in_steps(change, ids, pace, seam):
        yield progress


async def _in_steps(
    change: Callable[[Progress, Sequence[UUID]], Awaitable[Progress]],
    ids: Sequence[UUID],
    pace: Pace,
    seam: Seam,
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


def _after_step(progress: Progress, answers: Sequence[Job | BaseException]) -> Progress:
    reasons: Mapping[str, int] = Counter(map(_reason, answers))
    changed = [answer for answer in answers if isinstance(answer, Job)]
    return Progress(
        total=progress.total,
        done=progress.done + len(answers),
        changed=progress.changed + len(changed),
        requeued_already=progress.requeued_already + reasons["requeued_already"],
        moved_on=progress.moved_on + reasons["moved_on"],
        jobs=changed,
    )


def _reason(answer: Job | BaseException) -> str:
    match answer:
        case Job():
            return "changed"
        case AlreadyRequeued():
            return "requeued_already"
        case JobNotFound() | WrongState():
            return "moved_on"
    raise answer
