"""What a process counts, what it asks the database for, and what it makes of both."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import uuid4

import pytest

from holdfast import (
    ConfigurationError,
    Context,
    Holdfast,
    Permanent,
    Retry,
    Snooze,
    StoreUnavailable,
)
from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.job import Reclaimed, Settlement
from holdfast.domain.queues import QueueStatus
from holdfast.domain.states import State
from holdfast.observability import exposition
from holdfast.observability.exposition import CACHE_SECONDS, DatabaseStatus, StatusCache, expose
from holdfast.observability.metrics import METRICS, OTHER, PAIRS_MAX, Metrics, Snapshot
from holdfast.operations.status import database_status
from holdfast.runtime.seam import Seam
from holdfast.testing.borrowed import borrowed
from tests.support.forks import ROOT
from tests.support.jobs import claimed
from tests.support.processes import wait_until
from tests.support.running import QUICK, execute, seen_events, signal, working
from tests.support.scraping import Scraped
from tests.worker import child_jobs

PAGE = ROOT / "docs/reference/metrics.md"
TWICE = Retry.schedule([0.01])


async def read(hf: Holdfast) -> Scraped:
    """Read the metrics as they are now; `hf.metrics()` may show the database of a moment ago."""
    await hf.metrics()  # from now on it counts
    return Scraped(expose(hf._metrics.snapshot(), await database_status(hf._store)))


async def test_ends_are_counted_by_outcome(local_hf: Holdfast) -> None:
    @local_hf.job(retry=TWICE)
    async def work(ctx: Context, how: str) -> None:
        if how == "snooze" and ctx.fence == 1:
            raise Snooze(0.01)
        if how == "hopeless":
            raise Permanent("no")
        if how == "dead" or (how == "unsteady" and ctx.attempt == 1):
            raise ConnectionError("away")

    await local_hf.metrics()
    ways = ("well", "well", "snooze", "hopeless", "dead", "unsteady")
    await local_hf.enqueue_many([work.options(queue="mail").call(way) for way in ways])
    await local_hf.run_worker(until_empty=True)
    told = await read(local_hf)
    series = {"queue": "mail", "name": "work"}
    ends = {"succeeded": 4, "failed": 1, "dead": 1, "retried": 2, "snoozed": 1}
    assert {end: told.value("holdfast_jobs_total", **series, outcome=end) for end in ends} == ends
    assert told.value("holdfast_failed_total", **series, state="failed") == 1
    assert told.value("holdfast_failed_total", **series, state="dead") == 1
    assert told.value("holdfast_retry_total", **series, attempt="1") == 2
    assert told.value("holdfast_retry_total", **series) == 2
    assert told.value("holdfast_enqueued_total", **series) == 6
    assert told.value("holdfast_processing_duration_ms_count", **series) == 9
    assert told.value("holdfast_settle_lag_seconds_count") == 9


async def test_nothing_is_counted_that_nobody_asked_for(local_hf: Holdfast) -> None:
    @local_hf.job
    async def work() -> None: ...

    await work.enqueue()
    await local_hf.run_worker(until_empty=True)
    assert Scraped(await local_hf.metrics()).value("holdfast_jobs_total") is None


async def test_a_job_that_is_there_already_is_not_counted_as_enqueued(local_hf: Holdfast) -> None:
    @local_hf.job
    async def work() -> None: ...

    await local_hf.metrics()
    for _ in range(2):
        await work.options(idempotency_key="once").enqueue()
    assert (await read(local_hf)).value("holdfast_enqueued_total") == 1


async def test_a_tenant_is_never_told(local_hf: Holdfast) -> None:
    @local_hf.job
    async def work() -> None: ...

    await local_hf.metrics()
    await work.options(tenant="acme", correlation_id="request-7").enqueue()
    await work.options(tenant="acme", delay_seconds=60).enqueue()
    await local_hf.run_due()
    told = await read(local_hf)
    assert told.value("holdfast_jobs_total") == 1
    assert "acme" not in told.text
    assert "request-7" not in told.text


async def test_durations_fall_into_their_buckets() -> None:
    metrics = Metrics()
    for duration_ms in (0.5, 5.0, 29_999.0, 1e9):
        settle(metrics, duration_ms=duration_ms)
    told = Scraped(expose(metrics.snapshot(), DatabaseStatus()))
    bucket = "holdfast_processing_duration_ms_bucket"
    counts = {bound: told.value(bucket, le=bound) for bound in ("1.0", "5.0", "30000.0", "+Inf")}
    assert counts == {"1.0": 1, "5.0": 2, "30000.0": 3, "+Inf": 4}
    assert told.value("holdfast_processing_duration_ms_sum") == 1e9 + 30_004.5


async def test_what_a_release_took_says_nothing_of_the_handler() -> None:
    metrics = Metrics()
    settle(metrics, outcome="released")
    told = Scraped(expose(metrics.snapshot(), DatabaseStatus()))
    assert told.value("holdfast_jobs_total", outcome="released") == 1
    assert told.value("holdfast_processing_duration_ms_count") is None


def test_any_number_of_names_and_attempts_makes_a_bounded_number_of_series() -> None:
    metrics = Metrics()
    for number in range(PAIRS_MAX + 5):
        settle(metrics, name=f"name {number}", outcome="retried", attempt=number + 1)
    told = Scraped(expose(metrics.snapshot(), DatabaseStatus()))
    assert told.value("holdfast_jobs_total", name=OTHER, queue=OTHER) == 5
    names = {sample.labels["name"] for sample in told.samples if "name" in sample.labels}
    assert len(names) == PAIRS_MAX + 1
    attempts = {sample.labels.get("attempt") for sample in told.samples} - {None}
    assert attempts == {*map(str, range(1, 10)), "10+"}


def test_what_was_taken_back_is_counted_by_its_reason() -> None:
    metrics = Metrics()
    metrics.reclaimed(
        [
            reclaimed(State.QUEUED, "LEASE_LOST"),
            reclaimed(State.DEAD, "CRASHED"),
            reclaimed(State.CANCELED, "EXPIRED"),
        ]
    )
    told = Scraped(expose(metrics.snapshot(), DatabaseStatus()))
    reasons = ("lease_lost", "crashed", "expired")
    assert [told.value("holdfast_reclaimed_total", reason=each) for each in reasons] == [1, 1, 1]
    ends = ("reclaimed", "dead", "canceled")
    assert [told.value("holdfast_jobs_total", outcome=each) for each in ends] == [1, 1, 1]
    assert told.value("holdfast_crashes_total") == 2
    assert told.value("holdfast_failed_total", state="dead") == 1


async def test_a_worker_counts_what_it_takes_back(local_hf: Holdfast) -> None:
    @local_hf.job
    async def work() -> None: ...

    await local_hf.metrics()
    await work.options(expires_in_seconds=0, queue="late").enqueue()

    async def taken_back() -> bool:
        told = await read(local_hf)
        return told.value("holdfast_reclaimed_total", queue="late", reason="expired") == 1

    async with working(local_hf, queues=["other"]):
        await wait_until(taken_back, "taken back")


async def test_lost_leases_and_cancels_are_told_apart(local_url: str) -> None:
    async with Holdfast(local_url, **QUICK, lease_seconds=0.6) as hf:
        started: asyncio.Queue[None] = asyncio.Queue()

        @hf.job
        async def wait() -> None:
            started.put_nowait(None)
            await asyncio.Event().wait()

        await hf.metrics()
        async with working(hf), seen_events() as seen:
            canceled = await wait.options(queue="canceled").enqueue()
            await started.get()
            await hf.jobs.cancel(canceled.id)
            await seen.first("lost")
            await wait.options(queue="stolen").enqueue()
            await started.get()
            await execute(local_url, "UPDATE jobs SET fence = fence + 1 WHERE queue = 'stolen'")
            await seen.first("lost", 2)
        told = await read(hf)
        assert told.value("holdfast_lost_leases_total", queue="stolen") == 1
        assert told.value("holdfast_lost_leases_total", queue="canceled") == 0
        assert told.value("holdfast_jobs_total", queue="canceled", outcome="canceled") == 1
        assert told.value("holdfast_jobs_total", queue="stolen", outcome="lost") == 1


async def test_hung_handlers_are_counted(local_url: str) -> None:
    async with Holdfast(local_url, **QUICK, timeout_grace_seconds=0.1) as hf:
        go_on = threading.Event()

        @hf.job(timeout_seconds=0.05, retry=Retry.none)
        def hang() -> None:
            go_on.wait()

        await hf.metrics()
        await hang.enqueue()
        async with working(hf, concurrency=2), seen_events() as seen:
            await seen.first("hung")
            go_on.set()
        assert (await read(hf)).value("holdfast_hung_handlers_total", name="hang") == 1


async def test_child_processes_and_their_crashes_are_counted(local_url: str) -> None:
    async with borrowed(child_jobs.hf, local_url, Seam()):
        hf = child_jobs.hf
        before = await read(hf)
        await child_jobs.crash.enqueue("exited with code 3")
        await child_jobs.remember.enqueue("a")
        await hf.run_worker(until_empty=True, concurrency=1)
        told = await read(hf)

    def more(name: str, /, **labels: str) -> float:
        return (told.value(name, **labels) or 0) - (before.value(name, **labels) or 0)

    assert more("holdfast_children_started_total", kind="handler") == 2
    assert more("holdfast_children_died_total", kind="handler") == 1
    assert more("holdfast_crashes_total", name="crash") == 1
    assert more("holdfast_crashes_total", name="remember") == 0


async def test_queues_are_told_as_they_stand(hf: Holdfast, store_url: str) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @hf.job
    async def wait() -> None:
        started.set()
        await go_on.wait()

    await hf.enqueue_many([wait.options(queue="mail").call() for _ in range(3)])
    await wait.options(queue="mail", delay_seconds=60).enqueue()
    async with working(hf, concurrency=1):
        await signal(started)

        async def seen() -> bool:
            return (await read(hf)).value("holdfast_workers", state="live") == 1

        await wait_until(seen, "a live worker")
        told = await read(hf)
        go_on.set()
    depths = {"ready": 2, "scheduled": 1, "parked": 0, "running": 1}
    name = "holdfast_queue_depth"
    assert {state: told.value(name, queue="mail", state=state) for state in depths} == depths
    assert (told.value("holdfast_oldest_ready_seconds", queue="mail") or 0) > 0
    assert told.value("holdfast_queue_paused", queue="mail") == 0
    assert told.value("holdfast_database_up") == 1
    assert told.value("holdfast_worker_slots") == 1
    assert told.value("holdfast_worker_slots_in_use") == 1
    in_postgres = store_url.startswith("postgres")
    assert told.value("holdfast_pool_connections_max") == (4 if in_postgres else None)
    if in_postgres:
        assert 0 <= (told.value("holdfast_pool_connections_in_use") or 0) <= 4


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_connections_in_use_are_those_that_are_at_work(hf: Holdfast) -> None:
    store = await hf._store()
    assert store.pool_use == (0, 4)  # type: ignore[attr-defined]
    async with hf.transaction() as connection:
        await connection.execute("LOCK TABLE holdfast.jobs")
        held = [asyncio.ensure_future(store.counts()) for _ in range(3)]
        await wait_until(lambda: store.pool_use == (3, 4), "three in use")  # type: ignore[attr-defined]
    await asyncio.gather(*held)
    assert store.pool_use == (0, 4)  # type: ignore[attr-defined]


def test_open_breakers_are_told_by_their_key_up_to_a_number_of_them() -> None:
    breakers = [breaker(f"api {number}") for number in range(60)]
    seen = DatabaseStatus(breakers=[*breakers, breaker("closed", opened=False)])
    told = Scraped(expose(Snapshot(), seen))
    assert told.value("holdfast_breakers_open") == 60
    assert told.value("holdfast_breaker_open", key="api 0") == 1
    assert told.value("holdfast_breaker_open", key="closed") is None
    assert told.value("holdfast_breaker_open") == exposition.BREAKERS_SHOWN_MAX


async def test_a_database_that_is_away_does_not_make_a_scrape_fail() -> None:
    hf = Holdfast("postgresql://127.0.0.1:1/away")
    told = Scraped(await hf.metrics())
    assert told.value("holdfast_database_up") == 0
    assert told.value("holdfast_settle_lag_seconds_count") == 0
    assert "holdfast_queue_depth" not in told.families


async def test_a_database_that_does_not_let_us_in_is_called_down() -> None:
    async def ask() -> DatabaseStatus:
        raise ConfigurationError("PostgreSQL rejected the login: the password has changed")

    told = Scraped(expose(Snapshot(), await StatusCache(ask, lambda: 0.0).get()))
    assert told.value("holdfast_database_up") == 0


async def test_a_database_without_our_schema_is_called_down(postgres_url: str) -> None:
    hf = Holdfast(postgres_url)
    assert Scraped(await hf.metrics()).value("holdfast_database_up") == 0


async def test_a_database_that_does_not_answer_does_not_keep_a_scrape_waiting() -> None:
    async def stand_still() -> DatabaseStatus:
        await asyncio.Event().wait()
        return DatabaseStatus()

    seen = await StatusCache(stand_still, lambda: 0.0, seconds_max=0.01).get()
    assert Scraped(expose(Snapshot(), seen)).value("holdfast_database_up") == 0


async def test_the_database_is_asked_at_most_every_few_seconds() -> None:
    now, asked = 100.0, 0

    async def ask() -> DatabaseStatus:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise StoreUnavailable("away")
        return DatabaseStatus(queues=[QueueStatus(name="mail")])

    look = StatusCache(ask, lambda: now)
    assert [(await look.get()).up for _ in range(3)] == [False] * 3
    assert asked == 1
    now += CACHE_SECONDS
    assert [len((await look.get()).queues) for _ in range(3)] == [1] * 3
    assert asked == 2


def test_workers_that_a_database_does_not_know_are_left_out() -> None:
    seen = DatabaseStatus(queues=[QueueStatus(name="documents", ready=3)], workers=None)
    told = Scraped(expose(Snapshot(), seen))
    assert "holdfast_workers" not in told.families
    assert told.value("holdfast_queue_depth", queue="documents", state="ready") == 3


async def test_without_the_extra_it_is_told_what_to_install(
    local_hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    @local_hf.job
    async def work() -> None: ...

    monkeypatch.setitem(sys.modules, "prometheus_client.core", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'holdfast\[metrics\]'"):
        await local_hf.metrics()
    await work.enqueue()
    assert (await local_hf.run_worker(until_empty=True)).succeeded == 1


def test_what_other_processes_counted_is_added_up() -> None:
    here, there = Metrics(), Metrics()
    settle(here)
    settle(there, duration_ms=7)
    first = there.snapshot()
    here.add(first.since(Snapshot()))
    settle(there, duration_ms=8, name="new")
    here.add(there.snapshot().since(first))
    here.add(there.snapshot().since(there.snapshot()))
    told = Scraped(expose(here.snapshot(), DatabaseStatus()))
    assert told.value("holdfast_jobs_total", name="work") == 2
    assert told.value("holdfast_jobs_total", name="new") == 1
    assert told.value("holdfast_processing_duration_ms_sum") == 1 + 7 + 8
    assert told.value("holdfast_settle_lag_seconds_count") == 3


def repeat(count: Callable[[], None]) -> None:
    for _ in range(3000):
        count()


def test_threads_that_count_at_the_same_time_lose_nothing() -> None:
    metrics, more = Metrics(), Metrics()
    settle(more)
    report = more.snapshot()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as threads:
            threads.submit(repeat, partial(settle, metrics))
            threads.submit(repeat, partial(metrics.add, report))
    finally:
        sys.setswitchinterval(before)
    told = Scraped(expose(metrics.snapshot(), DatabaseStatus()))
    assert told.value("holdfast_jobs_total") == 6000
    assert told.value("holdfast_processing_duration_ms_count") == 6000


def test_the_page_lists_exactly_the_metrics_that_there_are() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| ([^|]*)\|", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    listed = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert listed == {each.name: (each.kind, each.labels) for each in METRICS}
    assert len(rows) == len(METRICS)


def settle(
    metrics: Metrics,
    *,
    name: str = "work",
    outcome: str = "succeeded",
    attempt: int = 1,
    duration_ms: float = 1,
) -> None:
    job = claimed(name=name, attempt=attempt)
    settlement = Settlement(job_id=job.id, fence=1, state=State.SUCCEEDED)
    metrics.settled(job, settlement, outcome, duration_ms, 0.001)


def reclaimed(state: State, error_code: str) -> Reclaimed:
    return Reclaimed(uuid4(), "work", "default", "default", None, 1, 1, state, "worker", error_code)


def breaker(key: str, *, opened: bool = True) -> BreakerStatus:
    return BreakerStatus(
        key=key,
        failures=1,
        opened_at=Seam().now() if opened else None,
        opened_by=None,
        opened_because=None,
        next_probe_at=None,
        unparking=False,
        times_opened=1,
        parked=0,
    )
