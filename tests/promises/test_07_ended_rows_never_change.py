"""7. Rows in an end state never change; a requeue is a new job that names the old one."""

from __future__ import annotations

import sqlite3
from uuid import UUID

import asyncpg
import pytest

from holdfast import Job, State, WrongState
from holdfast.domain.job import Lease, Settlement
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import FullStore, require
from holdfast.stores.registry import make_store
from tests.promises.stage import Stage, both_stores

pytestmark = [pytest.mark.heavy, pytest.mark.long]

BACK_TO_LIFE = (
    "state = 'queued', finished_at = NULL",
    "state = 'running', finished_at = NULL, lease_owner = 'me', lease_expires_at = run_at",
)
UPDATES = (
    "state = 'succeeded'",
    "state = 'canceled'",
    "fence = fence + 1",
    "result = '1'",
    "error_text = 'another'",
    "attempt = 0",
    "queue = 'another'",
)


async def one_of_each_end(stage: Stage) -> list[Job]:
    keyed = stage.jobs.quick.options(idempotency_key="key", tenant="tenant", tags=["a"], queue="q")
    jobs = [
        await keyed.enqueue(7),
        await stage.jobs.hopeless.enqueue("no"),
        await stage.jobs.unsteady.options(max_attempts=1).enqueue(9),
        await stage.jobs.quick.enqueue(1),
    ]
    await stage.hf.jobs.cancel(jobs[3].id)
    assert await stage.worker("--until-empty").ended() == 0
    ended = await stage.ended(*jobs)
    assert [job.state for job in ended] == ["succeeded", "failed", "dead", "canceled"]
    return ended


async def refuses_every_update(stage: Stage, table: str, job_id: UUID, *updates: str) -> None:
    record = await stage.record(job_id)
    for update in updates:
        with pytest.raises((sqlite3.IntegrityError, asyncpg.CheckViolationError)):
            await stage.fetch(f"UPDATE {table} SET {update} WHERE id = '{job_id}'")
    assert await stage.record(job_id) == record


async def test_the_database_itself_refuses_to_change_an_ended_row(stage: Stage) -> None:
    for job in await one_of_each_end(stage):
        await refuses_every_update(stage, "history", job.id, *UPDATES)


async def test_the_database_itself_refuses_to_change_a_row_that_ended_in_place(
    stage: Stage,
) -> None:
    """Workers of an older version leave such rows, until upkeep moves them."""
    job = await stage.jobs.quick.enqueue(1)
    for update in (
        "state = 'running', fence = 1, lease_owner = 'me', lease_expires_at = run_at",
        "state = 'dead', fence = 2, lease_owner = NULL, lease_expires_at = NULL,"
        " finished_at = run_at",
    ):
        await stage.fetch(f"UPDATE jobs SET {update} WHERE id = '{job.id}'")
    await refuses_every_update(stage, "jobs", job.id, *BACK_TO_LIFE, *UPDATES)
    assert (await stage.hf.get(job.id)).state is State.DEAD


@both_stores
async def test_no_operation_changes_an_ended_job(stage: Stage) -> None:
    ended = await one_of_each_end(stage)
    records = [await stage.record(job.id) for job in ended]
    store = require(make_store(stage.url, Seam(), stage.hf.settings), FullStore, "do everything")
    await store.open()
    try:
        for job in ended:
            with pytest.raises(WrongState):
                await stage.hf.jobs.cancel(job.id)
            again = Settlement(job_id=job.id, fence=job.fence, state=State.QUEUED)
            assert [lost.job_id for lost in await store.settle([again])] == [job.id]
            assert len(await store.renew([Lease(job.id, job.fence)], 30)) == 1
            assert not await store.progress(Lease(job.id, job.fence), b"1")
            assert not await store.retry(job.id)
            assert await store.claim_by_id(job.id, "me", 30) is None
        assert await store.reclaim(100) == []
    finally:
        await store.close()
    for job in ended:
        await stage.hf.jobs.requeue(job.id)
        await stage.hf.jobs.retry(job.id)
    assert await stage.worker("--until-empty").ended() == 0
    assert [await stage.record(job.id) for job in ended] == records


@both_stores
async def test_a_requeue_is_a_new_job_that_names_the_old_one_and_has_no_key(stage: Stage) -> None:
    old, *_ = await one_of_each_end(stage)
    new = await stage.hf.jobs.requeue(old.id)
    assert (old.idempotency_key, new.idempotency_key) == ("key", None)
    assert new.id != old.id
    assert new.requeued_from == old.id
    assert (new.state, new.attempts, new.fence) == (State.QUEUED, 0, 0)
    for kept in ("name", "arguments", "queue", "tenant", "tags", "priority", "max_attempts"):
        assert getattr(new, kept) == getattr(old, kept)
    assert [str(row[0]) for row in await stage.fetch("SELECT job_id FROM idempotency_keys")] == [
        str(old.id)
    ]
    keyed = stage.jobs.quick.options(idempotency_key="key", tenant="tenant")
    assert (await keyed.enqueue(7)).id == old.id
    assert await stage.worker("--until-empty").ended() == 0
    assert (await stage.hf.get(new.id)).result == 7
