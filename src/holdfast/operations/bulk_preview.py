"""Find the jobs of a bulk change, before it is recorded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from holdfast.domain.bulk import STATES_OF, BulkAction, BulkCount
from holdfast.domain.errors import BadArguments, JobNotFound
from holdfast.domain.job import Filter, Job
from holdfast.domain.limits import (
    BULK_IDS_MAX,
    BULK_JOBS_MAX,
    BULK_PREVIEW_SECONDS_MAX,
    BULK_SAMPLE_BYTES_MAX,
    CHANGES_TOGETHER_MAX,
)
from holdfast.domain.states import State
from holdfast.operations.jobs import SAMPLE_JOBS, Jobs, check_id, pages
from holdfast.runtime.seam import Seam

COUNTS_MAX: Final = 100  # states and names, the most frequent ones


class Found(NamedTuple):
    """The IDs in the order in which the jobs are changed: oldest first, or as given."""

    job_ids: Sequence[UUID]
    counts: tuple[BulkCount, ...]
    requeued_before: int
    capped: bool


async def find(
    jobs: Jobs,
    wanted: Filter | Sequence[UUID],
    seam: Seam,
    *,
    unless_requeued: bool,
    jobs_max: int = BULK_JOBS_MAX,
) -> Found:
    finding = _Finding(jobs, unless_requeued, jobs_max)
    if isinstance(wanted, Filter):
        capped = await finding.match(wanted, seam)
        finding.job_ids.reverse()
    else:
        capped = False
        await finding.look_up(_checked(wanted))
    counts = [BulkCount(*key, count) for key, count in finding.counts.most_common(COUNTS_MAX)]
    return Found(finding.job_ids, tuple(counts), finding.requeued_before, capped)


async def _get_all(jobs: Jobs, job_ids: Sequence[UUID]) -> list[Job]:
    """Return the jobs that exist."""

    async def get(job_id: UUID) -> Job | None:
        with suppress(JobNotFound):
            return await jobs.get(job_id)
        return None

    return [job for job in await asyncio.gather(*map(get, job_ids)) if job is not None]


async def sample(jobs: Jobs, job_ids: Sequence[UUID]) -> list[Job]:
    """Return the first few jobs, as they are now; fewer if they are large."""
    found = await _get_all(jobs, job_ids[:SAMPLE_JOBS])
    sizes = accumulate(len(msgspec.json.encode(job, enc_hook=str)) for job in found)
    return [job for job, size in zip(found, sizes, strict=True) if size <= BULK_SAMPLE_BYTES_MAX]


def check_action(name: str) -> BulkAction:
    try:
        return BulkAction(name)
    except ValueError:
        known = ", ".join(BulkAction)
        raise BadArguments(f"the action must be one of {known}, not {name!r}") from None


def with_states(action: BulkAction, wanted: Filter) -> Filter:
    """Add the states of jobs that the action can change, unless the filter names some."""
    if wanted.states:
        return wanted
    if action not in STATES_OF:
        raise BadArguments(
            f"a filter for {action} must name states: queued jobs become due now, ended jobs are"
            " enqueued again"
        )
    return msgspec.structs.replace(wanted, states=STATES_OF[action])


class _Finding:
    def __init__(self, jobs: Jobs, unless_requeued: bool, jobs_max: int) -> None:
        self._jobs = jobs
        self._unless_requeued = unless_requeued
        self._jobs_max = jobs_max
        self.job_ids: list[UUID] = []
        self.counts: Counter[tuple[State, str]] = Counter()
        self.requeued_before = 0

    async def match(self, wanted: Filter, seam: Seam) -> bool:
        """Take the newest matching jobs; return whether there may be more."""
        deadline = seam.monotonic() + BULK_PREVIEW_SECONDS_MAX
        async for page in pages(self._jobs, wanted):
            chosen = await self._choose(page.jobs)
            room = self._jobs_max - len(self.job_ids)
            self._add([job.id for job in chosen[:room]], chosen[:room])
            if len(chosen) > room:
                return True
            if page.after is not None and (len(chosen) == room or seam.monotonic() > deadline):
                return True
        return False

    async def look_up(self, job_ids: Sequence[UUID]) -> None:
        """Take all of these jobs. Those that don't exist are counted when their turn comes."""
        for begin in range(0, len(job_ids), CHANGES_TOGETHER_MAX):
            some = job_ids[begin : begin + CHANGES_TOGETHER_MAX]
            found = await _get_all(self._jobs, some)
            chosen = await self._choose(found)
            left_out = {job.id for job in found} - {job.id for job in chosen}
            self._add([job_id for job_id in some if job_id not in left_out], chosen)

    async def _choose(self, jobs: Sequence[Job]) -> Sequence[Job]:
        if not self._unless_requeued:
            return jobs
        known = await self._jobs.requeued(jobs)
        self.requeued_before += len(known)
        return [job for job in jobs if job.id not in known]

    def _add(self, job_ids: Sequence[UUID], jobs: Sequence[Job]) -> None:
        self.job_ids += job_ids
        self.counts.update((job.state, job.name) for job in jobs)


def _checked(job_ids: Sequence[UUID]) -> list[UUID]:
    if len(job_ids) > BULK_IDS_MAX:
        raise BadArguments(
            f"{len(job_ids):,} IDs are more than {BULK_IDS_MAX:,}; use a filter, or several changes"
        )
    for job_id in job_ids:
        check_id(job_id)
    return list(dict.fromkeys(job_ids))
