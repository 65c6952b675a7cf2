"""The watch: one read per tick for all watchers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from holdfast import Holdfast
from holdfast.api.limits import SINGLE_READS_MAX
from holdfast.api.watch import CALM_SECONDS, QUICK_SECONDS, SINGLE_READS_SECONDS, Watch, Watcher
from holdfast.domain.errors import JobNotFound, NotInThisStore, StoreUnavailable
from holdfast.domain.job import Job, JobStatus, Watched
from holdfast.domain.states import State
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.rows import SQL as POSTGRES
from holdfast.stores.protocol import Store
from holdfast.stores.sqlite.rows import SQL as SQLITE
from tests.support.around import Around
from tests.support.fast_forward import fast_forward, fast_forwarding
from tests.support.processes import wait_until
from tests.support.running import QUICK, WAIT_SECONDS_MAX, execute, signal
from tests.support.seams import NotingSeam

WATCHERS = 200


class CountingSeam(NotingSeam):
    @property
    def looks(self) -> int:
        """How often watched jobs were read."""
        beginnings = tuple(sql["changed"].sql[:40] for sql in (SQLITE, POSTGRES))
        return sum(each.startswith(beginnings) for each in self.statements)


@asynccontextmanager
async def opened(url: str, seam: Seam | None = None) -> AsyncIterator[tuple[Holdfast, Any]]:
    """An app, and a job that nobody runs."""
    hf = Holdfast(url, seam=seam, **QUICK)

    @hf.job
    async def never() -> None: ...

    async with hf:
        yield hf, never


@asynccontextmanager
async def watch_of(hf: Holdfast, around: Any = None) -> AsyncIterator[Watch]:
    async def store() -> Store:
        found: Store = await hf._store() if around is None else around
        return found

    watch = Watch(store, hf._seam, hf._desk.cipher, asyncio.Event())
    async with watch.running():
        yield watch


async def seen(watcher: Watcher) -> Mapping[UUID, JobStatus | None]:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return await watcher.changes(2 * WAIT_SECONDS_MAX)


async def test_many_watchers_cost_one_read_per_tick(store_url: str) -> None:
    seam = CountingSeam()
    async with opened(store_url, seam) as (hf, never), watch_of(hf) as watch:
        jobs = await hf.enqueue_many([never.call() for _ in range(WATCHERS)])
        with ExitStack() as stack:
            watchers = [stack.enter_context(watch.watching([job.id])) for job in jobs]
            for job, watcher in zip(jobs, watchers, strict=True):
                (status,) = (await seen(watcher)).values()
                assert status is not None
                assert (status.job_id, status.state) == (job.id, State.QUEUED)
            assert seam.looks == 1
            await hf.jobs.cancel(jobs[0].id)
            before = seam.looks
            began = asyncio.get_running_loop().time()
            (canceled,) = (await seen(watchers[0])).values()
            ticks = (asyncio.get_running_loop().time() - began) / QUICK_SECONDS
            assert canceled is not None
            assert canceled.state is State.CANCELED
            assert 1 <= seam.looks - before <= ticks + 2


async def test_watchers_that_come_later_see_the_job_at_once(store_url: str) -> None:
    async with opened(store_url) as (hf, never), watch_of(hf) as watch:
        job = await never.enqueue()
        with watch.watching([job.id]) as first:
            assert list(await seen(first)) == [job.id]
            with watch.watching([job.id]) as second:
                assert list(await seen(second)) == [job.id]
                await hf.jobs.cancel(job.id)
                for watcher in (first, second):
                    while (status := (await seen(watcher))[job.id]) and not status.state.ended:
                        pass
                    assert status is not None
                assert watch.jobs == 0
        await wait_until(lambda: not watch.is_ticking, "the end of the ticks")


async def test_a_job_that_is_deleted_is_told_as_gone(store_url: str) -> None:
    async with opened(store_url) as (hf, never), watch_of(hf) as watch:
        job = await never.enqueue()
        with watch.watching([job.id]) as watcher:
            await seen(watcher)
            await execute(store_url, "DELETE FROM jobs")
            assert await seen(watcher) == {job.id: None}


async def test_a_look_finds_jobs_of_the_tenant_and_no_others(store_url: str) -> None:
    async with opened(store_url) as (hf, never), watch_of(hf) as watch:
        own, other = [await never.options(tenant=name).enqueue() for name in ("acme", "umbrella")]
        assert list(await watch.look([own.id], "acme")) == [own.id]
        assert list(await watch.look([own.id, other.id], None)) == [own.id, other.id]
        with pytest.raises(JobNotFound, match=str(other.id)):
            await watch.look([own.id, other.id], "acme")
        with pytest.raises(JobNotFound):
            await watch.look([hf.new_id()], None)


async def test_only_the_latest_change_waits_for_a_slow_watcher(local_hf: Holdfast) -> None:
    watcher = Watcher()
    job_id, other = local_hf.new_id(), local_hf.new_id()
    for attempts in range(1000):
        watcher.put(job_id, status(job_id, attempts=attempts))
    watcher.put(other, None)
    assert await watcher.changes(0.0) == {job_id: status(job_id, attempts=999), other: None}
    assert await watcher.changes(0.0) == {}


def status(job_id: UUID, attempts: int) -> JobStatus:
    return JobStatus(
        job_id=job_id,
        state=State.QUEUED,
        attempts=attempts,
        max_attempts=9,
        run_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


class Held(Around):
    """A store whose reads wait as long as they are held."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.goes_on, self.waits = asyncio.Event(), asyncio.Event()
        self.goes_on.set()

    async def changed(self, known: Mapping[UUID, str]) -> Mapping[UUID, Watched | None]:
        self.waits.set()
        await self.goes_on.wait()
        found: Mapping[UUID, Watched | None] = await self.store.changed(known)
        return found


async def test_a_watcher_that_comes_during_a_read_is_not_forgotten(local_url: str) -> None:
    async with opened(local_url) as (hf, never):
        store = Held(await hf._store())
        job = await never.enqueue()
        async with watch_of(hf, store) as watch:
            with watch.watching([job.id]) as first:
                await seen(first)
                store.goes_on.clear()
                store.waits.clear()
                await signal(store.waits)
                with watch.watching([job.id]) as second:
                    store.goes_on.set()
                    assert list(await seen(second)) == [job.id]


class Unsteady(Around):
    """A store that fails as often as it is told to."""

    failures = 0

    async def changed(self, known: Mapping[UUID, str]) -> Mapping[UUID, Watched | None]:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the database is down")
        found: Mapping[UUID, Watched | None] = await self.store.changed(known)
        return found


@fast_forwarding
async def test_watchers_stay_while_the_database_is_down(local_url: str) -> None:
    async with opened(local_url) as (hf, never):
        store = Unsteady(await hf._store())
        store.failures = 3
        job = await never.enqueue()
        async with watch_of(hf, store) as watch:
            with watch.watching([job.id]) as watcher:
                seeing = asyncio.create_task(seen(watcher))
                while store.failures:
                    await fast_forward(0.25)
                while not seeing.done():
                    await fast_forward(0.25)
                assert list(await seeing) == [job.id]


class Paced(Around):
    """Notes when it is asked, and answers at once that nothing changed since the first time."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.asked_at: list[float] = []
        self.versions: dict[UUID, str] = {}

    async def changed(self, known: Mapping[UUID, str]) -> Mapping[UUID, Watched | None]:
        self.asked_at.append(asyncio.get_running_loop().time())
        if known == self.versions:
            return {}
        found: Mapping[UUID, Watched | None] = await self.store.changed(known)
        self.versions |= {job_id: job.version for job_id, job in found.items() if job}
        return found


@fast_forwarding
async def test_ticks_slow_down_in_calm_and_a_new_watcher_waits_for_none(local_url: str) -> None:
    async with opened(local_url) as (hf, never):
        store = Paced(await hf._store())
        first, second = await never.enqueue(), await never.enqueue()
        async with watch_of(hf, store) as watch:
            with watch.watching([first.id]) as watcher:
                await seen(watcher)
                while len(store.asked_at) < 12:
                    await fast_forward(0.02)
                gaps = [
                    after - before
                    for before, after in zip(store.asked_at, store.asked_at[1:], strict=False)
                ]
                assert QUICK_SECONDS <= gaps[0] < CALM_SECONDS  # slow looks rest longer
                assert CALM_SECONDS <= gaps[-1] < 1.2 * CALM_SECONDS
                with watch.watching([second.id]) as another:
                    assert list(await seen(another)) == [second.id]


class Single:
    """A store that gets one job at a time, and has these."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = {job.id: job for job in jobs}
        self.reads: list[UUID] = []

    async def get(self, job_id: UUID) -> Job | None:
        self.reads.append(job_id)
        return self.jobs.get(job_id)


@fast_forwarding
async def test_a_store_that_reads_one_job_at_a_time_is_asked_for_a_few(local_url: str) -> None:
    async with opened(local_url) as (hf, never):
        store = Single(await hf.enqueue_many([never.call() for _ in range(2 * SINGLE_READS_MAX)]))
        ids = list(store.jobs)
        async with watch_of(hf, store) as watch:
            with pytest.raises(NotInThisStore, match="can't watch more than 10 jobs"):
                await watch.look(ids, None)
            looked = await watch.look(ids[:SINGLE_READS_MAX], None)
            assert looked[ids[0]] == JobStatus.of(store.jobs[ids[0]])
            with ExitStack() as stack:
                watchers = [stack.enter_context(watch.watching([each])) for each in ids]
                await asyncio.gather(*map(seen, watchers))
                store.reads.clear()
                began = asyncio.get_running_loop().time()
                while len(store.reads) < 3 * SINGLE_READS_MAX:
                    await fast_forward(SINGLE_READS_SECONDS / 4)
                assert asyncio.get_running_loop().time() - began >= 2 * SINGLE_READS_SECONDS
                assert set(store.reads) == set(ids)
                store.jobs[ids[3]] = await hf.jobs.cancel(ids[3])
                canceling = asyncio.create_task(seen(watchers[3]))
                while not canceling.done():
                    await fast_forward(SINGLE_READS_SECONDS / 4)
                changed = (await canceling)[ids[3]]
                assert changed is not None
                assert changed.state is State.CANCELED
