"""8. Nothing starts before it is due, by the database's clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Holdfast, State
from holdfast.runtime.seam import Seam
from tests.promises.handlers import Jobs
from tests.promises.stage import Stage, both_stores
from tests.support.processes import WAIT_SECONDS, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.long]


@both_stores
async def test_a_worker_that_is_woken_all_the_time_starts_nothing_early(stage: Stage) -> None:
    stage.worker()
    first = await stage.jobs.quick.enqueue(0)
    await stage.hf.result(first.id, timeout_seconds=WAIT_SECONDS)
    at = datetime.now(UTC) + timedelta(seconds=1)
    delayed = await stage.jobs.quick.options(delay_seconds=1).enqueue(1)
    dated = await stage.jobs.quick.options(run_at=at).enqueue(2)
    retried = await stage.jobs.unsteady.enqueue(3)
    far = await stage.jobs.quick.options(delay_seconds=3600).enqueue(3)

    async def woken() -> bool:
        await stage.jobs.quick.enqueue(0)
        return all([(await stage.hf.get(job.id)).state.ended for job in (delayed, dated, retried)])

    await wait_until(woken, "ended")
    assert (await stage.hf.get(far.id)).attempts == 0
    for table in ("jobs", "history"):
        assert await stage.fetch(f"SELECT id FROM {table} WHERE started_at < run_at") == []
    for job in (delayed, dated):
        found = await stage.hf.get(job.id)
        (start,) = stage.ledger("start", job.id)
        assert found.started_at is not None
        # The database's clock may have been read after ours, not before.
        assert found.run_at >= at
        assert found.run_at <= found.started_at
        assert start["time"] >= found.run_at.timestamp()


class HourAhead(Seam):
    def now(self) -> datetime:
        return super().now() + timedelta(hours=1)


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_worker_whose_clock_is_an_hour_ahead_starts_nothing_early(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMISES_FOLDER", str(stage.folder))
    due = await stage.jobs.quick.enqueue(1)
    later = await stage.jobs.quick.options(delay_seconds=60).enqueue(2)
    async with Holdfast(stage.url, seam=HourAhead()) as ahead:
        jobs = Jobs(ahead)
        hers = await jobs.quick.options(delay_seconds=60).enqueue(3)
        await ahead.run_due()
    assert [(await stage.hf.get(job.id)).state for job in (due, later, hers)] == [
        State.SUCCEEDED,
        State.QUEUED,
        State.QUEUED,
    ]
    clock = (await stage.fetch("SELECT now()"))[0][0]
    assert (await stage.hf.get(hers.id)).run_at < clock + timedelta(seconds=61)
