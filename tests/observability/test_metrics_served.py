"""Metrics of real workers, scraped over HTTP."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from holdfast import ConfigurationError, Holdfast
from holdfast.observability.metrics import METRICS
from tests.promises.stage import Stage, both_stores
from tests.support.crashing import make_suspects, started
from tests.support.examining import SHELL, surroundings
from tests.support.postgres import free_port
from tests.support.processes import WAIT_SECONDS
from tests.support.running import QUICK, working
from tests.support.scraping import get, scrape, scraped

pytestmark = pytest.mark.heavy

LONG_LEASE_SECONDS = 60


@pytest.fixture
async def stage(store_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(store_url, tmp_path)
    try:
        yield made
    finally:
        await made.close()


sqlite_only = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


@both_stores
async def test_a_worker_is_scraped_and_stops_serving_when_it_ends(stage: Stage) -> None:
    port = free_port()
    await stage.jobs.quick.enqueue(1)
    await stage.jobs.hopeless.options(queue="mail").enqueue("no")
    worker = stage.worker(f"--metrics-port={port}")
    await scraped(port, "holdfast_jobs_total", 2)
    told = await scraped(port, "holdfast_workers", 1, state="live")
    assert told.value("holdfast_jobs_total", name="quick", outcome="succeeded") == 1
    assert told.value("holdfast_failed_total", queue="mail", state="failed") == 1
    assert told.value("holdfast_database_up") == 1
    served = await worker.logs("metrics")
    assert served["message"] == f"served on http://127.0.0.1:{port}/metrics"
    names = {metric.name for metric in METRICS}
    assert {family.removesuffix("_total") for family in told.families} <= {
        name.removesuffix("_total") for name in names
    }
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    with pytest.raises(OSError, match="refused"):
        await get(port)


@sqlite_only
async def test_a_handler_that_blocks_the_loop_keeps_no_scrape_waiting(stage: Stage) -> None:
    port = free_port()
    job = await stage.jobs.gated_and_blocking.enqueue("gate")
    stage.worker(f"--metrics-port={port}", lease_seconds=LONG_LEASE_SECONDS)
    await stage.noted("start", job.id)
    assert (await scrape(port)).value("holdfast_worker_slots_in_use") == 1
    stage.open_gate("gate")


@sqlite_only
async def test_one_port_serves_the_sum_of_several_processes(stage: Stage) -> None:
    port = free_port()
    jobs = await stage.hf.enqueue_many([stage.jobs.gated.call("gate") for _ in range(2)])
    worker = stage.worker(f"--metrics-port={port}", "--processes=2", concurrency=1)
    await stage.noted("start", times=2)
    assert len({entry["pid"] for entry in stage.ledger("start")}) == 2
    told = await scraped(port, "holdfast_worker_slots_in_use", 2)
    assert told.value("holdfast_worker_slots") == 2
    assert told.value("holdfast_children_started_total", kind="worker") == 2
    stage.open_gate("gate")
    await stage.ended(*jobs)
    await scraped(port, "holdfast_jobs_total", 2, name="gated", outcome="succeeded")
    os.kill(started(worker)[0], signal.SIGKILL)
    told = await scraped(port, "holdfast_children_died_total", 1, kind="worker")
    assert told.value("holdfast_jobs_total", name="gated", outcome="succeeded") == 2
    await scraped(port, "holdfast_worker_slots", 2)
    await scraped(port, "holdfast_children_started_total", 3, kind="worker")


@sqlite_only
async def test_what_a_process_counts_in_its_last_moment_is_not_lost(stage: Stage) -> None:
    port = free_port()
    job = await stage.jobs.gated.enqueue("gate")
    worker = stage.worker(f"--metrics-port={port}", "--processes=1")
    await stage.noted("start", job.id)
    child = started(worker)[0]
    os.kill(child, signal.SIGTERM)  # which lets it finish its job
    stage.open_gate("gate")
    told = await scraped(port, "holdfast_jobs_total", 1, outcome="succeeded")
    assert told.value("holdfast_settle_lag_seconds_count") == 1


@sqlite_only
async def test_what_runs_alone_in_a_process_is_counted_by_the_worker_that_started_it(
    stage: Stage,
) -> None:
    port = free_port()
    job = await stage.jobs.quick.enqueue(1)
    await make_suspects(stage.hf, [job])
    stage.worker(f"--metrics-port={port}")
    await stage.ended(job)
    told = await scraped(port, "holdfast_jobs_total", 1, name="quick", outcome="succeeded")
    assert told.value("holdfast_children_started_total", kind="suspects") == 1


async def test_a_worker_inside_of_a_program_serves_by_its_setting(local_url: str) -> None:
    port = free_port()
    async with Holdfast(local_url, **QUICK, metrics_port=port) as hf:

        @hf.job
        async def work() -> None: ...

        await work.enqueue()
        async with working(hf):
            await scraped(port, "holdfast_jobs_total", 1, name="work")
            with pytest.raises(HTTPError, match="404"):
                await get(port, "/elsewhere")
            assert await get(port, "/metrics?a=b")
        with pytest.raises(OSError, match="refused"):
            await get(port)


async def test_a_client_that_says_nothing_does_not_keep_the_worker_from_ending(
    local_url: str,
) -> None:
    port = free_port()
    async with Holdfast(local_url, **QUICK, metrics_port=port) as hf:

        @hf.job
        async def work() -> None: ...

        async with working(hf):
            await scraped(port, "holdfast_worker_slots", 20)
            silent = socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)
            await get(port)
        assert silent.recv(1) == b""
        silent.close()


APP = """
from holdfast import Holdfast

hf = Holdfast()

@hf.job
async def work(): ...
"""


def test_a_temporary_folder_whose_path_is_too_long_is_told(local_url: str, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    deep = tmp_path / ("x" * 110)
    deep.mkdir()
    told = subprocess.run(
        [*SHELL, "worker", "app:hf", "--metrics-port", str(free_port())],
        cwd=tmp_path,
        env={**surroundings(local_url), "TMPDIR": str(deep)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=WAIT_SECONDS,
    )
    assert told.returncode == 1
    assert told.stderr.startswith("holdfast: metrics need a writable folder for a socket")


async def test_a_port_that_is_taken_is_told(local_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with Holdfast(local_url, **QUICK, metrics_port=port) as hf:

            @hf.job
            async def work() -> None: ...

            with pytest.raises(ConfigurationError, match=f"can't be served on 127.0.0.1:{port}"):
                await hf.run_worker()
