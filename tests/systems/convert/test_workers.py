"""Real workers: killed, stopped, frozen, and started where nothing is prepared."""

from __future__ import annotations

import signal

import pytest

from tests.promises.stage import both_stores
from tests.support.processes import freeze, wait_until
from tests.support.running import seen_events, working
from tests.systems.convert.bench import Bench
from tests.systems.convert.scripted import ScriptedGateway

pytestmark = pytest.mark.heavy


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


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
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


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
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


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
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


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_both_folders_are_made_at_boot(bench: Bench) -> None:
    deep = bench.folder / "not" / "there"
    convert = bench.other(uploads_dir=deep / "uploads", results_dir=deep / "results")
    async with convert.hf:
        await convert.hf.run_due()
    assert sorted(path.name for path in deep.iterdir()) == ["results", "uploads"]


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_log_lines_tell_each_step_with_its_job_and_time(bench: Bench) -> None:
    complete = await bench.submit({"status": 500}, {})
    failed = await bench.submit({"status": 404})
    worker = bench.worker()
    await bench.reaches(failed, "failed")
    await wait_until(lambda: worker.events("retry"), lambda: worker.text)
    await bench.hf.jobs.retry(complete)
    await bench.reaches(complete, "complete")
    await worker.logs("complete")
    own = [
        {"event": name, **event}
        for name in ("start", "gateway_error", "gateway_ok", "complete", "failed")
        for event in worker.events(name)
        if event.get("logger") == "holdfast_systems.convert"
    ]
    assert all(event["duration_ms"] >= 0 for event in own)
    told = ("event", "status", "attempt", "gateway_status", "error_code")
    assert [
        [event.get(field) for field in told] for event in own if event["job_id"] == str(failed)
    ] == [
        ["start", "processing", 1, None, None],
        ["gateway_error", "failed", 1, 404, "GW_4XX"],
        ["failed", "failed", 1, None, "GW_4XX"],
    ]
    assert [
        [event.get(field) for field in told] for event in own if event["job_id"] == str(complete)
    ] == [
        ["start", "processing", 1, None, None],
        ["start", "processing", 2, None, None],
        ["gateway_error", "queued", 1, 500, "GW_5XX"],
        ["gateway_ok", "processing", 2, 200, None],
        ["complete", "complete", 2, None, None],
    ]
