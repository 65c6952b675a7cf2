"""12. Large arguments and results, and ends that can not be written now, harm no other job."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from holdfast import DuplicateJob, Holdfast, Job, State
from holdfast.domain.limits import ENQUEUE_BYTES_MAX, SETTLE_BYTES_MAX
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.enqueue import COPY_JOBS_MIN
from tests.support.processes import wait_until
from tests.support.running import QUICK, seen_events, signal, working
from tests.support.wire import Wire

pytestmark = [pytest.mark.heavy, pytest.mark.long]

on_postgres = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
on_sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
KIB = 1024
TEXT_BYTES_MAX = 2_000_000
SLACK = 64 * KIB


class Party:
    """Jobs that all end in the same turn of the loop, with results of a chosen size."""

    def __init__(self, hf: Holdfast, guests: int) -> None:
        self._all_here = asyncio.Event()
        self._guests = guests
        self.here = 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self.answer = hf.job(name="answer")(self._run)

    async def _run(self, size: int) -> str:
        self.here += 1
        if self.here == self._guests:
            self._all_here.set()
        await signal(self._all_here)
        await signal(self.goes_on)
        return "x" * size


@contextmanager
def counted(store_url: str) -> Iterator[tuple[Wire, str]]:
    address = urlsplit(store_url)
    assert address.port is not None
    with Wire(address.port) as wire:
        yield wire, wire.url(address.path.removeprefix("/"))


@asynccontextmanager
async def locked(url: str, job: Job) -> AsyncIterator[None]:
    """Read a job in a transaction, and leave it open."""
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("BEGIN")
        await connection.execute("SELECT FROM holdfast.jobs WHERE id = $1 FOR UPDATE", job.id)
        yield
    finally:
        await connection.close()


async def states(hf: Holdfast, jobs: list[Job]) -> list[tuple[State, int]]:
    found = [await hf.get(job.id) for job in jobs]
    return [(job.state, job.attempts) for job in found]


@on_postgres
async def test_a_settlement_that_can_not_be_written_now_does_not_delay_others(
    store_url: str,
) -> None:
    """One row is locked, so that every batch with it in it fails for as long as that lasts."""
    guests = 30
    async with Holdfast(f"{store_url}?lock_timeout=100", **QUICK) as hf, seen_events() as seen:
        party = Party(hf, guests)
        party.goes_on.clear()
        jobs = await hf.enqueue_many([party.answer.call(1) for _ in range(guests)])
        held, others = jobs[guests // 2], [*jobs[: guests // 2], *jobs[guests // 2 + 1 :]]
        done = [(State.SUCCEEDED, 1)] * len(others)

        async def are_done() -> bool:
            return await states(hf, others) == done

        async with working(hf, concurrency=guests):
            await wait_until(lambda: party.here == guests, "all at once")
            async with locked(store_url, held):
                party.goes_on.set()
                await wait_until(are_done, lambda: f"{len(seen.named('settle_failed'))} failures")
                assert await states(hf, [held]) == [(State.RUNNING, 1)]
                late = await hf.enqueue_many([party.answer.call(1) for _ in range(5)])
                for job in late:
                    await hf.result(job.id, timeout_seconds=60)
            assert await hf.result(held.id, timeout_seconds=60) == "x"
        assert await states(hf, [held]) == [(State.SUCCEEDED, 1)]


@on_postgres
async def test_large_results_are_settled_in_several_statements(store_url: str) -> None:
    guests = 12
    size = 900 * KIB
    with counted(store_url) as (wire, url):
        async with Holdfast(url, **QUICK) as hf:
            party = Party(hf, guests + 10)
            calls = [party.answer.call(size)] * guests + [party.answer.call(1)] * 10
            jobs = await hf.enqueue_many(calls)
            report = await hf.run_worker(concurrency=guests + 10, until_empty=True)
            assert report.succeeded == len(jobs)
            assert await states(hf, jobs) == [(State.SUCCEEDED, 1)] * len(jobs)
        assert size < wire.bytes_max <= SETTLE_BYTES_MAX + SLACK


@on_postgres
@pytest.mark.parametrize("delay_seconds", [0, 3600], ids=["copied", "inserted"])
async def test_many_large_jobs_are_enqueued_in_several_statements_all_or_none(
    store_url: str, delay_seconds: float
) -> None:
    size = 3 * ENQUEUE_BYTES_MAX // COPY_JOBS_MIN
    with counted(store_url) as (wire, url):
        async with Holdfast(url) as hf:

            @hf.job
            async def read(text: str) -> None: ...

            later = read.options(delay_seconds=delay_seconds)
            calls = [later.call("x" * size) for _ in range(COPY_JOBS_MIN)]
            known = await later.enqueue("known")
            twice = later.options(id=known.id).call("x")
            with pytest.raises(DuplicateJob):
                await hf.enqueue_many([*calls, twice])
            assert [count.jobs for count in await hf.jobs.counts()] == [1]
            wire.forget()
            jobs = await hf.enqueue_many(calls)
            assert wire.bytes_max <= ENQUEUE_BYTES_MAX + SLACK
            for bound in ("BEGIN", "COMMIT"):
                sent = [count for sql, count in wire.statements.items() if sql.startswith(bound)]
                assert sum(sent) == 1
            writing = [sql for sql in wire.statements if sql.startswith(("COPY", "WITH added"))]
            assert sum(wire.statements[sql] for sql in writing) == 4
            assert len({job.id for job in jobs}) == COPY_JOBS_MIN
            assert [count.jobs for count in await hf.jobs.counts()] == [1 + COPY_JOBS_MIN]


class Narrow(Seam):
    """A machine whose SQLite makes no long texts; usually a gigabyte is the most."""

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        connection = super().connect_sqlite(path)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, TEXT_BYTES_MAX)
        return connection


@on_sqlite
async def test_jobs_that_do_not_fit_into_one_sqlite_text_still_run(store_url: str) -> None:
    guests = 20
    size = 200 * KIB
    seen: list[int] = []
    async with Holdfast(store_url, seam=Narrow(), **QUICK) as hf:

        @hf.job
        async def echo(text: str) -> Any:
            seen.append(len(text))
            return text

        jobs = await hf.enqueue_many([echo.call("x" * size) for _ in range(guests)])
        report = await hf.run_worker(concurrency=guests, until_empty=True)
        assert (report.succeeded, seen) == (guests, [size] * guests)
        assert await states(hf, jobs) == [(State.SUCCEEDED, 1)] * guests
