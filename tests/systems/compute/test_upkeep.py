"""What is deleted after its time, what stays, and what the counters say."""

from __future__ import annotations

import logging
from uuid import UUID

import pytest

from holdfast import SweepContext
from holdfast_systems.compute.limits import FORGET_JOBS_MAX
from holdfast_systems.compute.upkeep import Upkeep
from tests.promises.stage import both_stores
from tests.support.running import execute
from tests.systems.compute.stage import INPUTS, OTHER_TENANT, TENANT, Stage, request, staged

pytestmark = pytest.mark.heavy

TABLES = ("compute_jobs", "compute_results", "compute_artifacts", "compute_hashes")
SWEEP = SweepContext("test")


def upkeep_of(stage: Stage, retention_days: float = 365.0) -> Upkeep:
    return Upkeep(stage.hf, stage.compute.records, retention_days)


async def rows(stage: Stage, url: str, table: str) -> int:
    prefix = "" if url.startswith("sqlite") else "holdfast."
    async with stage.hf.transaction(read_only=True) as connection:
        found = await connection.fetchval(f"SELECT count(*) FROM {prefix}{table}")
        return int(found)


async def make_older(url: str, days: int, job_id: UUID | None = None) -> None:
    """Let a job, or all, have been requested and have ended so long ago."""
    where = "" if job_id is None else f" AND {{id}} = '{job_id}'"
    ages = {"compute_jobs": "id", "compute_results": "job_id", "compute_failures": "job_id"}
    for table, id in ages.items():
        past = (
            f"strftime('%Y-%m-%dT%H:%M:%f000Z', created_at, '-{days} days')"
            if url.startswith("sqlite")
            else f"created_at - interval '{days} days'"
        )
        what = f"UPDATE {table} SET created_at = {past} WHERE true{where.format(id=id)}"
        await execute(url, what)
    await execute(url, "DELETE FROM history")


@both_stores
async def test_what_ended_long_ago_is_deleted_with_all_that_belongs_to_it(store_url: str) -> None:
    async with staged(store_url) as stage:
        old, recent = await stage.run(), await stage.run(request(inputs=INPUTS | {"north": 9}))
        stage.faults.fail_once = True
        for job_id in (old, recent):
            await stage.ended(job_id)
        await make_older(store_url, 366, old)
        await make_older(store_url, 364, recent)
        assert await upkeep_of(stage, 0).forget_compute_jobs(SWEEP) is None
        assert await rows(stage, store_url, "compute_jobs") == 2, "0 days: kept forever"
        assert await upkeep_of(stage).forget_compute_jobs(SWEEP) is None
        assert [await rows(stage, store_url, table) for table in TABLES] == [1, 1, 1, 1]
        assert (await stage.get(f"/jobs/status/{old}"))[0] == 404
        assert (await stage.status(recent))["status"] == "succeeded"
        solved = stage.solved
        again = await stage.run()
        assert again != old
        assert (await stage.ended(again))["status"] == "succeeded"
        assert stage.solved == solved + 1


@both_stores
async def test_what_still_waits_is_never_deleted(store_url: str) -> None:
    async with staged(store_url, work=False) as stage:
        job_id = await stage.run()
        await make_older(store_url, 1000)
        await upkeep_of(stage).forget_compute_jobs(SWEEP)
        assert (await stage.status(job_id))["status"] == "queued"


@both_stores
async def test_a_result_that_a_younger_one_links_to_stays(store_url: str) -> None:
    async with staged(store_url) as stage:
        stage.faults.status = 400
        first = await stage.run()
        await stage.ended(first)
        stage.faults.status = None
        second = await stage.run()
        await stage.ended(second)
        copy = (await stage.hf.jobs.requeue(first)).id
        await stage.ended(copy)
        await make_older(store_url, 400, second)
        await upkeep_of(stage).forget_compute_jobs(SWEEP)
        _, outputs = await stage.get(f"/jobs/result/{copy}")
        assert (await stage.get(outputs["artifacts"][0]["url"]))[0] == 200
        await make_older(store_url, 400)
        await upkeep_of(stage).forget_compute_jobs(SWEEP)
        await upkeep_of(stage).forget_compute_jobs(SWEEP)
        assert await rows(stage, store_url, "compute_jobs") == 0


@both_stores
async def test_much_is_deleted_in_steps(store_url: str) -> None:
    async with staged(store_url, work=False) as stage:
        await stage.run()
        columns = "app_id, definition, version, inputs_hash, payload_json, priority, created_at"
        series = (
            f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
            f" WHERE i <= {FORGET_JOBS_MAX})"
        )
        made = (
            "printf('00000000-0000-4000-8000-%012d', i)"
            if store_url.startswith("sqlite")
            else "gen_random_uuid()"
        )
        await execute(
            store_url,
            f"INSERT INTO compute_jobs (id, {columns}) {series}"
            f" SELECT {made}, {columns} FROM compute_jobs, n",
        )
        await execute(store_url, "DELETE FROM jobs")
        await make_older(store_url, 366)
        upkeep = upkeep_of(stage)
        assert await upkeep.forget_compute_jobs(SWEEP) == 0
        assert await rows(stage, store_url, "compute_jobs") == 2
        assert await upkeep.forget_compute_jobs(SWEEP) is None
        assert await rows(stage, store_url, "compute_jobs") == 0


@both_stores
async def test_an_artifact_is_deleted_when_it_expires(store_url: str) -> None:
    async with staged(store_url) as stage:
        job_id = await stage.run()
        await stage.ended(job_id)
        await upkeep_of(stage).forget_compute_jobs(SWEEP)
        assert await rows(stage, store_url, "artifact") == 1
        await execute(
            store_url, "UPDATE compute_artifacts SET expires_at = '2026-01-01T00:00:00.000000Z'"
        )
        await upkeep_of(stage, 0).forget_compute_jobs(SWEEP)
        assert await rows(stage, store_url, "artifact") == 0
        assert await rows(stage, store_url, "result") == 1


@both_stores
async def test_counters_of_what_was_received_completed_and_abandoned(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with staged(store_url) as stage:
        _, told = await stage.get("/jobs/counters")
        assert (told["received"], told["average_latency_ms"], told["definitions"]) == (0, None, [])
        stage.faults.fail_once = True
        first = await stage.run()
        await stage.ended(first)
        stage.faults.status = 400
        second = await stage.run(request(inputs=INPUTS | {"north": 7}))
        await stage.ended(second)
        stage.faults.status = None
        third = await stage.run(tenant=OTHER_TENANT)
        await stage.ended(third, OTHER_TENANT)

        _, told = await stage.get("/jobs/counters", TENANT)
        (definition,) = told.pop("definitions")
        assert (definition.pop("definition"), definition.pop("version")) == ("house-fit", "1.0.0")
        assert definition == told
        latency = told.pop("average_latency_ms")
        assert 0 < latency < 60_000
        assert told == {"received": 3, "completed": 1, "abandoned": 1, "failed": 1}

        upkeep = upkeep_of(stage)
        caplog.clear()  # the worker's own sweep may have printed the same
        for _ in range(2):
            await upkeep.print_compute_counters(SWEEP)
        (line,) = [
            vars(each)["fields"]
            for each in caplog.records
            if vars(each).get("event") == "counters" and vars(each)["fields"]["received"] == 4
        ]
        assert (line["completed"], line["abandoned"], line["failed"]) == (2, 1, 1)
        assert line["average_latency_ms"] > 0


async def test_a_result_that_was_there_counts_as_completed_without_a_latency(
    local_url: str,
) -> None:
    async with staged(local_url) as stage:
        stage.faults.status = 400
        first = await stage.run()
        await stage.ended(first)
        stage.faults.status = None
        await stage.ended(await stage.run())
        _, before = await stage.get("/jobs/counters")
        await stage.ended((await stage.hf.jobs.requeue(first)).id)
        _, after = await stage.get("/jobs/counters")
        assert after["completed"] == before["completed"] + 1
        assert after["average_latency_ms"] == before["average_latency_ms"]
