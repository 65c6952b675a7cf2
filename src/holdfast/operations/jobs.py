"""`hf.jobs`: find jobs, explain them, cancel, retry and requeue them, one by one or in bulk."""

from __future__ import annotations

import builtins
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
from holdfast.domain.texts import check_text
from holdfast.domain.times import check_time
from holdfast.domain.why import Why, explain, explain_alone
from holdfast.operations.bulk import Choice, Progress, change_many, make_pace
from holdfast.operations.desk import Desk
from holdfast.stores.protocol import Diagnosis, History, capability

SAMPLE_JOBS = 5


class Jobs:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def get(self, job_id: UUID) -> Job:
        check_id(job_id)
        job = await (await self._desk.store()).get(job_id)
        if job is None:
            raise JobNotFound(job_id)
        return job

    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        """The attempts that did not succeed, oldest first."""
        check_id(job_id)
        history = capability(await self._desk.store(), History)
        return [] if history is None else await history.attempts(job_id)

    async def why(self, job_id: UUID) -> Why:
        """Say why a job is not running: a code, a sentence, and the facts behind it."""
        check_id(job_id)
        store = await self._desk.store()
        diagnosis = capability(store, Diagnosis)
        if diagnosis is None:
            untold = f"this store ({type(store).__name__}) can't tell what else it waits for"
            return explain_alone(await self.get(job_id), self._desk.seam().now(), untold)
        circumstances = await diagnosis.circumstances(job_id)
        if circumstances is None:
            raise JobNotFound(job_id)
        return explain(circumstances)

    async def counts(self, tenant: str | None = None) -> Sequence[Count]:
        check_text("tenant", tenant)
        return await (await self._desk.store()).counts(tenant)

    async def list(
        self, filter: Filter | None = None, limit: int = 50, after: UUID | None = None
    ) -> Page:
        """Jobs that match, newest first, going on behind the id `after`.

        A search for something rare looks at a bounded number of jobs: then the page has less than
        `limit`, and its `after` says where to go on.
        """
        if not 1 <= limit <= PAGE_ROWS_MAX:
            raise ConfigurationError(f"limit must be 1 to {PAGE_ROWS_MAX}, not {limit}")
        wanted = filter or Filter()
        _check_filter(wanted)
        store = await self._desk.store()
        found: builtins.list[Job] = []
        for _ in range(PAGE_STEPS_MAX):
            rows = limit - len(found) if wanted.fingerprint is None else PAGE_ROWS_MAX
            page = await store.page(wanted, rows, after)
            found += _of_fingerprint(page.jobs, wanted.fingerprint)
            after = page.after
            if len(found) > limit:
                return Page(found[:limit], found[limit - 1].id)
            if after is None or len(found) == limit:
                break
        return Page(found, after)

    async def requeued_as(self, job_id: UUID) -> UUID | None:
        """The job that this one was last requeued as, if it was."""
        check_id(job_id)
        history = capability(await self._desk.store(), History)
        return None if history is None else (await history.requeued([job_id])).get(job_id)

    async def cancel(self, job_id: UUID) -> Job:
        """End a waiting or running job; its handler is stopped, and what it did is not recorded."""
        check_id(job_id)
        canceled = await (await self._desk.store()).cancel([job_id])
        job = await self.get(job_id)
        if not canceled:
            raise WrongState(f"job {job_id} has already ended as {job.state}; nothing was changed")
        return job

    async def retry(self, job_id: UUID, *, again: bool = True) -> Job:
        """Make a waiting job due now; enqueue an ended one anew, which answers the new job.

        A waiting job keeps its attempts, its error and its arguments: only its due time changes.
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
        """Enqueue an ended job anew: a new job that names the old one, without its key.

        Its attempts begin at 0. `arguments` replace the old ones as a whole; they are checked
        against the handler if this object has it, and the job keeps the key of its breaker. With
        `again=False` a job that was requeued before is left alone, with AlreadyRequeued.
        """
        check_id(job_id)
        data = None
        if arguments is not None:
            data = self._encoded((await self.get(job_id)).name, arguments)
        new_id = self._desk.new_id()
        store = await self._desk.store()
        if await store.requeue(job_id, new_id, arguments=data, once=not again):
            # A store whose records belong to others queues the same one again.
            return await store.get(new_id) or await self.get(job_id)
        job = await self.get(job_id)
        if not job.state.ended:
            raise WrongState(f"job {job_id} is {job.state}; only an ended job can be requeued")
        requeued_as = await self.requeued_as(job_id)
        if requeued_as is None:  # it ended only just now
            return await self.requeue(job_id, arguments=arguments, again=again)
        raise AlreadyRequeued(job_id, requeued_as)

    def _encoded(self, name: str, arguments: Mapping[str, Any]) -> bytes:
        if not isinstance(arguments, Mapping):
            raise BadArguments(f"{name}: arguments have names, unlike {arguments!r}")
        bytes_max = self._desk.settings.payload_bytes_max
        definition = self._desk.definitions.get(name)
        if definition is None:
            return codec.encode_arguments(dict(arguments), bytes_max=bytes_max)
        return definition.signature.bind((), arguments, bytes_max=bytes_max)

    async def choose(
        self, filter: Filter | None = None, *, unless_requeued: bool = False
    ) -> Choice:
        """Find all jobs that match now, to be counted, shown and changed."""
        history = capability(await self._desk.store(), History)
        ids: builtins.list[UUID] = []
        sample: builtins.list[Job] = []
        left_out = 0
        after: UUID | None = None
        while True:
            page = await self.list(filter, PAGE_ROWS_MAX, after)
            jobs = page.jobs
            if unless_requeued and history is not None:
                ended = [job.id for job in jobs if job.state in ENDED]
                known = await history.requeued(ended) if ended else {}
                jobs = [job for job in jobs if job.id not in known]
                left_out += len(page.jobs) - len(jobs)
            ids += [job.id for job in jobs]
            sample += jobs[: SAMPLE_JOBS - len(sample)]
            after = page.after
            if after is None:
                return Choice(ids, sample, left_out)

    def requeue_many(
        self,
        jobs: Filter | Sequence[UUID],
        *,
        again: bool = False,
        jobs_per_second: float | None = None,
    ) -> AsyncIterator[Progress]:
        """Requeue all that match, or these; yield how far it has come.

        It may be broken off and run again: what was requeued is left out then, unless `again`.
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
        """Make waiting jobs due now and requeue ended ones; yield how far it has come."""
        retry = partial(self.retry, again=again)
        return self._change_many(retry, jobs, jobs_per_second, unless_requeued=not again)

    def cancel_many(
        self, jobs: Filter | Sequence[UUID], *, jobs_per_second: float | None = None
    ) -> AsyncIterator[Progress]:
        """Cancel all that match, or these; yield how far it has come."""
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
        async for progress in change_many(apply, jobs, pace, self._desk.seam()):
            yield progress


def check_id(job_id: object) -> None:
    if not isinstance(job_id, UUID):
        raise BadArguments(f"a job's id is a UUID, not {job_id!r}")


def _check_filter(filter: Filter) -> None:
    for name in ("queue", "name", "tenant", "tag", "correlation_id", "error_code", "fingerprint"):
        check_text(name, getattr(filter, name))
    for name, time in (("since", filter.since), ("until", filter.until)):
        if time is not None:
            check_time(name, time)


def _of_fingerprint(jobs: Sequence[Job], fingerprint: str | None) -> Sequence[Job]:
    if fingerprint is None:
        return jobs
    return [job for job in jobs if fingerprint_of(job) == fingerprint]
