"""Bulk changes in a server: rests for others, and databases that go away."""

from __future__ import annotations

from contextlib import suppress

import pytest

from holdfast import Filter, Holdfast, StoreUnavailable
from holdfast.api.bulk_runner import RENEW_SECONDS, rest_seconds
from holdfast.domain.limits import BULK_RUNNING_MAX
from holdfast.operations.bulk_run import Step
from tests.support.api import served
from tests.support.bulk import waiting_jobs
from tests.support.postgres import Server
from tests.support.processes import wait_until
from tests.support.running import QUICK

WAITING = Filter(name="wait")


@pytest.mark.parametrize(
    ("step", "took_seconds", "seconds"),
    [
        (Step(5, 0.1), 0.01, 0.09),  # until the next one is due
        (Step(25, 0.0), 0.2, 0.2),  # as long as it took, for others
        (Step(5, 0.1), 0.3, 0.3),
        (Step(0, 0.05), 0.01, 0.04),  # it changed nothing
        (Step(0, 0.01), 0.5, 0.0),
        (Step(1, 3600.0), 0.01, RENEW_SECONDS),  # no longer than the lease allows
    ],
)
def test_a_runner_rests_until_the_next_step_is_due(
    step: Step, took_seconds: float, seconds: float
) -> None:
    assert rest_seconds(step, took_seconds) == pytest.approx(seconds)


@pytest.mark.parametrize("jobs_per_second", [0.001, 2.0])
async def test_many_slow_changes_of_one_tenant_leave_room_for_another(
    store_url: str, jobs_per_second: float
) -> None:
    hf = Holdfast(store_url, **QUICK)
    greedy, modest = hf.for_tenant("greedy"), hf.for_tenant("modest")
    await waiting_jobs(hf, 60, "greedy")
    await waiting_jobs(hf, 1, "modest")
    for _ in range(BULK_RUNNING_MAX):
        await greedy.bulk.create("cancel", WAITING, jobs_per_second=jobs_per_second, start=True)
    async with served(hf):

        async def all_have_begun() -> bool:
            return all(change.done for change in (await greedy.bulk.list()).changes)

        await wait_until(all_have_begun, "begun")
        other = await modest.bulk.create("cancel", WAITING, start=True)

        async def has_ended() -> bool:
            return (await modest.bulk.get(other.id)).ended

        await wait_until(has_ended, "the other tenant's change ended")
        assert {change.state for change in (await greedy.bulk.list()).changes} == {"running"}


@pytest.mark.heavy
async def test_a_change_goes_on_when_its_database_comes_back(own_postgres: Server) -> None:
    hf = Holdfast(own_postgres.url("postgres"), **QUICK)
    await hf.migrate()
    await waiting_jobs(hf, 30)
    async with served(hf):
        change = await hf.bulk.create("cancel", WAITING, jobs_per_second=20, start=True)

        async def has_done(jobs: int) -> bool:
            with suppress(StoreUnavailable):  # its own connection is gone, too
                return (await hf.bulk.get(change.id)).done >= jobs
            return False

        await wait_until(lambda: has_done(2), "begun")
        own_postgres.crash()
        own_postgres.start()
        await wait_until(lambda: has_done(30), "done")
        assert (await hf.bulk.get(change.id)).changed == 30
