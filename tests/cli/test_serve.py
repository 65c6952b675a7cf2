"""`holdfast serve` and `holdfast dev`: real processes, signals, and errors in one line."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from holdfast import Holdfast
from tests.support.processes import WAIT_SECONDS, Process, wait_until

pytestmark = pytest.mark.heavy

APP = """
import asyncio
from holdfast import Holdfast

hf = Holdfast(poll_seconds=0.1)


@hf.job
async def double(number: int) -> int:
    return 2 * number


@hf.job
async def forever() -> None:
    await asyncio.Event().wait()
"""
BROKEN = """
@hf.resource
async def printer() -> None:
    raise RuntimeError("the printer is on fire")
"""
NOBODY = "postgresql://somebody:hunter2@127.0.0.1:1/jobs"

Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path, local_url: str) -> Iterator[Start]:
    started: list[Process] = []
    (tmp_path / "app.py").write_text(APP)

    def run(command: str, *options: str, url: str = local_url, **environment: str) -> Process:
        words = ["-m", "holdfast.cli.main", command, "app:hf", *options]
        name = f"{command}-{len(started)}"
        variables = {"HOLDFAST_DATABASE_URL": url, **environment}
        started.append(Process(name, words, tmp_path, variables))
        return started[-1]

    yield run
    for process in started:
        if process.code is None:
            process.kill()


def serve(start: Start, *options: str, **environment: str) -> Process:
    return start("serve", "--port=0", "--log-format=json", *options, **environment)


async def address_of(server: Process) -> str:
    return str((await server.logs("serving"))["message"])


async def client_of(server: Process) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=await address_of(server), timeout=WAIT_SECONDS)


async def enqueue(client: httpx.AsyncClient, name: str, **arguments: object) -> str:
    answer = await client.post("/v1/jobs", json={"name": name, "arguments": arguments})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_jobs_run_in_the_process_that_serves_them_until_a_signal(
    number: signal.Signals, start: Start
) -> None:
    server = serve(start, "--worker")
    async with await client_of(server) as client:
        job_id = await enqueue(client, "double", number=21)
        result = await client.get(f"/v1/jobs/{job_id}/result?wait_seconds=50")
        assert result.json()["result"] == 42, result.text
        assert (await client.get("/v1/health/ready")).status_code == 200
        assert "holdfast_workers_claiming 1" in (await client.get("/metrics")).text
    server.signal(number)
    assert await server.ended() == 0, server.text
    assert "Traceback" not in server.text


async def test_without_a_worker_no_job_runs(start: Start) -> None:
    server = serve(start)
    async with await client_of(server) as client:
        job_id = await enqueue(client, "double", number=21)
        assert (await client.get(f"/v1/jobs/{job_id}")).json()["state"] == "queued"
    server.signal(signal.SIGTERM)
    assert await server.ended() == 0


async def test_a_signal_releases_running_jobs_when_their_grace_is_over(
    start: Start, local_url: str
) -> None:
    server = serve(start, "--worker", HOLDFAST_GRACE_SECONDS="0")
    async with await client_of(server) as client:
        job_id = await enqueue(client, "forever")
        await server.logs("start")
    server.signal(signal.SIGTERM)
    assert await server.ended() == 0, server.text
    async with Holdfast(local_url) as hf:
        (job,) = (await hf.jobs.list()).jobs
        assert (str(job.id), job.state, job.attempts) == (job_id, "queued", 0)


async def test_a_second_signal_hurries(start: Start) -> None:
    server = serve(start, "--worker", HOLDFAST_GRACE_SECONDS="3600")
    async with await client_of(server) as client:
        await enqueue(client, "forever")
        await server.logs("start")
    server.signal(signal.SIGTERM)
    await server.logs("shutdown")
    server.signal(signal.SIGTERM)
    assert await server.ended() == 0, server.text


async def test_a_server_ends_with_its_worker_and_says_why(start: Start, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP + BROKEN)
    server = serve(start, "--worker")
    assert await server.ended() == 1
    assert "the printer is on fire" in server.text.splitlines()[-1]


async def test_a_server_starts_without_its_database(start: Start) -> None:
    server = serve(start, "--worker", url=NOBODY)
    async with await client_of(server) as client:
        ready = await client.get("/v1/health/ready")
        assert (ready.status_code, ready.json()["errors"]) == (503, [{"detail": "database"}])
        assert (await client.get("/v1/jobs")).status_code == 503
    server.signal(signal.SIGTERM)
    assert await server.ended() == 0, server.text
    assert "hunter2" not in server.text


async def test_a_database_that_is_not_migrated_is_told(start: Start, postgres_url: str) -> None:
    server = serve(start, url=postgres_url)
    assert await server.ended() == 1
    (line,) = server.text.splitlines()
    assert "holdfast migrate" in line


async def test_a_busy_port_is_told(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        server = start("serve", f"--port={port}")
        assert await server.ended() == 1
    assert server.text == (
        f"holdfast: can't listen on 127.0.0.1:{port}: Address already in use;"
        " choose another with --port\n"
    )


async def test_other_machines_are_refused_without_keys(start: Start) -> None:
    server = start("serve", "--port=0", "--host=0.0.0.0")
    assert await server.ended() == 1
    (line,) = server.text.splitlines()
    assert "HOLDFAST_KEY_PEPPER" in line
    server = start("serve", "--port=0", "--host=0.0.0.0", HOLDFAST_KEY_PEPPER="p" * 40)
    assert await server.ended() == 1
    (line,) = server.text.splitlines()
    assert "holdfast keys create" in line


async def test_a_missing_package_is_told_with_how_to_install_it(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "uvicorn.py").write_text("raise ImportError(\"No module named 'uvicorn'\")\n")
    server = start("serve", PYTHONPATH=str(tmp_path))
    assert await server.ended() == 1
    assert server.text.splitlines()[-1].endswith("run: pip install 'holdfast[api]'")


async def test_the_dashboard_answers_to_the_hosts_that_were_given(start: Start) -> None:
    server = serve(start, "--hosts= jobs.example.com , ops.example.com", url=NOBODY)
    async with await client_of(server) as client:
        for host, status in (
            ("ops.example.com", 503),  # the database is away
            ("jobs.example.com:8443", 503),
            ("evil.example", 403),
        ):
            page = await client.get("/", headers={"host": host, "accept": "text/html"})
            assert (host, page.status_code) == (host, status)
            assert page.headers["content-type"] == "text/html; charset=utf-8"


async def test_the_dashboard_names_the_app_in_commands_to_paste(start: Start) -> None:
    server = serve(start)
    async with await client_of(server) as client:
        page = await client.get("/", headers={"accept": "text/html"})
        assert "holdfast worker app:hf<" in page.text
        assert "MODULE:NAME" not in page.text


async def test_without_the_extra_of_the_dashboard_the_api_is_served_alone(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "jinja2.py").write_text("raise ImportError(\"No module named 'jinja2'\")\n")
    server = serve(start, PYTHONPATH=str(tmp_path))
    async with await client_of(server) as client:
        page = await client.get("/")
        assert (page.status_code, "holdfast[dashboard]" in page.text) == (404, True)
        assert (await client.get("/v1/me")).status_code == 200


async def test_options_of_a_worker_need_one(start: Start) -> None:
    server = start("serve", "--concurrency=2")
    assert await server.ended() == 2
    assert "--concurrency and --queues need --worker" in server.text


async def test_dev_serves_on_one_port_whatever_changes(start: Start, tmp_path: Path) -> None:
    dev = start("dev")
    await wait_until(lambda: "worker_started" in dev.text, lambda: f"a worker: {dev.text}")
    (address,) = re.findall(r"serving app:hf at (http://127\.0\.0\.1:\d+)", dev.text)
    async with httpx.AsyncClient(base_url=address, timeout=WAIT_SECONDS) as client:
        assert await enqueue(client, "double", number=1)
        # Of another length: Python takes the bytecode of a file that is as long, from this second.
        (tmp_path / "app.py").write_text(APP.replace("def double", "def quadruple"))
        await wait_until(lambda: "app.py changed" in dev.text, "a restart")

        async def is_known() -> bool:
            """The socket stays open, so nothing is refused; at first, the old process may answer,
            before it stops."""
            job = {"name": "quadruple", "arguments": {"number": 1}}
            answer = await client.post("/v1/jobs", json=job)
            assert answer.status_code in (201, 422), answer.text
            return answer.status_code == 201

        await wait_until(is_known, "the new process answers")
    dev.signal(signal.SIGINT)
    assert await dev.ended() == 0, dev.text
