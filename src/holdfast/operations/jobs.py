"""Find jobs, explain them, cancel, retry and requeue them, one by one or in bulk."""

from __future__ import annotations

import builtins
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import msgspec

from holdfast.domain import codec
from holdfast.domain.errors import (
    AlreadyRequeued,
    BadArguments,
    ConfigurationError,
    JobNotFound,
    WrongState,
)
from holdfast.domain.groups import fingerprint_of
from holdfast.domain.job import Attempt, CappedCount, CappedCounts, Count, Filter, Job, Page
from holdfast.domain.limits import (
    INTEGER_MAX,
    PAGE_LOOK_MAX,
    PAGE_ROWS_MAX,
    PAGE_STEPS_MAX,
    SCAN_ROWS_MAX,
)
from holdfast.domain.scope import scoped
from holdfast.domain.texts import check_range, check_text
from holdfast.domain.times import check_time
from holdfast.domain.why import Why, explain, explain_alone
from holdfast.domain.why_for_tenant import for_tenant
from holdfast.job_function import Definition
from holdfast.operations.desk import Desk, check_operator
from holdfast.operations.steps import Choice, Progress, change_each, in_steps, make_pace
from holdfast.runtime.blocking import blocking
from holdfast.stores.protocol import (
    CountsUpTo,
    Diagnosis,
    Enrolled,
    History,
    Requeues,
    Store,
    capability,
)
from holdfast.transactions.hooks import wake_after
from holdfast.wakeups.protocol import Hint

T = TypeVar("T")

SAMPLE_JOBS = 5
LIST_LOOK_MAX: Final = PAGE_STEPS_MAX * PAGE_LOOK_MAX


class Jobs:
    """`hf.jobs`: find jobs, explain them, cancel, retry and requeue them.

    `hf.for_tenant(...).jobs` has the same methods, and treats the jobs of other tenants as if they
    did not exist.
    """

    def __init__(self, desk: Desk, tenant: str | None = None) -> None:
        self._desk = desk
        self._tenant = tenant
        self._run_sync = desk.run_sync

    @scoped
    async def get(self, job_id: UUID) -> Job:
        """Return the job, or raise JobNotFound."""
        check_id(job_id)
        job = self._owned(job_id, await (await self._desk.store()).get(job_id))
        return self._desk.cipher.shown(job)

    def _owned(self, job_id: UUID, job: Job | None) -> Job:
        if job is None or self._tenant not in (None, job.tenant):
            raise JobNotFound(job_id)
        return job

    async def _check_owned(self, job_id: UUID) -> None:
        """A job never changes its tenant, so it is safe to act on it after this check."""
        check_id(job_id)
        if self._tenant is not None:
            await self.get(job_id)

    def _narrowed(self, filter: Filter | None) -> Filter | None:
        """Limit the filter to this tenant; None if it names another one, and so matches nothing."""
        wanted = filter or Filter()
        check_filter(wanted)
        if self._tenant is None:
            return wanted
        if wanted.tenant not in (None, self._tenant):
            return None
        return msgspec.structs.replace(wanted, tenant=self._tenant)

    @scoped
    async def attempts(self, job_id: UUID) -> Sequence[Attempt]:
        """Return the attempts that have ended, oldest first, including the successful one."""
        await self.get(job_id)
        history = capability(await self._desk.store(), History)
        return [] if history is None else await history.attempts(job_id)

    @scoped
    async def why(self, job_id: UUID) -> Why:
        """Explain why a job is not running: a code, a sentence, and the facts.

        A tenant is not told what belongs to operators or other tenants.
        """
        why = await self._why(job_id)
        return why if self._tenant is None else for_tenant(why)

    async def _why(self, job_id: UUID) -> Why:
        check_id(job_id)
        store = await self._desk.store()
        diagnosis = capability(store, Diagnosis)
        if diagnosis is None:
            caveat = f"this store ({type(store).__name__}) can't tell what else it waits for"
            return explain_alone(await self.get(job_id), self._desk.seam().now(), caveat)
        circumstances = await diagnosis.circumstances(job_id)
        if circumstances is None:
            raise JobNotFound(job_id)
        self._owned(job_id, circumstances.job)
        return explain(circumstances)

    @scoped
    async def counts(self, tenant: str | None = None) -> Sequence[Count]:
        """Count the jobs by queue and state, of all tenants or of one."""
        wanted = self._narrowed(Filter(tenant=tenant))
        return [] if wanted is None else await (await self._desk.store()).counts(wanted.tenant)

    @scoped
    async def counts_up_to(self, jobs_max: int, tenant: str | None = None) -> CappedCounts:
        """Like `counts`, but stop at `jobs_max` waiting jobs of a queue: fast, however many there
        are."""
        check_range("jobs_max", jobs_max, 1, INTEGER_MAX, int, ConfigurationError)
        wanted = self._narrowed(Filter(tenant=tenant))
        if wanted is None:
            return CappedCounts([], False)
        store = await self._desk.store()
        capped = capability(store, CountsUpTo)
        if capped is not None:
            return await capped.counts_up_to(jobs_max, wanted.tenant)
        counts = await store.counts(wanted.tenant)
        return CappedCounts.of((CappedCount(*each, False) for each in counts), jobs_max)

    @scoped
    async def list(
        self,
        filter: Filter | None = None,
        limit: int = 50,
        after: UUID | None = None,
        *,
        look_max: int = LIST_LOOK_MAX,
    ) -> Page:
        """Return a page of the jobs that match, newest first.

        To get the next page, pass the `after` of this one. A search for something rare stops after
        it has looked at about `look_max` jobs: the page is then shorter than `limit`, but has an
        `after`.
        """
        check_range("limit", limit, 1, PAGE_ROWS_MAX, int, ConfigurationError)
        check_range("look_max", look_max, 1, LIST_LOOK_MAX, int, ConfigurationError)
        wanted = self._narrowed(filter)
        if wanted is None:
            return Page([], None)
        store = await self._desk.store()
        found: builtins.list[Job] = []
        rows_left = math.ceil(look_max / PAGE_LOOK_MAX) * PAGE_ROWS_MAX
        while rows_left > 0:
            rows = limit - len(found) if wanted.fingerprint is None else SCAN_ROWS_MAX
            page = await store.page(wanted, rows, after)
            found += [
                self._desk.cipher.shown(job)
                for job in page.jobs
                if wanted.fingerprint is None or fingerprint_of(job) == wanted.fingerprint
            ]
            after = page.after
            # A step that found few jobs looked at PAGE_LOOK_MAX.
            rows_left -= rows if len(page.jobs) == rows else PAGE_ROWS_MAX
            if len(found) > limit:
                return Page(found[:limit], found[limit - 1].id)
            if after is None or len(found) == limit:
                break
        return Page(found, after)

    @scoped
    async def requeued_as(self, job_id: UUID) -> UUID | None:
        """Return the id of the job that this one was last requeued as, if any."""
        return (await self.requeued([await self.get(job_id)])).get(job_id)

    @scoped
    async def requeued(self, jobs: Sequence[Job]) -> Mapping[UUID, UUID]:
        """Map each of these jobs that was requeued to the job that it was last requeued as."""
        requeues = capability(await self._desk.store(), Requeues)
        ended = [job.id for job in jobs if job.state.ended and self._tenant in (None, job.tenant)]
        return await requeues.requeued(ended) if requeues is not None and ended else {}

    @scoped
    async def cancel(
        self,
        job_id: UUID,
        *,
        by: str | None = None,
        because: str | None = None,
        connection: Any = None,
    ) -> Job:
        """Cancel a waiting or running job. A running handler is stopped; its result is dropped.

        `by` and `because` become the text of the job's error: "canceled by ann: wrong file". With
        `connection`, the job is canceled by that connection's transaction.
        """
        if connection is not None:
            return await self._through(
                connection, "cancel", lambda jobs: jobs.cancel(job_id, by=by, because=because)
            )
        await self._check_owned(job_id)
        check_operator(by, because)
        canceled = await (await self._desk.store()).cancel([job_id], by=by, because=because)
        job = await self.get(job_id)
        if not canceled:
            raise WrongState(f"job {job_id} already ended as {job.state}; nothing was changed")
        return job

    @scoped
    async def retry(self, job_id: UUID, *, again: bool = True, connection: Any = None) -> Job:
        """Make a waiting job due now, or requeue an ended one and return the new job.

        For a waiting job, only the due time changes. See `requeue` for `again` and `connection`.
        """
        if connection is not None:
            return await self._through(
                connection, "retry", lambda jobs: jobs.retry(job_id, again=again)
            )
        await self._check_owned(job_id)
        if await (await self._desk.store()).retry(job_id):
            return self._posted(await self.get(job_id))
        job = await self.get(job_id)
        if not job.state.ended:
            raise WrongState(f"job {job_id} is {job.state}; there is nothing to retry")
        return await self.requeue(job_id, again=again)

    @scoped
    async def requeue(
        self,
        job_id: UUID,
        *,
        arguments: Mapping[str, Any] | None = None,
        again: bool = True,
        connection: Any = None,
    ) -> Job:
        """Enqueue a copy of an ended job, and return it. The copy starts with attempt 1.

        It refers to the old job as `requeued_from`, and has no idempotency key. `arguments` replace
        all old ones, and are checked if this object defines the job; the breaker's key stays. With
        `again=False`, raise AlreadyRequeued if the job was requeued before. With `connection`, the
        copy is committed by that connection's transaction.
        """
        if connection is not None:
            return await self._through(
                connection,
                "requeue",
                lambda jobs: jobs.requeue(job_id, arguments=arguments, again=again),
            )
        await self._check_owned(job_id)
        data = None
        if arguments is not None:
            data = self._encoded(await self.get(job_id), arguments)
        new_id = self._desk.new_id()
        store = await self._desk.store()
        if await store.requeue(job_id, new_id, arguments=data, once=not again):
            # A store whose records belong to another system requeues the same record.
            copy = await store.get(new_id)
            if copy is None:
                return self._posted(await self.get(job_id))
            return self._posted(self._desk.cipher.shown(copy))
        job = await self.get(job_id)
        if not job.state.ended:
            raise WrongState(f"job {job_id} is {job.state}; only an ended job can be requeued")
        requeued_as = await self.requeued_as(job_id)
        if requeued_as is None:  # it ended just now
            return await self.requeue(job_id, arguments=arguments, again=again)
        raise AlreadyRequeued(job_id, requeued_as)

    def _posted(self, job: Job) -> Job:
        """Tell the messengers of a job that is due now."""
        self._desk.messengers.post([Hint.of(job)])
        return job

    async def _through(
        self, connection: Any, method: str, change: Callable[[Jobs], Coroutine[Any, Any, T]]
    ) -> T:
        """Make the change, or several, in the transaction of the caller's connection."""

        def on(enrolled: Enrolled) -> Coroutine[Any, Any, T]:
            async def store() -> Store:
                return cast(Store, enrolled)  # it has the verbs that these changes need

            messengers = self._desk.messengers.after_commit(wake_after(connection))
            desk = replace(self._desk, store=store, messengers=messengers)
            return change(Jobs(desk, self._tenant))

        return await self._desk.through(connection, method, on)

    def _encoded(self, job: Job, arguments: Mapping[str, Any]) -> bytes:
        definition = self._desk.definitions.get(job.name)
        data = self._bound(job.name, definition, arguments)
        if not self._encrypts(job):
            return data
        return self._desk.cipher.encrypt(job.tenant, job.name, "arguments", data)

    def _encrypts(self, job: Job) -> bool:
        """Whether to encrypt new arguments for this job: if it, or its definition now, is
        encrypted."""
        definition = self._desk.definitions.get(job.name)
        return job.encrypted or (definition is not None and definition.encrypted)

    def _bound(
        self, name: str, definition: Definition | None, arguments: Mapping[str, Any]
    ) -> bytes:
        if not isinstance(arguments, Mapping):
            raise BadArguments(f"{name}: arguments must be a mapping by name, not {arguments!r}")
        bytes_max = self._desk.settings.payload_bytes_max
        if definition is None:
            return codec.encode_arguments(dict(arguments), bytes_max=bytes_max)
        return definition.signature.bind((), arguments, bytes_max=bytes_max)

    async def choose(
        self, filter: Filter | None = None, *, unless_requeued: bool = False
    ) -> Choice:
        """Find all jobs that match now: their ids, and a sample to show before you change them."""
        ids: builtins.list[UUID] = []
        sample: builtins.list[Job] = []
        left_out = 0
        async for page in pages(self, filter):
            jobs = page.jobs
            if unless_requeued:
                known = await self.requeued(jobs)
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
        self,
        jobs: Filter | Sequence[UUID],
        *,
        by: str | None = None,
        because: str | None = None,
        jobs_per_second: float | None = None,
    ) -> AsyncIterator[Progress]:
        """Cancel all jobs that match a filter, or a list of ids; yield the progress."""
        check_operator(by, because)
        cancel = partial(self.cancel, by=by, because=because)
        return self._change_many(cancel, jobs, jobs_per_second)

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

    get_sync = blocking(get)
    attempts_sync = blocking(attempts)
    why_sync = blocking(why)
    counts_sync = blocking(counts)
    counts_up_to_sync = blocking(counts_up_to)
    list_sync = blocking(list)
    requeued_as_sync = blocking(requeued_as)
    requeued_sync = blocking(requeued)
    cancel_sync = blocking(cancel)
    retry_sync = blocking(retry)
    requeue_sync = blocking(requeue)
    choose_sync = blocking(choose)
    requeue_many_sync = blocking(requeue_many)
    retry_many_sync = blocking(retry_many)
    cancel_many_sync = blocking(cancel_many)


async def pages(
    jobs: Jobs,
    filter: Filter | None,
    limit: float = math.inf,
    after: UUID | None = None,
    *,
    rows_max: int = SCAN_ROWS_MAX,
) -> AsyncIterator[Page]:
    """Yield pages until there are no more jobs, or `limit` jobs were read."""
    while limit > 0:
        page = await jobs.list(filter, int(min(limit, rows_max)), after)
        yield page
        after = page.after
        limit -= len(page.jobs)
        if after is None:
            return


def check_id(job_id: object) -> None:
    if not isinstance(job_id, UUID):
        raise BadArguments(f"a job id is a UUID, not {job_id!r}")


def check_filter(filter: Filter) -> None:
    for name in ("queue", "name", "tenant", "tag", "correlation_id", "error_code", "fingerprint"):
        check_text(name, getattr(filter, name))
    for name, time in (("since", filter.since), ("until", filter.until)):
        if time is not None:
            check_time(name, time)
    if filter.parent_id is not None:
        check_id(filter.parent_id)
