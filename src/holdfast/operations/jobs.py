"""Find jobs, explain them, cancel, retry and requeue them, one by one or in bulk."""

from __future__ import annotations

import builtins
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from holdfast.domain import codec
from holdfast.domain.errors import (
    AlreadyRequeued,
    BadArguments,
    ConfigurationError,
    JobNotFound,
    WrongState,
)
from holdfast.domain.groups import fingerprint_of
from holdfast.domain.job import Attempt, Count, Filter, Job, Page
from holdfast.domain.limits import PAGE_ROWS_MAX, PAGE_STEPS_MAX
from holdfast.domain.states import ENDED
from holdfast.domain.texts import check_range, check_text
from holdfast.domain.times import check_time
from holdfast.domain.why import Why, explain, explain_alone
from holdfast.operations.bulk import Choice, Progress, change_each, in_steps, make_pace
from holdfast.operations.desk import Desk
from holdfast.stores.protocol import Diagnosis, History, capability

SAMPLE_JOBS = 5


class Jobs:
    """`hf.jobs`: find jobs, explain them, cancel, retry and requeue them."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def get(self, job_id: UUID) -> Job:
        """Return the job, or raise JobNotFound."""
        check_id(job_id)
        job = await (await self._desk.store()).get(job_id)
        if job is None:
            raise JobNotFound(job_id)
        return job

    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        """Return the attempts that did not succeed, oldest first."""
        check_id(job_id)
        history = capability(await self._desk.store(), History)
        return [] if history is None else await history.attempts(job_id)

    async def why(self, job_id: UUID) -> Why:
        """Explain why a job is not running: a code, a sentence, and the facts."""
        check_id(job_id)
        store = await self._desk.store()
        diagnosis = capability(store, Diagnosis)
        if diagnosis is None:
            caveat = f"this store ({type(store).__name__}) can't tell what else it waits for"
            return explain_alone(await self.get(job_id), self._desk.seam().now(), caveat)
        circumstances = await diagnosis.circumstances(job_id)
        if circumstances is None:
            raise JobNotFound(job_id)
        return explain(circumstances)

    async def counts(self, tenant: str | None = None) -> Sequence[Count]:
        """Count the jobs by queue and state, of all tenants or of one."""
        check_text("tenant", tenant)
        return await (await self._desk.store()).counts(tenant)

    async def list(
        self, filter: Filter | None = None, limit: int = 50, after: UUID | None = None
    ) -> Page:
        """Return a page of the jobs that match, newest first.

        To get the next page, pass the `after` of this one. A search for something rare stops after
        a bounded number of jobs: the page is then shorter than `limit`, but has an `after`.
        """
        check_range("limit", limit, 1, PAGE_ROWS_MAX, int, ConfigurationError)
        wanted = filter or Filter()
        _check_filter(wanted)
        store = await self._desk.store()
        found: builtins.list[Job] = []
        for _ in range(PAGE_STEPS_MAX):
            rows = limit - len(found) if wanted.fingerprint is None else PAGE_ROWS_MAX
            page = await store.page(wanted, rows, after)
            found += [
                job
                for job in page.jobs
                if wanted.fingerprint is None or fingerprint_of(job) == wanted.fingerprint
            ]
            after = page.after
            if len(found) > limit:
                return Page(found[:limit], found[limit - 1].id)
            if after is None or len(found) == limit:
                break
        return Page(found, after)

    async def requeued_as(self, job_id: UUID) -> UUID | None:
        """Return the id of the job that this one was last requeued as, if any."""
        check_id(job_id)
        history = capability(await self._desk.store(), History)
        return None if history is None else (await history.requeued([job_id])).get(job_id)

    async def cancel(self, job_id: UUID) -> Job:
        """Cancel a waiting or running job. A running handler is stopped; its result is dropped."""
        check_id(job_id)
        canceled = await (await self._desk.store()).cancel([job_id])
        job = await self.get(job_id)
        if not canceled:
            raise WrongState(f"job {job_id} already ended as {job.state}; nothing was changed")
        return job

    async def retry(self, job_id: UUID, *, again: bool = True) -> Job:
        """Make a waiting job due now, or requeue an ended one and return the new job.

        For a waiting job, only the due time changes. See `requeue` for `again`.
        """
        check_id(job_id)
        if await (await self._desk.store()).retry(job_id):
            return await self.get(job_id)
        job = await self.get(job_id)
        if not job.state.ended:
            raise WrongState(f"job {job_id} is {job.state}; there is nothing to retry")
        return await self.requeue(job_id, again=again)

    async def requeue(
        self, job_id: UUID, *, arguments: Mapping[str, Any] | None = None, again: bool = True
    ) -> Job:
        """Enqueue a copy of an ended job, and return it. The copy starts with attempt 1.

        It refers to the old job as `requeued_from`, and has no idempotency key. `arguments` replace
        all old ones, and are checked if this object defines the job; the breaker's key stays. With
        `again=False`, raise AlreadyRequeued if the job was requeued before.
        """
        check_id(job_id)
        data = None
        if arguments is not None:
            data = self._encoded((await self.get(job_id)).name, arguments)
        new_id = self._desk.new_id()
        store = await self._desk.store()
        if await store.requeue(job_id, new_id, arguments=data, once=not again):
            # A store whose records belong to another system requeues the same record.
            return await store.get(new_id) or await self.get(job_id)
        job = await self.get(job_id)
        if not job.state.ended:
            raise WrongState(f"job {job_id} is {job.state}; only an ended job can be requeued")
        requeued_as = await self.requeued_as(job_id)
        if requeued_as is None:  # it ended just now
            return await self.requeue(job_id, arguments=arguments, again=again)
        raise AlreadyRequeued(job_id, requeued_as)

    def _encoded(self, name: str, arguments: Mapping[str, Any]) -> bytes:
        if not isinstance(arguments, Mapping):
            raise BadArguments(f"{name}: arguments must be a mapping by name, not {arguments!r}")
        bytes_max = self._desk.settings.payload_bytes_max
        definition = self._desk.definitions.get(name)
        if definition is None:
            return codec.encode_arguments(dict(arguments), bytes_max=bytes_max)
        return definition.signature.bind((), arguments, bytes_max=bytes_max)

    async def choose(
        self, filter: Filter | None = None, *, unless_requeued: bool = False
    ) -> Choice:
        """Find all jobs that match now: their ids, and a sample to show before you change them."""
        history = capability(await self._desk.store(), History)
        ids: builtins.list[UUID] = []
        sample: builtins.list[Job] = []
        left_out = 0
        async for page in pages(self, filter):
            jobs = page.jobs
            if unless_requeued and history is not None:
                ended = [job.id for job in jobs if job.state in ENDED]
                known = await history.requeued(ended) if ended else {}
                jobs = [job for job in jobs if job.id not in known]
                left_out += len(page.jobs) - len(jobs)
            ids += [job.id for job in jobs]
            sample += jobs[: SAMPLE_JOBS - len(sample)]
        return Choice(ids, sample, left_out)

    def requeue_many(
        self,
        jobs: Filter | Sequence[UUID],
        *,
        again: bool = False,
        jobs_per_second: float | None = None,
    ) -> AsyncIterator[Progress]:
        """Requeue all ended jobs that match a filter, or a list of ids; yield the progress.

        You can interrupt it and run it again: it skips jobs that were requeued before, unless
        `again` is set. `jobs_per_second` limits the rate.
        """
        requeue = partial(self.requeue, again=again)
        return self._change_many(requeue, jobs, jobs_per_second, unless_requeued=not again)

    def retry_many(
        self,
        jobs: Filter | Sequence[UUID],
        *,
        again: bool = False,
        jobs_per_second: float | None = None,
    ) -> AsyncIterator[Progress]:
        """`retry` all jobs that match a filter, or a list of ids; yield the progress."""
        retry = partial(self.retry, again=again)
        return self._change_many(retry, jobs, jobs_per_second, unless_requeued=not again)

    def cancel_many(
        self, jobs: Filter | Sequence[UUID], *, jobs_per_second: float | None = None
    ) -> AsyncIterator[Progress]:
        """Cancel all jobs that match a filter, or a list of ids; yield the progress."""
        return self._change_many(self.cancel, jobs, jobs_per_second)

    async def _change_many(
        self,
        apply: Callable[[UUID], Awaitable[Job]],
        jobs: Filter | Sequence[UUID],
        jobs_per_second: float | None,
        unless_requeued: bool = False,
    ) -> AsyncIterator[Progress]:
        pace = make_pace(jobs_per_second)
        if isinstance(jobs, Filter):
            jobs = (await self.choose(jobs, unless_requeued=unless_requeued)).ids
        async for progress in in_steps(change_each(apply), jobs, pace, self._desk.seam()):
            yield progress


async def pages(
    jobs: Jobs, filter: Filter | None, limit: float = math.inf, after: UUID | None = None
) -> AsyncIterator[Page]:
    """Yield pages until there are no more jobs, or `limit` jobs were read."""
    while limit > 0:
        page = await jobs.list(filter, int(min(limit, PAGE_ROWS_MAX)), after)
        yield page
        after = page.after
        limit -= len(page.jobs)
        if after is None:
            return


def check_id(job_id: object) -> None:
    if not isinstance(job_id, UUID):
        raise BadArguments(f"a job id is a UUID, not {job_id!r}")


def _check_filter(filter: Filter) -> None:
    for name in ("queue", "name", "tenant", "tag", "correlation_id", "error_code", "fingerprint"):
        check_text(name, getattr(filter, name))
    for name, time in (("since", filter.since), ("until", filter.until)):
        if time is not None:
            check_time(name, time)
