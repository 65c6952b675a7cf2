"""4. What a handler writes through its completing transaction happens exactly once."""

from __future__ import annotations

import signal

import pytest

from holdfast import Job, State
from tests.promises import paying
from tests.promises.stage import Stage
from tests.promises.test_03_an_old_fence_changes_nothing import freeze

APP = "paying:hf"


@pytest.fixture
async def paying_stage(stage: Stage) -> Stage:
    await stage.fetch(f"CREATE TABLE {table(stage)} (job text, attempt int)")
    return stage


def table(stage: Stage) -> str:
    """The table as the handlers' connections see it, which are not inside the engine's schema."""
    return "payments" if stage.is_sqlite else "public.payments"


async def payments(stage: Stage, job: Job) -> list[int]:
    rows = await stage.fetch(f"SELECT attempt FROM {table(stage)} WHERE job = '{job.id}'")
    return [attempt for (attempt,) in rows]


async def enqueue(stage: Stage, function: str, **arguments: str) -> Job:
    """Enqueue into the stage's database a job of the module that its workers run."""
    async with paying.hf.borrowed(stage.url, stage.hf._seam):
        job: Job = await getattr(paying, function).enqueue(**arguments)
    return job


@pytest.mark.parametrize(("dies", "attempt"), [("", 1), ("before", 2), ("after", 1), ("error", 2)])
async def test_a_kill_before_or_after_the_commit_pays_once(
    paying_stage: Stage, dies: str, attempt: int
) -> None:
    job = await enqueue(paying_stage, "pay", dies=dies)
    worker = paying_stage.worker(app=APP)
    if dies in ("before", "after"):
        await worker.ended()
        paying_stage.worker(app=APP)
    (ended,) = await paying_stage.ended(job)
    assert ended.state is State.SUCCEEDED
    assert ended.result == {"attempt": attempt}
    assert await payments(paying_stage, job) == [attempt]


async def test_a_ghost_pays_nothing(paying_stage: Stage) -> None:
    stage = paying_stage
    job = await enqueue(stage, "pay_late", gate="gate")
    ghost = stage.worker(app=APP)
    await stage.noted("start", job.id)
    await freeze(stage, ghost)
    stage.worker(app=APP)
    await stage.noted("start", job.id, times=2)
    stage.open_gate("gate.1")
    ghost.signal(signal.SIGCONT)
    entry = await stage.noted("LeaseLost", job.id)
    assert entry["attempt"] == 1
    assert await payments(stage, job) == []
    stage.open_gate("gate.2")
    (ended,) = await stage.ended(job)
    assert ended.state is State.SUCCEEDED
    assert await payments(stage, job) == [2]
