"""`holdfast dashboard`: any database, without its app, and nothing in it changes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from holdfast import Holdfast
from tests.support.processes import Process, wait_until

pytestmark = pytest.mark.heavy

Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def run(*options: str, **environment: str) -> Process:
        words = ["-m", "holdfast.cli.main", "dashboard", "--log-format", "json", *options]
        started.append(Process(f"dashboard-{len(started)}", words, tmp_path, environment))
        return started[-1]

    yield run
    for process in started:
        if process.code is None:
            process.kill()


async def address_of(process: Process) -> str:
    found: list[str] = []

    def look() -> bool:
        lines = [line for line in process.text.splitlines() if '"event": "serving"' in line]
        found.extend(json.loads(line)["message"] for line in lines if line.endswith("}"))
        return bool(found) or process.code is not None

    await wait_until(look, lambda: process.text)
    assert found, process.text
    return found[0]


async def test_it_shows_a_database_without_its_app_and_changes_nothing(
    local_url: str, start: Start, tmp_path: Path
) -> None:
    hf = Holdfast(local_url)

    @hf.job
    async def resize() -> None: ...

    async with hf:
        await hf.migrate()
        job = await resize.enqueue()
    (tmp_path / "app.py").write_text("raise RuntimeError('the app was loaded')")
    process = start("--port", "0", "--database", local_url, HOLDFAST_APP="app:hf")
    address = await address_of(process)
    headers = {"origin": address, "sec-fetch-site": "same-origin"}
    async with httpx.AsyncClient(base_url=address, follow_redirects=True) as client:
        page = await client.get(f"/ui/jobs/{job.id}")
        assert (page.status_code, "resize" in page.text) == (200, True)
        assert f"/ui/jobs/{job.id}/cancel" not in page.text
        assert (await client.get("/")).status_code == 200
        for path, status in (
            (f"/ui/jobs/{job.id}/cancel", 405),
            ("/ui/keys", 405),
            (f"/v1/jobs/{job.id}/cancel", 404),
        ):
            answer = await client.post(path, headers=headers)
            assert answer.status_code == status, answer.text
        assert (await client.get("/v1/jobs")).status_code == 404
        elsewhere = await client.get("/", headers={"host": "jobs.example.com"})
        assert elsewhere.status_code == 403  # without keys, only for this machine
    process.signal(signal.SIGINT)
    assert await process.ended() == 0, process.text
    async with hf:
        assert (await hf.get(job.id)).state == "queued"
        assert await hf.keys.list() == []
    assert not [name for name in os.listdir(tmp_path) if "pepper" in name]


@pytest.mark.parametrize("given", [[], ["--database", ""]])
async def test_without_a_database_it_says_what_to_pass(given: list[str], start: Start) -> None:
    process = start(*given)
    assert await process.ended() == 2
    assert "no database given; pass --database URL, or set $HOLDFAST_DATABASE_URL" in process.text


async def test_a_missing_file_is_not_created(start: Start, tmp_path: Path) -> None:
    process = start("--database", f"sqlite:///{tmp_path}/nothing.db")
    assert await process.ended() == 1
    assert "nothing.db does not exist" in process.text
    assert not (tmp_path / "nothing.db").exists()


async def test_an_old_schema_is_told_and_not_migrated(
    local_url: str, start: Start, tmp_path: Path
) -> None:
    async with Holdfast(local_url) as hf:
        await hf.migrate()
    path = local_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM schema_version WHERE version > 3")
    process = start("--port", "0", "--database", local_url)
    assert await process.ended() == 1
    assert "has version 3, but this code needs" in process.text
    assert "run: holdfast migrate" in process.text
    with closing(sqlite3.connect(path)) as connection:
        (version,) = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    assert version == 3
