"""Promise 13: whoever talks to the metrics' sockets, no worker stops, and none loses its files."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from holdfast.observability.exposition import DatabaseStatus, expose
from holdfast.observability.metrics import PAIRS_MAX, Metrics
from holdfast.runtime.seam import Seam
from holdfast.worker import metrics_export
from tests.promises.stage import Stage
from tests.support.crashing import started
from tests.support.postgres import free_port
from tests.support.processes import WAIT_SECONDS, wait_until
from tests.support.scraping import get, scrape, scraped

SPARE_FILES = 60
BIG = "# nothing\n" * 1_000_000


@pytest.fixture
async def stage(local_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    made = Stage(local_url, tmp_path)
    try:
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def served(text: str | None = None) -> AsyncIterator[tuple[int, str]]:
    """Metrics alone, without a worker: the port, and the socket for reports."""
    metrics = Metrics()

    async def told() -> str:
        return text or expose(metrics.snapshot(), DatabaseStatus())

    async def nothing() -> None: ...

    port = free_port()
    async with metrics_export.serving(metrics, told, nothing, "127.0.0.1", port, Seam()) as path:
        yield port, path


def open_files(process: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), WAIT_SECONDS)


def report(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(WAIT_SECONDS)
    made.connect(path)
    return made


def is_ended(client: socket.socket) -> bool:
    with suppress(ConnectionError):
        return client.recv(1) == b""
    return True


async def test_13_hundreds_of_silent_clients_take_no_files_from_a_worker(stage: Stage) -> None:
    port = free_port()
    worker = stage.worker(f"--metrics-port={port}")
    await scraped(port, "holdfast_worker_slots", 10)
    before = open_files(worker.pid)
    limits = resource.prlimit(worker.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(
        worker.pid,
        resource.RLIMIT_NOFILE,
        (before + metrics_export.CONNECTIONS_MAX + 120, limits[1]),
    )
    with ExitStack() as clients:
        for _ in range(400):
            clients.enter_context(connect(port))
        job = await stage.jobs.quick.enqueue(1)
        await stage.ended(job)
        await scraped(port, "holdfast_jobs_total", 1, name="quick", outcome="succeeded")

        async def is_bounded() -> bool:
            return open_files(worker.pid) <= before + metrics_export.CONNECTIONS_MAX + SPARE_FILES

        await wait_until(is_bounded, lambda: f"{open_files(worker.pid)} files, {before} before")
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0


async def test_13_of_clients_that_come_all_at_once_no_more_stay() -> None:
    async def nothing() -> None: ...

    async def blocked() -> str:
        asked.set()
        let_go.wait(WAIT_SECONDS)
        return "told\n"

    asked, let_go, port = threading.Event(), threading.Event(), free_port()
    async with metrics_export.serving(Metrics(), blocked, nothing, "127.0.0.1", port, Seam()):
        with ExitStack() as clients:
            first = clients.enter_context(connect(port))
            first.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            await asyncio.to_thread(asked.wait, WAIT_SECONDS)
            crowd = [clients.enter_context(connect(port)) for _ in range(90)]
            let_go.set()
            for _ in range(3):
                assert await get(port) == "told\n"
            assert sum(map(is_open, crowd)) <= metrics_export.CONNECTIONS_MAX


def is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return not is_ended(client)
    except BlockingIOError:
        return True


async def test_13_a_client_that_reads_nothing_keeps_no_connection() -> None:
    before = open_files()
    async with served(BIG) as (port, _):
        client = connect(port)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        await asyncio.to_thread(client.recv, 1)
    client.close()
    assert open_files() == before


async def test_13_garbage_is_dropped_and_the_next_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served() as (port, _):
        for said in (b"\0" * 1000, b"\r\n\r\n", b"GET\r\n\r\n", b"\xff \xff\r\n\r\n", b"a" * 10**6):
            # The server may hang up at any step. shutdown() calls that ENOTCONN.
            with connect(port) as client, suppress(OSError):
                client.sendall(said)
                client.shutdown(socket.SHUT_WR)
                answer = await asyncio.to_thread(client.recv, 100)
                assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
        assert await get(port)
    assert caplog.records == []


async def test_13_a_process_that_floods_its_socket_is_cut_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served() as (port, path):
        with report(path) as child:

            def flood() -> int:
                sent = 0
                with suppress(OSError):
                    while sent < 100 * metrics_export.REPORT_BYTES_MAX:
                        sent += child.send(b"a" * 2**20)
                return sent

            assert await asyncio.to_thread(flood) < 4 * metrics_export.REPORT_BYTES_MAX
        assert await get(port)
    assert caplog.records == []


SERIES = [["holdfast_jobs_total", ["q", "n", "succeeded"]], 1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"counts": [[["holdfast_jobs_total", ["q"]], 1]]},
        {"counts": [SERIES, [["nothing", ["q", "n"]], 1]]},
        {"histograms": [[["holdfast_settle_lag_seconds", []], [1.0]]]},
        {"histograms": [[["holdfast_jobs_total", ["q", "n", "succeeded"]], [1.0]]]},
        {"gauges": {"holdfast_worker_slots": "many"}},
        [],
        None,
    ],
)
async def test_13_a_wrong_report_spoils_no_scrape(wrong: object) -> None:
    async with served() as (port, path):
        with report(path) as child:
            child.sendall(json.dumps(wrong).encode() + b"\n")
            assert await asyncio.to_thread(is_ended, child)
        with report(path) as child:
            child.sendall(json.dumps({"counts": [SERIES]}).encode() + b"\n")
            await scraped(port, "holdfast_jobs_total", 1)


async def test_13_reports_of_ever_new_names_are_told_as_one() -> None:
    counts = [[["holdfast_lost_leases_total", ["q", f"n{n}"]], 1] for n in range(PAIRS_MAX + 100)]
    async with served() as (port, path):
        with report(path) as child:
            child.sendall(json.dumps({"counts": counts}).encode() + b"\n")
            told = await scraped(port, "holdfast_lost_leases_total", len(counts))
    others = told.value("holdfast_lost_leases_total", queue="other", name="other")
    assert others == 100


async def test_13_a_socket_that_was_removed_costs_metrics_only(stage: Stage) -> None:
    port = free_port()
    with TemporaryDirectory() as folder:
        worker = stage.worker(
            f"--metrics-port={port}", "--processes=1", environment={"TMPDIR": folder}
        )
        await scraped(port, "holdfast_worker_slots", 10)
    os.kill(started(worker)[0], signal.SIGKILL)

    def has_warned() -> bool:
        warned = [each for each in worker.events("metrics") if each["level"] == "warning"]
        return any("this process's counts are missing" in each["message"] for each in warned)

    await wait_until(has_warned, lambda: worker.text)
    job = await stage.jobs.quick.enqueue(1)
    await stage.ended(job)
    assert (await scrape(port)).value("holdfast_children_died_total", kind="worker") == 1
