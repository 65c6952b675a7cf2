"""12. A job whose end the database refuses harms no other."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from holdfast import Holdfast, Retry, State
from holdfast.runtime.seam import Seam
from holdfast.stores.registry import make_store
from tests.promises.stage import both_stores
from tests.support.processes import wait_until
from tests.support.running import QUICK, execute, seen_events, signal, working

pytestmark = [pytest.mark.heavy, pytest.mark.long]

SQLITE_REFUSAL = """
CREATE TRIGGER refused BEFORE INSERT ON history WHEN new.name = 'refused' AND {condition}
BEGIN
    SELECT RAISE(ABORT, 'not this one');
END
"""
POSTGRES_REFUSAL = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'not this one';
END
$$;
CREATE TRIGGER refused BEFORE INSERT ON history FOR EACH ROW
WHEN (new.name = 'refused' AND {condition}) EXECUTE FUNCTION refuse()
"""
END_IN_PLACE = """
UPDATE jobs
SET state = 'succeeded', fence = fence + 1, finished_at = started_at, lease_owner = NULL,
    lease_expires_at = NULL
"""
RUN_OUT = "UPDATE jobs SET lease_expires_at = run_at WHERE lease_owner = 'dead'"
NEIGHBOURS = 9


async def refuse(url: str, condition: str) -> None:
    """Let the database refuse the end of jobs that are named `refused`, on this condition."""
    sql = SQLITE_REFUSAL if url.startswith("sqlite") else POSTGRES_REFUSAL
    await execute(url, sql.format(condition=condition))


class Party:
    """Jobs that all end in the same turn of the loop, so that they are settled as one batch."""

    def __init__(self, hf: Holdfast) -> None:
        self._all_here = asyncio.Event()
        self._here = 0
        self.refused = hf.job(name="refused")(self._run)
        self.neighbor = hf.job(name="neighbor")(self._run)

    async def _run(self) -> None:
        self._here += 1
        if self._here > NEIGHBOURS:
            self._all_here.set()
        await signal(self._all_here)


@both_stores
async def test_an_outcome_that_is_refused_ends_as_unstorable_and_its_batch_as_it_did(
    store_url: str,
) -> None:
    async with Holdfast(store_url, **QUICK) as hf:
        party = Party(hf)
        bad = await party.refused.enqueue()
        others = await hf.enqueue_many([party.neighbor.call() for _ in range(NEIGHBOURS)])
        await refuse(store_url, "new.state = 'succeeded'")
        report = await hf.run_worker(concurrency=NEIGHBOURS + 1, until_empty=True)
        assert (report.succeeded, report.failed) == (NEIGHBOURS, 1)
        assert {(await hf.get(job.id)).state for job in others} == {State.SUCCEEDED}
        ended = await hf.get(bad.id)
        assert (ended.state, ended.error_code) == (State.FAILED, "UNSTORABLE")


@both_stores
async def test_a_job_that_the_database_refuses_to_end_does_not_keep_others_from_ending(
    store_url: str,
) -> None:
    """Its lease expires, and not even its death can be recorded. The worker logs that and
    continues, and the jobs of dead workers are reclaimed all the same."""
    quick = QUICK | {"lease_seconds": 0.5, "reclaim_seconds": 0.1}
    async with Holdfast(store_url, **quick) as hf, seen_events() as seen:
        done = asyncio.Event()

        @hf.job(retry=Retry.none())
        async def refused() -> None:
            return None

        @hf.job
        async def stranded() -> None:
            done.set()

        await refuse(store_url, "true")
        bad = await refused.enqueue()
        await leave_leased(hf, store_url, (await stranded.enqueue()).id)
        async with working(hf, concurrency=1):
            await seen.first("settle_refused")
            await seen.first("reclaim_refused")
            assert not done.is_set()
            await execute(store_url, RUN_OUT)
            await wait_until(done.is_set, "taken back")
        assert (await hf.get(bad.id)).state is State.RUNNING


@both_stores
async def test_an_ended_job_that_the_database_refuses_to_move_ends_no_worker(
    store_url: str,
) -> None:
    """An older version had ended it in its place among the live ones."""
    quick = QUICK | {"reclaim_seconds": 0.1}
    async with Holdfast(store_url, **quick) as hf, seen_events() as seen:
        done = asyncio.Event()

        @hf.job
        async def refused() -> None:
            return None

        @hf.job
        async def waiting() -> None:
            done.set()

        bad = await refused.enqueue()
        await leave_leased(hf, store_url, bad.id)
        await execute(store_url, END_IN_PLACE)
        await refuse(store_url, "true")
        async with working(hf, concurrency=1):
            assert "not this one" in (await seen.first("tidy_refused")).message
            await waiting.enqueue()
            await signal(done)
        assert (await hf.get(bad.id)).state is State.SUCCEEDED


async def leave_leased(hf: Holdfast, url: str, job_id: UUID) -> None:
    """Leave a job to the lease of a worker that is not there any more."""
    store = make_store(url, Seam(), hf.settings)
    await store.open()
    try:
        await store.claim_by_id(job_id, "dead", 3600)
    finally:
        await store.close()
