"""Child processes and what is around them: scripts, paths, signals, copies, the worker's death."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.runtime.seam import Seam
from holdfast.testing.borrowed import borrowed
from tests.support.children import all_gone, is_alive, progress_of, run_all
from tests.support.processes import Process
from tests.support.running import WAIT_SECONDS_MAX
from tests.worker import child_jobs

pytestmark = pytest.mark.heavy


@pytest.fixture
async def hf(local_url: str) -> AsyncIterator[Holdfast]:
    async with borrowed(child_jobs.hf, local_url, Seam()):
        yield child_jobs.hf


SCRIPT = """
import asyncio
import os
from holdfast import Context, Holdfast

hf = Holdfast("sqlite:///script.db", poll_seconds=0.05)

@hf.job(executor="process")
def double(number: int) -> list:
    return [2 * number, os.getpid()]

async def main():
    async with hf:
        job = await double.enqueue(4)
        await hf.run_worker(until_empty=True)
        doubled, pid = await hf.result(job.id)
        print(doubled, pid != os.getpid())

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["script.py", "-m script"])
async def test_a_script_can_have_handlers_for_children(tmp_path: Path, how: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    process = Process("script", how.split(), tmp_path, {})
    assert await process.ended() == 0, process.text
    assert process.output == ["8 True"]


BY_SPAWN = """
import multiprocessing
import operator

@hf.job(executor="process")
def double(number: int) -> list:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return [pool.apply(operator.mul, (2, number)), os.getpid()]

async def main():
"""
ON_A_PATH = """
import pathlib
import sys
sys.path.append(pathlib.Path("elsewhere"))

async def main():
"""


@pytest.mark.parametrize("addition", [BY_SPAWN, ON_A_PATH], ids=["spawn", "path"])
async def test_a_script_may_do_what_scripts_do(tmp_path: Path, addition: str) -> None:
    double, main = SCRIPT.index("@hf.job"), "\nasync def main():\n"
    changed = SCRIPT.replace(main, addition)
    if addition is BY_SPAWN:
        changed = SCRIPT[:double] + addition + SCRIPT.partition(main)[2]
    (tmp_path / "script.py").write_text(changed)
    process = Process("script", ["script.py"], tmp_path, {})
    assert await process.ended() == 0, process.text
    assert process.output == ["8 True"]


async def test_a_script_that_would_run_again_in_its_children_is_told_so(tmp_path: Path) -> None:
    """Each child would enqueue another job, and start a worker with children."""
    unguarded = SCRIPT.replace('if __name__ == "__main__":\n    asyncio', "asyncio")
    unguarded = unguarded.replace('Holdfast("', 'Holdfast(max_attempts=1, url="')
    (tmp_path / "script.py").write_text(unguarded)
    process = Process("script", ["script.py"], tmp_path, {})
    assert await process.ended() != 0
    assert "JobFailed" in process.text
    assert "CHILD_FAILED" in process.text
    assert 'behind `if __name__ == "__main__":`' in process.text


APP = """
import os
from holdfast import Holdfast

hf = Holdfast(poll_seconds=0.05, lease_seconds=2)

@hf.job(executor="process")
def double(number: int) -> list:
    return [2 * number, os.getcwd()]
"""


async def test_a_file_with_the_name_of_a_module_of_pythons_own_is_in_nobodys_way(
    local_hf: Holdfast, local_url: str, tmp_path: Path
) -> None:
    @local_hf.job
    def double(number: int) -> None: ...

    (tmp_path / "app.py").write_text(APP)
    for name in ("queue", "resource", "socket", "string"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not this one')")
    job = await double.enqueue(4)
    command = ["-P", "-m", "holdfast.cli.main", "worker", "app:hf", "--until-empty"]
    environment = {"HOLDFAST_DATABASE_URL": local_url}
    process = Process("worker", [*command, "--processes=1"], tmp_path, environment)
    assert await process.ended() == 0, process.text
    assert (await local_hf.get(job.id)).result == [8, str(tmp_path)]


FORKING = """
import asyncio
import os
import threading
from holdfast.runtime.seam import Seam

reading, writing = os.pipe()

def make_copies():
    for _ in range(100):
        if not os.fork():
            os.close(writing)
            os._exit(len(os.read(reading, 1)))

async def main():
    copying = threading.Thread(target=make_copies)
    copying.start()
    while copying.is_alive():
        process = await Seam().start_process(["true"])
        print(await process.wait())
    copying.join()

asyncio.run(main())
"""


async def test_copies_of_a_worker_do_not_keep_it_from_starting_processes(tmp_path: Path) -> None:
    (tmp_path / "forking.py").write_text(FORKING)
    process = Process("forking", ["forking.py"], tmp_path, {})
    assert await process.ended() == 0, process.text
    assert set(process.output) == {"0"}


async def test_a_copy_that_a_handler_makes_ends_when_it_is_told_to(hf: Holdfast) -> None:
    (ended,) = await run_all(hf, await child_jobs.end_a_copy.enqueue())
    assert ended.result == -signal.SIGTERM


@pytest.fixture
def worker(local_url: str, tmp_path: Path) -> Any:
    command = [
        "-m",
        "holdfast.cli.main",
        "worker",
        "tests.worker.child_jobs:hf",
        "--log-format=json",
    ]
    process = Process("worker", command, tmp_path, {"HOLDFAST_DATABASE_URL": local_url})
    yield process
    process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere C can outlive the worker")
@pytest.mark.parametrize("and_then", ["hang", "hang in C"])
async def test_children_die_with_their_worker(
    hf: Holdfast, tmp_path: Path, worker: Process, and_then: str
) -> None:
    job = await child_jobs.start_others.enqueue(str(tmp_path), and_then)
    processes = await progress_of(hf, job)
    worker.kill()
    await all_gone(processes)


async def test_children_die_with_their_worker_although_a_copy_of_it_lives(
    hf: Holdfast, tmp_path: Path, worker: Process
) -> None:
    job = await child_jobs.gated.enqueue(str(tmp_path))
    child = (await progress_of(hf, job))["pid"]
    copy = await progress_of(hf, await child_jobs.copy_the_worker.enqueue())
    try:
        worker.kill()
        await all_gone([child])
        assert is_alive(copy)
    finally:
        os.kill(copy, signal.SIGKILL)


async def test_what_handlers_log_in_a_child_looks_like_the_workers_own_lines(
    hf: Holdfast, worker: Process
) -> None:
    await child_jobs.write_log.enqueue("hello from a child")
    line = await worker.logs("log")
    assert (line["message"], line["logger"]) == ("hello from a child", "child_jobs")


async def test_signals_reach_a_child_through_its_worker_only(
    hf: Holdfast, tmp_path: Path, worker: Process
) -> None:
    """Whoever signals the whole service (systemd, say) still lets the handlers finish."""
    job = await child_jobs.gated.enqueue(str(tmp_path))
    child = (await progress_of(hf, job))["pid"]
    assert os.getpgid(child) != os.getpgid(worker.pid)
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(child, number)
    (tmp_path / "gate").touch()
    assert await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX) == "through"
    assert (await hf.get(job.id)).attempts == 1
