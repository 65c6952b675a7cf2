"""Bulk changes as runners run them: each job once, at the rate, whatever crashes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Filter, Holdfast, State
from holdfast.domain.bulk import CATCH_UP_SECONDS, next_step
from holdfast.domain.limits import BULK_STEP_JOBS_MAX
from holdfast.operations.bulk_run import BulkLease, Step
from holdfast.runtime.seam import Seam
from tests.support.bulk import (
    canceled_jobs,
    claim,
    copies,
    let_leases_expire,
    make_due,
    run_all,
    waiting_jobs,
)
from tests.support.processes import turn
from tests.support.running import execute

WAITING = Filter(name="wait")
ENDED = Filter(states=(State.CANCELED,))


async def test_one_runner_has_the_lease_and_another_takes_over_when_it_expires(
    hf: Holdfast, store_url: str
) -> None:
    await waiting_jobs(hf, 60)
    await hf.bulk.create("cancel", WAITING, start=True)
    first = await claim(hf, "first")
    assert await hf._bulk_runs.claim("second", 10) == []
    assert (await hf._bulk_runs.step(first)).jobs == BULK_STEP_JOBS_MAX
    await let_leases_expire(store_url)
    second = await claim(hf, "second")
    assert second.fence > first.fence
    assert await hf._bulk_runs.step(first) == Step(0, None)
    assert (await hf._bulk_runs.step(second)).jobs == BULK_STEP_JOBS_MAX


async def test_a_runner_that_stops_releases_its_changes_at_once(hf: Holdfast) -> None:
    await waiting_jobs(hf, 1)
    await hf.bulk.create("cancel", WAITING, start=True)
    await claim(hf, "first")
    await hf._bulk_runs.release("first")
    await claim(hf, "second")


@pytest.mark.parametrize("verb", ["pause", "cancel"])
async def test_a_paused_or_canceled_change_changes_no_further_job(hf: Holdfast, verb: str) -> None:
    await waiting_jobs(hf, 60)
    change = await hf.bulk.create("cancel", WAITING, start=True)
    lease = await claim(hf)
    await hf._bulk_runs.step(lease)
    await getattr(hf.bulk, verb)(change.id)
    assert await hf._bulk_runs.step(lease) == Step(0, None)
    assert await hf._bulk_runs.claim("other", 10) == []
    assert (await hf.bulk.get(change.id)).done == BULK_STEP_JOBS_MAX


async def test_a_resumed_change_continues_where_it_was(hf: Holdfast) -> None:
    jobs = await canceled_jobs(hf, 40)
    change = await hf.bulk.create("requeue", ENDED, start=True)
    await hf._bulk_runs.step(await claim(hf, "first"))
    await hf.bulk.pause(change.id)
    await hf.bulk.resume(change.id)
    done = await run_all(hf, change, "second")
    assert (done.state, done.changed) == ("completed", 40)
    assert await copies(hf) == sorted(job.id for job in jobs)


async def test_runners_that_race_change_each_job_once(hf: Holdfast, store_url: str) -> None:
    jobs = await canceled_jobs(hf, 60)
    change = await hf.bulk.create("requeue", ENDED, again=True, start=True)
    leases: list[BulkLease] = []
    for owner in ("one", "two", "three"):
        leases.append(await claim(hf, owner))
        await let_leases_expire(store_url)
    while not (await hf.bulk.get(change.id)).ended:
        # The last lease is good; the others have lost theirs, and don't know it yet.
        await asyncio.gather(*(hf._bulk_runs.step(lease) for lease in leases * 2))
    done = await hf.bulk.get(change.id)
    assert (done.done, done.changed) == (60, 60)
    assert await copies(hf) == sorted(job.id for job in jobs)


async def test_a_rate_holds_from_step_to_step_and_across_takeovers(
    hf: Holdfast, store_url: str
) -> None:
    await waiting_jobs(hf, 60)
    change = await hf.bulk.create("cancel", WAITING, jobs_per_second=0.5, start=True)
    first = await claim(hf, "first")
    step = await hf._bulk_runs.step(first)
    assert step.jobs == 1
    assert step.wait_seconds == pytest.approx(2.0, abs=CATCH_UP_SECONDS)
    early = await hf._bulk_runs.step(first)
    assert early.jobs == 0
    assert early.wait_seconds is not None
    assert early.wait_seconds > 0
    await let_leases_expire(store_url)
    assert await hf._bulk_runs.claim("second", 10) == []
    await make_due(store_url)  # long ago, as after an outage
    second = await claim(hf, "second")
    late = await hf._bulk_runs.step(second)
    assert late.jobs == 1
    assert late.wait_seconds == pytest.approx(2.0, abs=CATCH_UP_SECONDS)
    assert (await hf._bulk_runs.step(second)).jobs == 0
    assert (await hf.bulk.get(change.id)).done == 2


async def test_a_change_that_was_given_back_is_claimed_when_its_next_step_is_due(
    hf: Holdfast, store_url: str
) -> None:
    await waiting_jobs(hf, 2)
    change = await hf.bulk.create("cancel", WAITING, jobs_per_second=0.01, start=True)
    first = await claim(hf, "first")
    await hf._bulk_runs.step(first)
    await hf._bulk_runs.give_back(first)
    assert await hf._bulk_runs.step(first) == Step(0, None)
    assert await hf._bulk_runs.claim("second", 10) == []
    await make_due(store_url)
    assert (await hf._bulk_runs.step(await claim(hf, "second"))).jobs == 1
    await hf._bulk_runs.give_back(first)  # too late: it is not his any more
    assert await hf._bulk_runs.claim("third", 10) == []
    assert (await hf.bulk.get(change.id)).changed == 2


async def test_tenants_take_turns(hf: Holdfast) -> None:
    async def start(tenant: str | None) -> UUID:
        bulk = hf.bulk if tenant is None else hf.for_tenant(tenant).bulk
        return (await bulk.create("cancel", [UUID(int=7)], start=True)).id

    greedy = [await start("greedy") for _ in range(4)]
    modest = [await start(tenant) for tenant in ("modest", None)]
    leases = await hf._bulk_runs.claim("first", 4)
    assert [lease.change_id for lease in leases] == [greedy[0], *modest, greedy[1]]
    modest.append(await start("modest"))
    leases = await hf._bulk_runs.claim("second", 10)
    assert [lease.change_id for lease in leases] == [modest[2], *greedy[2:]]


class VirtualSeam(Seam):
    """A machine whose time of day stands still unless the test moves it."""

    def __init__(self) -> None:
        super().__init__()
        self.time = datetime(2026, 11, 17, 9, 30, tzinfo=UTC)

    def now(self) -> datetime:
        return self.time


async def test_fifty_per_second_is_fifty_per_second(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    seam = VirtualSeam()
    path = tmp_path_factory.mktemp("paced") / "jobs.db"
    hf = Holdfast(f"sqlite:///{path}", seam=seam, sqlite_synchronous="NORMAL")
    await waiting_jobs(hf, 200)
    change = await hf.bulk.create("cancel", WAITING, jobs_per_second=50, start=True)
    began = seam.time
    lease = await claim(hf)
    waits = iter([0.003, 0.150, 0.0, 0.020] * 1000)  # how late the runner is, each time
    done_at: dict[int, float] = {}
    done = 0
    while (step := await hf._bulk_runs.step(lease)).wait_seconds is not None:
        done += step.jobs
        done_at[done] = (seam.time - began).total_seconds()
        seam.time += timedelta(seconds=step.wait_seconds + next(waits))
    assert (await hf.bulk.get(change.id)).changed == 200
    assert done_at[195] == pytest.approx(195 / 50, abs=0.3)
    for jobs, seconds in done_at.items():
        assert jobs <= 50 * (seconds + CATCH_UP_SECONDS) + 5
    await hf.close()


@given(
    st.floats(0.01, 10_000),
    st.lists(st.tuples(st.integers(1, 25), st.floats(0, 30)), min_size=1, max_size=50),
)
def test_no_window_of_time_sees_more_jobs_than_the_rate_allows(
    rate: float, steps: Sequence[tuple[int, float]]
) -> None:
    now = due = start = datetime(2026, 11, 17, tzinfo=UTC)
    taken = [(start, 0)]
    for jobs, late_seconds in steps:
        now = max(now, due) + timedelta(seconds=late_seconds)
        taken.append((now, jobs))
        due = next_step(rate, jobs, due, now)
    for begin in range(1, len(taken)):
        jobs = 0
        for end in range(begin, len(taken)):
            window = (taken[end][0] - taken[begin][0]).total_seconds()
            assert jobs <= rate * (window + CATCH_UP_SECONDS) + 0.001
            jobs += taken[end][1]


async def test_a_job_that_the_database_refuses_is_counted_and_skipped(
    hf: Holdfast, store_url: str
) -> None:
    jobs = await canceled_jobs(hf, 30)
    refused = jobs[17].id
    if store_url.startswith("sqlite"):
        await execute(
            store_url,
            f"CREATE TRIGGER refuse BEFORE INSERT ON jobs WHEN new.requeued_from = '{refused}'"
            " BEGIN SELECT RAISE(ABORT, 'no'); END",
        )
    else:
        await execute(
            store_url,
            f"ALTER TABLE jobs ADD CONSTRAINT refuse CHECK (requeued_from <> '{refused}')",
        )
    change = await hf.bulk.create("requeue", ENDED, start=True)
    done = await run_all(hf, change)
    assert (done.state, done.changed, done.refused) == ("completed", 29, 1)
    assert await copies(hf) == sorted(job.id for job in jobs if job.id != refused)


async def test_a_step_that_fails_pauses_the_change_and_says_why(
    hf: Holdfast, store_url: str
) -> None:
    await waiting_jobs(hf, 1)
    change = await hf.bulk.create("cancel", WAITING, start=True)
    lease = await claim(hf)
    await hf._bulk_runs.fail(lease, "RuntimeError: no")
    seen = await hf.bulk.get(change.id)
    assert (seen.state, seen.error_text) == ("paused", "RuntimeError: no")
    resumed = await hf.bulk.resume(change.id)
    assert (resumed.state, resumed.error_text) == ("running", None)


Action = tuple[int, int | None]  # which runner takes a step, and in which turn it is killed


@settings(max_examples=12)
@given(st.lists(st.tuples(st.integers(0, 2), st.none() | st.integers(0, 30)), max_size=12))
def test_crashes_at_any_moment_leave_each_job_changed_once(
    tmp_path_factory: pytest.TempPathFactory, actions: list[Action]
) -> None:
    folder = tmp_path_factory.mktemp("crashes")
    asyncio.run(_crash(f"sqlite:///{folder / 'jobs.db'}", actions))


async def _crash(store_url: str, actions: list[Action]) -> None:
    hf = Holdfast(store_url, sqlite_synchronous="NORMAL")
    jobs = await canceled_jobs(hf, 40)
    change = await hf.bulk.create(
        "requeue", [job.id for job in jobs], again=True, start=True, jobs_per_second=100
    )
    leases: dict[int, BulkLease] = {}
    for runner, killed_after in actions:
        await make_due(store_url)
        if runner not in leases:
            await let_leases_expire(store_url)
            for lease in await hf._bulk_runs.claim(f"runner-{runner}", 1):
                leases[runner] = lease
        if runner in leases:
            stepping = asyncio.create_task(hf._bulk_runs.step(leases[runner]))
            if killed_after is not None:
                for _ in range(killed_after):
                    await turn()
                stepping.cancel()
                del leases[runner]
            with suppress(asyncio.CancelledError):
                await stepping
    if not (await hf.bulk.get(change.id)).ended:
        await let_leases_expire(store_url)
        await make_due(store_url)
        lease = await claim(hf, "last")
        while (await hf._bulk_runs.step(lease)).wait_seconds is not None:
            await make_due(store_url)
    done = await hf.bulk.get(change.id)
    assert (done.state, done.changed) == ("completed", 40)
    assert await copies(hf) == sorted(job.id for job in jobs)
    await hf.close()
