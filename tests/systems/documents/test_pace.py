"""Polling: rarer when calls get scarce, within a budget, and 4 calls a minute when idle."""

from __future__ import annotations

from uuid import UUID

import pytest

from holdfast import ConfigurationError, StoreUnavailable
from holdfast.runtime.seam import Seam
from holdfast_systems.documents import limits as system
from holdfast_systems.documents.salesforce.store import SalesforceStore
from holdfast_systems.documents.salesforce.store.pace import (
    Options,
    Pace,
    read_options,
    wait_seconds,
)
from tests.systems.documents.bench import ATTEMPTS_MAX, Bench, claim, success

DAY = 86_400.0


class Clock(Seam):
    """A machine whose time the test moves."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1000.0
        self.monotonic = lambda: self.seconds


async def paced(bench: Bench, clock: Clock, **options: object) -> tuple[SalesforceStore, Pace]:
    pace = Pace(clock, Options(**options))  # type: ignore[arg-type]
    store = SalesforceStore(bench.url, clock, max_attempts=ATTEMPTS_MAX, pace=pace)
    bench._stack.push_async_callback(store.close)
    await store.open()
    return store, pace


async def used(bench: Bench) -> int:
    """How many calls the organization has answered, this one not included."""
    await bench.customer.count("SELECT COUNT() FROM ContentVersion")
    return bench.customer.usage.used - 1


@pytest.mark.parametrize(
    ("share", "seconds"), [(0.0, 15), (0.79, 15), (0.875, 127.5), (0.95, 240), (1.2, 240)]
)
def test_polls_get_rarer_from_80_percent_of_the_organizations_calls(
    share: float, seconds: float
) -> None:
    assert wait_seconds(15, share, None, DAY) == pytest.approx(seconds)


def test_a_budget_is_spread_over_the_day() -> None:
    assert wait_seconds(15, 0, 10_000, DAY) == 15
    assert wait_seconds(15, 0, 1_000, DAY) == pytest.approx(86.4)
    assert wait_seconds(15, 0, 0, 3600) == 3600


@pytest.mark.heavy
async def test_an_idle_worker_costs_4_calls_a_minute_or_fewer(bench: Bench) -> None:
    clock = Clock()
    store, _ = await paced(bench, clock)
    before = await used(bench)
    for _ in range(round(600 / system.TICK_SECONDS)):  # the claimer and the reclaimer of a worker
        assert await claim(store) == []
        assert await store.reclaim(100) == []
        clock.seconds += system.TICK_SECONDS
    minutes = 10
    assert minutes < await used(bench) - before - 1 <= 4 * minutes


@pytest.mark.heavy
async def test_a_poll_also_sees_an_expired_lock_which_is_reclaimed_at_once(bench: Bench) -> None:
    clock = Clock()
    store, _ = await paced(bench, clock)
    job_id = await bench.create()
    (lost,) = await claim(await bench.store(), lease_seconds=-60)
    assert await claim(store) == []
    (taken,) = await store.reclaim(100)
    assert (lost.id, taken.job_id) == (job_id, job_id)
    (again,) = await claim(store)
    assert again.id == job_id


@pytest.mark.heavy
async def test_a_new_job_of_this_process_does_not_wait_for_the_next_poll(bench: Bench) -> None:
    clock = Clock()
    store, _ = await paced(bench, clock)
    assert await claim(store) == []
    theirs = await bench.create()
    assert await claim(store) == []
    clock.seconds += 15
    (job,) = await claim(store, limit=5)
    assert job.id == theirs
    await store.settle([success(job)])
    await bench.create()
    assert await store.retry(UUID(int=0)) is False  # whatever it was asked, it looks again
    assert len(await claim(store, limit=5)) == 1


@pytest.mark.heavy
async def test_polling_follows_sforce_limit_info(bench: Bench) -> None:
    clock = Clock()
    store, _ = await paced(bench, clock)
    await bench.switch("PUT", "usage", {"used": 14_000, "limit": 15_000})
    try:
        assert await claim(store) == []
        await bench.create()
        clock.seconds += 100
        assert await claim(store) == []
        clock.seconds += 140
        assert len(await claim(store)) == 1
    finally:
        await bench.switch("PUT", "usage", {"used": 0, "limit": 15_000})


@pytest.mark.heavy
async def test_a_budget_that_is_used_up_stops_new_documents_and_says_so_once(bench: Bench) -> None:
    clock = Clock()
    store, _ = await paced(bench, clock)
    spent = store._salesforce.usage.calls_on(store._salesforce.now())
    store, _ = await paced(bench, clock, calls_per_day=spent + 6)
    await bench.create()
    (job,) = await claim(store)
    await bench.create()
    assert await store.settle([success(job)]) == []  # what has begun is ended, budget or not
    await store.counts()
    with pytest.raises(StoreUnavailable, match=r"budget of \d+ calls to Salesforce is used up"):
        await claim(store)
    clock.seconds += 60
    assert await claim(store) == []


@pytest.mark.parametrize(
    "options", ["poll_seconds=0", "poll_seconds=soon", "calls_per_day=0", "polls=3"]
)
def test_options_that_are_none_are_refused(options: str) -> None:
    with pytest.raises(ConfigurationError):
        read_options(f"salesforce://id:secret@example.com?{options}")
    good = read_options("salesforce://id:secret@example.com?poll_seconds=30&calls_per_day=500")
    assert (good.poll_seconds, good.calls_per_day) == (30, 500)
