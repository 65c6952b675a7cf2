"""4. What a handler writes through its completing transaction happens exactly once."""

from __future__ import annotations

import asyncio
import signal
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import pytest

from holdfast import Job, State
from holdfast.testing.borrowed import borrowed
from tests.promises import paying
from tests.promises.stage import Stage, both_stores
from tests.support.processes import WAIT_SECONDS, freeze
from tests.support.proxy import Proxy

pytestmark = [pytest.mark.heavy, pytest.mark.long]

APP = "paying:hf"
OWN_FORMS = ["pay", "pay_sync"]
FORMS = [*OWN_FORMS, "pay_sqlalchemy", "pay_django"]


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


async def enqueue(stage: Stage, function: str, job_id: UUID | None = None, **arguments: str) -> Job:
    """Enqueue into the stage's database a job of the module that its workers run."""
    async with borrowed(paying.hf, stage.url, stage.hf._seam):
        job: Job = await getattr(paying, function).options(id=job_id).enqueue(**arguments)
    return job


@both_stores
@pytest.mark.parametrize(("dies", "attempt"), [("", 1), ("before", 2), ("after", 1), ("error", 2)])
async def test_a_kill_before_or_after_the_commit_pays_once(
    paying_stage: Stage, dies: str, attempt: int
) -> None:
    stage = paying_stage
    # Each kill costs the start of a worker: with the libraries it happens on PostgreSQL alone.
    forms = OWN_FORMS if stage.is_sqlite and dies in ("before", "after") else FORMS
    jobs = [await enqueue(stage, form, dies=dies) for form in forms]
    if dies in ("before", "after"):
        for _ in jobs:
            await stage.worker(app=APP, concurrency=1).ended()
    stage.worker(app=APP)
    if dies == "before":
        await stage.let_run_out(*jobs)
    for ended in await stage.ended(*jobs):
        assert (ended.name, ended.state) == (ended.name, State.SUCCEEDED)
        assert ended.result == {"attempt": attempt}
        assert await payments(stage, ended) == [attempt]


@both_stores
@pytest.mark.parametrize(("dies", "attempt"), [("", 1), ("before", 2), ("after", 1)])
async def test_a_kill_before_or_after_the_commit_of_a_failure_writes_once(
    paying_stage: Stage, dies: str, attempt: int
) -> None:
    stage = paying_stage
    jobs = [await enqueue(stage, form, dies=dies) for form in ("owe", "owe_sync")]
    if dies:
        for _ in jobs:
            await stage.worker(app=APP, concurrency=1).ended()
    stage.worker(app=APP)
    if dies == "before":
        await stage.let_run_out(*jobs)
    for ended in await stage.ended(*jobs):
        assert (ended.state, ended.result) == (State.SUCCEEDED, {"attempt": attempt + 1})
        assert await payments(stage, ended) == [attempt]
        failed = [each.outcome for each in await stage.hf.jobs.attempts(ended.id)]
        assert failed == [*["lost"] * (attempt - 1), "failed", "succeeded"]


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
@pytest.mark.parametrize(("before", "attempt"), [(True, 2), (False, 1)], ids=["before", "after"])
async def test_a_connection_that_is_cut_at_the_commit_pays_once(
    paying_stage: Stage, before: bool, attempt: int
) -> None:
    """Before the server hears of the commit, or when it has committed and its answer is lost."""
    stage = paying_stage
    address = urlsplit(stage.url)
    assert address.port is not None
    with Proxy(address.port) as proxy:
        url = proxy.url(address.path[1:])
        stage.worker(app=APP, environment={"HOLDFAST_DATABASE_URL": url})
        for form in FORMS:
            job_id = uuid4()
            cut = proxy.cut_at_commit(str(job_id).encode(), before=before)
            (ended,) = await stage.ended(await enqueue(stage, form, job_id))
            # The commit may be visible before the proxy has cut off its answer.
            assert await asyncio.to_thread(cut.done.wait, WAIT_SECONDS)
            assert (form, ended.state) == (form, State.SUCCEEDED)
            assert ended.result == {"attempt": attempt}
            assert await payments(stage, ended) == [attempt]


async def test_a_ghost_pays_nothing(paying_stage: Stage) -> None:
    stage = paying_stage
    job = await enqueue(stage, "pay_late", gate="gate")
    ghost = stage.worker(app=APP)
    await stage.noted("start", job.id)
    await freeze(ghost.pid, stage.url)
    stage.worker(app=APP)
    await stage.let_run_out(job)
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
