"""Real workers: killed, stopped, frozen, and started where nothing is prepared."""

from __future__ import annotations

import json
import signal
from typing import Any
from uuid import UUID

import pytest

from holdfast_systems.convert.steps import EVENTS, FIELDS
from tests.promises.stage import both_stores
from tests.support.processes import Process, freeze, wait_until
from tests.support.running import seen_events, working
from tests.systems.convert.bench import Bench
from tests.systems.convert.scripted import ScriptedGateway

pytestmark = pytest.mark.heavy

FRAME = {"time", "level", "event", "message", "logger"}


@both_stores
async def test_a_stuck_job_is_converted_by_another_worker_after_a_crash(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    gateway.gate.clear()
    job_id = await bench.submit()
    doomed = bench.worker()
    await gateway.arrivals()
    doomed.kill()
    assert (await bench.conversion(job_id)).status == "processing"
    gateway.gate.set()
    await bench.let_leases_run_out()
    async with working(bench.hf):
        complete = await bench.reaches(job_id, "complete")
    assert complete.attempts == 2
    # Claimed, taken back, claimed again: each raises the fence.
    assert bench.results == {f"{job_id}.3.xml": "<document>2</document>"}


@both_stores
async def test_reclaim_requeues_what_expired(bench: Bench, gateway: ScriptedGateway) -> None:
    """By a worker that serves another queue, so that the job is not claimed again at once."""
    gateway.gate.clear()
    job_id = await bench.submit()
    doomed = bench.worker()
    await gateway.arrivals()
    doomed.kill()
    await bench.let_leases_run_out()
    async with seen_events() as seen, working(bench.hf, queues=["other"]):
        queued = await bench.reaches(job_id, "queued")
        reclaimed = (await seen.first("reclaim")).fields
    assert (str(reclaimed["job_id"]), reclaimed["state"]) == (str(job_id), "queued")
    assert (queued.attempts, queued.result_path) == (1, None)
    job = await bench.hf.get(job_id)
    assert (job.lease_owner, job.lease_expires_at) == (None, None)


@both_stores
async def test_a_worker_told_to_stop_finishes_or_hands_back_before_it_exits(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    gateway.gate.clear()
    finished = await bench.submit()
    patient = bench.worker()
    await gateway.arrivals()
    patient.signal(signal.SIGTERM)
    await patient.logs("shutdown")
    late = await bench.submit()
    gateway.gate.set()
    assert await patient.ended() == 0
    assert (await bench.conversion(finished)).status == "complete"
    assert (await bench.conversion(late)).attempts == 0
    gateway.gate.clear()
    hasty = bench.worker(HOLDFAST_GRACE_SECONDS="0")
    await gateway.arrivals(2)
    hasty.signal(signal.SIGTERM)
    assert await hasty.ended() == 0
    queued = await bench.conversion(late)
    assert (queued.status, queued.attempts, queued.error_code) == ("queued", 0, None)


@both_stores
async def test_a_late_worker_cannot_overwrite_the_result_of_the_owner(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    gateway.gate.clear()
    job_id = await bench.submit()
    late = bench.worker()
    await gateway.arrivals()
    assert bench.settings.database_url is not None
    await freeze(late.pid, bench.settings.database_url)
    await bench.let_leases_run_out()
    async with working(bench.hf):
        await gateway.arrivals(2)
        gateway.gate.set()  # both are answered, but the late one does not run
        complete = await bench.reaches(job_id, "complete")
    late.signal(signal.SIGCONT)
    await wait_until(lambda: late.events("lost") or late.events("complete"), lambda: late.text)
    late.signal(signal.SIGTERM)
    assert await late.ended() == 0
    assert complete.result_path is not None
    assert complete.result_path.endswith(f"{job_id}.3.xml")
    assert bench.results[f"{job_id}.3.xml"] == "<document>2</document>"
    assert await bench.conversion(job_id) == complete
    assert late.events("complete") == []


@both_stores
async def test_both_folders_are_made_at_boot(bench: Bench) -> None:
    deep = bench.folder / "not" / "there"
    convert = bench.other(uploads_dir=deep / "uploads", results_dir=deep / "results")
    async with convert.hf:
        await convert.hf.run_due()
    assert sorted(path.name for path in deep.iterdir()) == ["results", "uploads"]


@both_stores
async def test_log_lines_tell_each_step_with_its_job_and_time(bench: Bench) -> None:
    complete = await bench.submit({"status": 500}, {})
    failed = await bench.submit({"status": 404})
    worker = bench.worker()
    await bench.reaches(failed, "failed")
    await wait_until(lambda: worker.events("retry"), lambda: worker.text)
    await bench.hf.jobs.retry(complete)
    await worker.logs("complete")
    worker.signal(signal.SIGTERM)
    await worker.ended()
    assert told(worker, failed) == [
        ("claim", "processing", 1, None, None),
        ("start", "processing", 1, None, None),
        ("gateway_error", "failed", 1, 404, "GW_4XX"),
        ("failed", "failed", 1, None, "GW_4XX"),
    ]
    assert told(worker, complete) == [
        ("claim", "processing", 1, None, None),
        ("start", "processing", 1, None, None),
        ("gateway_error", "queued", 1, 500, "GW_5XX"),
        ("claim", "processing", 2, None, None),
        ("start", "processing", 2, None, None),
        ("gateway_ok", "processing", 2, 200, None),
        ("complete", "complete", 2, None, None),
    ]
    (shutdown,) = worker.events("shutdown")
    assert set(shutdown) == FRAME


@both_stores
async def test_a_reclaimed_conversion_is_logged_with_these_fields(
    bench: Bench, gateway: ScriptedGateway
) -> None:
    gateway.gate.clear()
    job_id = await bench.submit()
    doomed = bench.worker()
    await gateway.arrivals()
    doomed.kill()
    await bench.let_leases_run_out()
    gateway.gate.set()
    worker = bench.worker()
    await worker.logs("complete")
    assert told(worker, job_id)[0] == ("reclaim", "queued", 1, None, "LEASE_LOST")
    (end,) = worker.events("complete")
    assert end["duration_ms"] >= 0


def told(worker: Process, job_id: UUID) -> list[tuple[Any, ...]]:
    """The steps of a job in its log, which have the fields of the seed and no others."""
    lines = [json.loads(line) for line in worker.text.splitlines() if line.startswith("{")]
    own = [line for line in lines if line["event"] in EVENTS and line.get("job_id") == str(job_id)]
    for line in own:
        assert set(line) <= FRAME | set(FIELDS)
        assert line["event"] in ("claim", "reclaim") or line["duration_ms"] >= 0
    fields = ("event", "status", "attempt", "gateway_status", "error_code")
    return [tuple(line.get(field) for field in fields) for line in own]
