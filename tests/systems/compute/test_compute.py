"""From a request to its result: what the system promises on the way."""

from __future__ import annotations

import asyncio
import logging
import xml.etree.ElementTree as ElementTree
from datetime import datetime
from pathlib import Path
from uuid import UUID

import pytest

from holdfast import JobFailed, Retry, State
from holdfast_systems.compute.contract import load_contracts
from tests.promises.stage import both_stores
from tests.support.processes import Process, wait_until
from tests.support.running import WAIT_SECONDS_MAX, execute, let_leases_run_out
from tests.systems.compute.stage import INPUTS, OTHER_TENANT, TENANT, request, staged

pytestmark = pytest.mark.heavy

# For what the other store has nothing new to say about.
on_postgres = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)


@both_stores
async def test_happy_path_with_validated_outputs(store_url: str) -> None:
    async with staged(store_url) as stage:
        job_id = await stage.run()
        told = await stage.ended(job_id)
        assert (told["status"], told["attempts"], told["last_error"]) == ("succeeded", 1, None)
        created, started, ended = (
            datetime.fromisoformat(told[f"{each}_at"]) for each in ("created", "started", "ended")
        )
        assert created <= started <= ended

        status, outputs = await stage.get(f"/jobs/result/{job_id}")
        assert status == 200
        load_contracts().find("house-fit", "1.0.0").outputs.check(outputs)
        assert outputs["results"][0]["score"] > 50

        url = outputs["artifacts"][0]["url"]
        async with stage.http.get(url, headers=stage.headers()) as response:
            assert response.status == 200
            assert "sandbox" in response.headers["content-security-policy"]
            picture = await response.read()
        assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"


@both_stores
async def test_retry_path_with_fail_once(store_url: str) -> None:
    async with staged(store_url, retry=Retry.schedule([3600.0])) as stage:
        stage.faults.fail_once = True
        job_id = await stage.run()
        waiting = await stage.until(job_id, lambda told: told["last_error"] is not None)
        assert waiting["status"] == "queued", "a job is not failed while a retry is to come"
        assert waiting["last_error"]["code"] == "APP_5XX"
        assert "answered 503" in waiting["last_error"]["message"]
        assert "\n" not in waiting["last_error"]["message"]

        await stage.hf.jobs.retry(job_id)
        done = await stage.ended(job_id)
        assert (done["status"], done["attempts"], done["last_error"]) == ("succeeded", 2, None)


async def test_dead_letter_path(local_url: str) -> None:
    async with staged(local_url) as stage:
        stage.faults.status = 502
        job_id = await stage.run()
        told = await stage.ended(job_id)
        assert (told["status"], told["attempts"]) == ("failed", 3)
        assert told["last_error"]["code"] == "APP_5XX"
        status, answer = await stage.get(f"/jobs/result/{job_id}")
        assert (status, answer["reason"]) == (409, "NO_RESULT")


@both_stores
async def test_outputs_that_break_the_contract_end_the_job_and_say_where(store_url: str) -> None:
    async with staged(store_url) as stage:
        stage.faults.broken_outputs = True
        job_id = await stage.run()
        told = await stage.ended(job_id)
        assert (told["status"], told["attempts"]) == ("failed", 1)
        assert told["last_error"]["code"] == "OUTPUTS_INVALID"
        pointers = [each["pointer"] for each in told["last_error"]["errors"]]
        assert pointers == ["/artifacts", "/results"]
        await execute(store_url, "DELETE FROM history")
        assert (await stage.status(job_id))["last_error"] == told["last_error"]


async def test_an_attempt_has_as_long_as_the_settings_say(local_url: str) -> None:
    retry = Retry.schedule([0.0], max_attempts=1)
    async with staged(local_url, retry=retry, timeout_seconds=0.1) as stage:
        stage.faults.delay_seconds = 1.5
        stage.faults.status = 500
        told = await stage.ended(await stage.run())
        assert (told["last_error"]["code"], told["attempts"]) == ("APP_TIMEOUT", 1)


async def test_the_same_inputs_are_computed_once(local_url: str) -> None:
    async with staged(local_url) as stage:
        job_id = await stage.run()
        await stage.ended(job_id)
        defaults = {"setbacks": {"neighbors": 3.0}, "north": 0}
        again = await stage.run(request(app_id="another", inputs=INPUTS | defaults))
        assert again == job_id
        assert stage.solved == 1


@both_stores
async def test_identical_requests_at_the_same_moment_are_one_job(store_url: str) -> None:
    async with staged(store_url) as stage:
        jobs = await asyncio.gather(*(stage.run() for _ in range(12)))
        assert len(set(jobs)) == 1
        await stage.ended(jobs[0])
        assert stage.solved == 1


@both_stores
async def test_a_result_outlives_the_history_of_its_job(store_url: str) -> None:
    async with staged(store_url) as stage:
        job_id = await stage.run()
        before = await stage.ended(job_id)
        await execute(store_url, "DELETE FROM history")
        after = await stage.status(job_id)
        assert (after["status"], after["attempts"]) == ("succeeded", before["attempts"])
        assert await stage.run() == job_id
        assert stage.solved == 1


@both_stores
async def test_a_failure_outlives_the_history_of_its_job(store_url: str) -> None:
    async with staged(store_url) as stage:
        stage.faults.status = 400
        job_id = await stage.run()
        before = await stage.ended(job_id)
        assert (before["status"], before["last_error"]["code"]) == ("failed", "APP_4XX")
        await execute(store_url, "DELETE FROM history")
        after = await stage.status(job_id)
        assert after["ended_at"] is not None
        for name in ("status", "attempts", "last_error"):
            assert after[name] == before[name]


@on_postgres
async def test_after_a_failure_the_same_request_is_a_new_job(store_url: str) -> None:
    async with staged(store_url) as stage:
        stage.faults.status = 400
        first = await stage.run()
        await stage.ended(first)
        stage.faults.status = None
        second = await stage.run()
        assert second != first
        assert (await stage.ended(second))["status"] == "succeeded"
        assert (await stage.status(first))["status"] == "failed"


async def test_the_worker_reuses_a_result_that_came_meanwhile(local_url: str) -> None:
    async with staged(local_url) as stage:
        stage.faults.status = 400
        first = await stage.run()
        await stage.ended(first)
        stage.faults.status = None
        second = await stage.run()
        await stage.ended(second)

        requeued = (await stage.hf.jobs.requeue(first)).id
        await stage.hf.result(requeued, timeout_seconds=WAIT_SECONDS_MAX)
        assert (await stage.status(requeued))["status"] == "succeeded"
        results = [await stage.get(f"/jobs/result/{each}") for each in (requeued, second)]
        assert results[0] == results[1]
        assert stage.solved == 1


async def test_a_requeued_job_answers_for_its_inputs(local_url: str) -> None:
    async with staged(local_url, retry=Retry.schedule([3600.0])) as stage:
        stage.faults.status = 400
        first = await stage.run()
        await stage.ended(first)
        stage.faults.status = 503
        requeued = (await stage.hf.jobs.requeue(first)).id

        async def waits() -> bool:
            return (await stage.hf.get(requeued)).error_code == "APP_5XX"

        await wait_until(waits, "a first attempt that failed")
        assert await stage.run() == requeued, "it may still get a result"
        stage.faults.status = None
        await stage.hf.jobs.retry(requeued)
        assert (await stage.ended(requeued))["status"] == "succeeded"
        assert await stage.run() == requeued
        assert stage.solved == 1


async def test_a_requeued_job_whose_request_is_gone_says_so(local_url: str) -> None:
    async with staged(local_url) as stage:
        stage.faults.status = 400
        first = await stage.run()
        await stage.ended(first)
        await execute(local_url, "DELETE FROM compute_jobs")
        requeued = (await stage.hf.jobs.requeue(first)).id
        with pytest.raises(JobFailed):
            await stage.hf.result(requeued, timeout_seconds=WAIT_SECONDS_MAX)
        assert (await stage.hf.get(requeued)).error_code == "REQUEST_MISSING"


@on_postgres
async def test_a_tenant_sees_and_reuses_only_its_own(store_url: str) -> None:
    async with staged(store_url) as stage:
        own = await stage.run()
        await stage.ended(own)
        _, outputs = await stage.get(f"/jobs/result/{own}")
        picture = outputs["artifacts"][0]["url"]
        for tenant in (OTHER_TENANT, None):
            for path in (f"/jobs/status/{own}", f"/jobs/result/{own}", picture):
                status, _ = await stage.get(path, tenant)
                assert status == 404
            assert await stage.run(tenant=tenant) != own
        assert (await stage.get(picture, TENANT))[0] == 200


@both_stores
async def test_a_key_without_a_tenant_computes_for_the_tenant_default(store_url: str) -> None:
    async with staged(store_url) as stage:
        job_id = await stage.run(tenant=None)
        await stage.ended(job_id, None)
        default = stage.hf.for_tenant("default")
        assert (await default.get(job_id)).state is State.SUCCEEDED
        async with stage.hf.transaction(read_only=True) as connection:
            prefix = "" if store_url.startswith("sqlite") else "holdfast."
            assert await connection.fetchval(f"SELECT tenant_id FROM {prefix}job") == "default"


@both_stores
async def test_the_views_have_the_columns_that_were_agreed(store_url: str) -> None:
    expected = {
        "job": [
            *("id", "tenant_id", "app_id", "definition", "version", "status", "inputs_hash"),
            *("payload_json", "attempts", "last_error", "priority", "created_at", "started_at"),
            "ended_at",
        ],
        "result": ["id", "job_id", "outputs_json", "score", "created_at"],
        "artifact": ["id", "job_id", "kind", "url", "expires_at"],
    }
    async with staged(store_url) as stage:
        job_id = await stage.run()
        await stage.ended(job_id)
        async with stage.hf.transaction(read_only=True) as connection:
            for view, columns in expected.items():
                prefix = "" if store_url.startswith("sqlite") else "holdfast."
                (row,) = await connection.fetch(f"SELECT * FROM {prefix}{view}")
                assert [*row.keys()] == columns
        assert (await stage.hf.get(job_id)).priority == 100


@pytest.mark.parametrize(
    "refused",
    [
        "compute_artifacts",  # written after the result
        "history WHEN new.state = 'succeeded'",  # the job's own end
    ],
)
async def test_a_result_its_artifacts_and_the_success_are_written_together_or_not_at_all(
    local_url: str, refused: str
) -> None:
    async with staged(local_url) as stage:
        await execute(
            local_url,
            f"CREATE TRIGGER refuse BEFORE INSERT ON {refused}"
            " BEGIN SELECT RAISE(ABORT, 'refused'); END",
        )
        told = await stage.ended(await stage.run())
        assert told["status"] == "failed"
        async with stage.hf.transaction(read_only=True) as connection:
            for view in ("result", "artifact"):
                assert await connection.fetchval(f"SELECT count(*) FROM {view}") == 0


async def test_the_correlation_id_goes_from_the_request_to_the_appserver_and_the_logs(
    local_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with staged(local_url, work=False) as stage:
        status, answer = await stage.post(request(), headers={"x-correlation-id": "order-77"})
        assert status == 202
        job_id = UUID(answer["job_id"])
        # Only now: a worker may start a job before the API has logged that it is queued.
        await stage.hf.run_worker(until_empty=True)
        assert (await stage.hf.get(job_id)).correlation_id == "order-77"
    lines = [vars(each)["fields"] for each in caplog.records if "fields" in vars(each)]
    told = [line for line in lines if line.get("cid") == "order-77"]
    for line in told:
        assert (line["job_id"], line["definition@version"]) == (str(job_id), "house-fit@1.0.0")
    steps = [(line["status"], line["attempt"]) for line in told]
    api, worker, appserver = [("queued", 0)], [("running", 1)], [("running", 1), ("succeeded", 1)]
    assert steps == [*api, *worker, *appserver, ("succeeded", 1)]


async def test_a_request_that_is_answered_already_says_so_in_the_log(
    local_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with staged(local_url) as stage:
        job_id = await stage.run()
        await stage.ended(job_id)
        await stage.post(request(), headers={"x-correlation-id": "order-78"})
    (line,) = [each for each in caplog.records if vars(each).get("event") == "reused"]
    assert vars(line)["fields"] == {
        "cid": "order-78",
        "job_id": str(job_id),
        "status": "succeeded",
        "attempt": 1,
        "definition@version": "house-fit@1.0.0",
    }


async def test_a_refused_request_is_logged_without_its_values(
    local_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(local_url, work=False) as stage:
        headers = {"x-correlation-id": "order-79"}
        await stage.post(request(inputs=INPUTS | {"north": "secret"}), headers=headers)
        await stage.post(request(definition="none"), headers=headers)
    lines = [vars(each)["fields"] for each in caplog.records if "fields" in vars(each)]
    told = [(line["cid"], line["job_id"], line["status"], line["attempt"]) for line in lines]
    assert told == [("order-79", "-", "refused", 0)] * 2
    codes = [(line["error_code"], line["definition@version"]) for line in lines]
    assert codes == [("INPUTS_INVALID", "house-fit@1.0.0"), ("CONTRACT_UNKNOWN", "none@1.0.0")]
    assert lines[0]["error_text"] == "see /north"


async def test_a_killed_worker_costs_an_attempt_and_no_result(
    local_url: str, tmp_path: Path
) -> None:
    def worker(name: str) -> Process:
        command = ["-m", "holdfast.cli.main", "worker", "holdfast_systems.compute.app:hf"]
        environment = {
            "DATABASE_URL": local_url,
            "APP_SERVER_URL": stage.compute.settings.app_server_url,
            "HOLDFAST_RECLAIM_SECONDS": "0.3",
        }
        return Process(name, [*command, "--log-format=json"], tmp_path, environment)

    async with staged(local_url, work=False) as stage:
        # Longer than it takes to kill who waits for it; the server's own end waits for the answer.
        stage.faults.delay_seconds = 20
        job_id = await stage.run()
        first = worker("first")
        await stage.until(job_id, lambda told: told["status"] == "running")
        first.kill()
        await let_leases_run_out(local_url)
        stage.faults.delay_seconds = 0
        second = worker("second")
        told = await stage.ended(job_id)
        second.kill()
        assert (told["status"], told["attempts"]) == ("succeeded", 2)
        async with stage.hf.transaction(read_only=True) as connection:
            assert await connection.fetchval("SELECT count(*) FROM result") == 1
