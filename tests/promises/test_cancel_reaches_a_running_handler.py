"""A cancel reaches a running handler within 2 s, by a wake-up and not by the next renewal."""

from __future__ import annotations

import pytest

from holdfast import State
from tests.promises.stage import Stage, both_stores
from tests.support.pooling import needs_a_session

pytestmark = [pytest.mark.heavy, pytest.mark.long]


@both_stores
@pytest.mark.parametrize("kind", ["gated", "gated_in_thread"])
@needs_a_session
async def test_a_cancel_stops_a_running_handler_within_2_seconds(stage: Stage, kind: str) -> None:
    job = await getattr(stage.jobs, kind).enqueue("never")
    neighbor = await stage.jobs.gated.enqueue("gate")
    stage.worker(lease_seconds=3600)
    await stage.noted("start", times=2)
    canceled = await stage.hf.jobs.cancel(job.id)
    record = await stage.record(job.id)
    stopped = await stage.noted("canceled")
    assert canceled.finished_at is not None
    assert stopped["time"] - canceled.finished_at.timestamp() < 2
    assert stopped["job"] == str(job.id)
    stage.open_gate("gate")
    (other,) = await stage.ended(neighbor)
    assert other.state is State.SUCCEEDED
    assert (canceled.state, canceled.error_code, canceled.fence) == (State.CANCELED, "CANCELED", 2)
    assert await stage.record(job.id) == record
    assert [attempt.outcome for attempt in await stage.hf.jobs.attempts(job.id)] == ["canceled"]
