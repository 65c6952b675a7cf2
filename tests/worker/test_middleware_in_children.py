"""Middleware and hooks of handlers in child processes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import Holdfast, JobFunction
from holdfast.runtime.seam import Seam
from holdfast.testing.borrowed import borrowed
from tests.support.children import run_all
from tests.support.running import seen_events
from tests.worker import around_jobs

pytestmark = pytest.mark.heavy


@pytest.fixture
async def hf(
    local_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Holdfast]:
    monkeypatch.setenv(around_jobs.FOLDER, str(tmp_path / "notes"))
    (tmp_path / "notes").mkdir()
    async with borrowed(around_jobs.hf, local_url, Seam()):
        yield around_jobs.hf


def notes(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "notes"))


async def test_middleware_runs_in_the_child_around_the_handler(
    hf: Holdfast, tmp_path: Path
) -> None:
    (ended,) = await run_all(hf, await around_jobs.look.enqueue())
    child = ended.result["pid"]
    assert child != os.getpid()
    seen = {"pid": child, "user": "ann", "own_loop": "ran"}
    assert ended.result == {"result": seen, "pid": child, "user": "ann"}
    assert notes(tmp_path) == ["child: look succeeded"]


async def test_a_handler_that_exits_ends_neither_the_middleware_nor_the_child(
    hf: Holdfast,
) -> None:
    jobs = [await around_jobs.leave.enqueue(), await around_jobs.look.enqueue()]
    left, looked = await run_all(hf, *jobs, concurrency=1)
    assert left.result == "it wanted to exit"
    assert looked.result["user"] == "ann"


@pytest.mark.parametrize(
    ("job", "code", "told"),
    [
        (around_jobs.fail, "ValueError", "child: fail raised ValueError with ann"),
        (around_jobs.listen, "TIMEOUT", "child: listen raised JobTimeout with ann"),
        (around_jobs.hang, "TIMEOUT", "worker: hang raised JobTimeout with nobody"),
        (around_jobs.die, "CRASHED", "worker: die raised JobError with nobody"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_hooks_hear_of_a_failure_once_in_the_child_or_if_it_is_gone_in_the_worker(
    hf: Holdfast, tmp_path: Path, job: JobFunction[[], None], code: str, told: str
) -> None:
    (ended,) = await run_all(hf, await job.enqueue())
    assert ended.error_code == code
    assert notes(tmp_path) == [told]


async def test_a_child_without_the_middleware_of_its_worker_runs_nothing(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(around_jobs.NOT_IN_CHILD, "1")
    (ended,) = await run_all(hf, await around_jobs.fail.enqueue())
    assert ended.error_code == "CHILD_FAILED"
    assert "the middleware around is not registered when its module is" in (ended.error_text or "")


async def test_errors_of_a_child_are_logged_with_their_traceback_on_request(
    hf: Holdfast,
) -> None:
    before, hf.settings = hf.settings, replace(hf.settings, log_errors=True)
    try:
        async with seen_events() as seen:
            await run_all(hf, await around_jobs.fail.enqueue())
    finally:
        hf.settings = before
    (settled,) = seen.named("settle")
    assert settled.fields["error_text"] == "ValueError: no"
    rows = (settled.traceback or "").split("\n")
    assert rows[-1] == "ValueError: no"
    assert not [row for row in rows if "holdfast/worker" in row]
    assert len([row for row in rows if "around_jobs.py" in row]) == 2
