"""`ctx.run_in_process`: what a function gets and gives, how it ends, and what its end does."""

from __future__ import annotations

import asyncio
import functools
import operator
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    BadArguments,
    Context,
    Holdfast,
    Job,
    JobError,
    PayloadTooLarge,
    ProcessCrashed,
    ProcessTimeout,
    Retry,
    State,
)
from holdfast.domain.limits import PICKLE_BYTES_MAX
from holdfast.runtime.seam import Process as SeamProcess
from holdfast.runtime.seam import Seam
from holdfast.testing import sandbox
from holdfast.testing.borrowed import borrowed
from tests.support import hostile
from tests.support.children import all_gone, is_alive
from tests.support.processes import Process, poll_blocking, wait_until
from tests.support.running import QUICK, execute, working
from tests.worker import child_jobs, functions

pytestmark = pytest.mark.heavy

Handler = Callable[[Context], Awaitable[Any]]
LOSE = "UPDATE jobs SET fence = fence + 1 WHERE state = 'running'"


async def run(hf: Holdfast, handler: Callable[..., Any], **options: Any) -> Job:
    """Run a handler once, to its end."""
    job = await hf.job(name="job", **{"retry": Retry.none, **options})(handler).enqueue()
    await hf.run_due(concurrency=2)
    return await hf.get(job.id)


async def raised(hf: Holdfast, *calls: Handler) -> list[BaseException]:
    """The errors that a handler sees."""
    seen: list[BaseException] = []

    async def handler(ctx: Context) -> None:
        for call in calls:
            try:
                await call(ctx)
            except BaseException as error:
                seen.append(error)

    assert (await run(hf, handler)).state is State.SUCCEEDED
    return seen


def call(function: Any, *args: Any, **options: Any) -> Handler:
    return lambda ctx: ctx.run_in_process(function, *args, **options)


def processes(folder: Path) -> list[int]:
    """The processes that told about themselves there."""
    return [int(each.name) for each in folder.iterdir() if each.name.isdigit()]


async def test_a_function_gets_its_arguments_in_a_process_and_gives_its_result_back(
    local_hf: Holdfast,
) -> None:
    seen: list[functions.Place] = []

    async def handler(ctx: Context) -> None:
        place = functions.Place("quay")
        seen.append(await ctx.run_in_process(functions.look, place, suffix=" 7"))

    assert (await run(local_hf, handler)).state is State.SUCCEEDED
    (place,) = seen
    assert (place.name, place.parent) == ("quay 7", os.getpid())
    assert place.pid != os.getpid()
    assert not is_alive(place.pid)


async def test_a_plain_handler_can_run_functions_in_processes(local_hf: Holdfast) -> None:
    def handler(ctx: Context) -> Any:
        return ctx.run_in_process_sync(operator.mul, 6, 7, timeout_seconds=60)

    assert (await run(local_hf, handler)).result == 42


async def test_the_blocking_form_says_what_to_use_in_an_async_handler(local_hf: Holdfast) -> None:
    async def handler(ctx: Context) -> None:
        ctx.run_in_process_sync(functions.pid)

    error_text = (await run(local_hf, handler)).error_text or ""
    assert "in an async handler, await ctx.run_in_process(...)" in error_text


class Counting(Seam):
    def __init__(self) -> None:
        super().__init__()
        self.started = 0

    async def start_process(self, command: Sequence[str], **options: Any) -> SeamProcess:
        self.started += 1
        return await super().start_process(command, **options)


async def test_no_process_is_started_before_the_first_call(local_url: str) -> None:
    hf, seam = Holdfast(**QUICK), Counting()
    counts = []

    async def handler(ctx: Context) -> None:
        counts.append(seam.started)
        for _ in range(5):
            await ctx.run_in_process(functions.pid)
        counts.append(seam.started)

    async with borrowed(hf, local_url, seam):
        await run(hf, handler)
    assert counts == [0, 1]


async def test_a_process_is_used_again_only_for_the_same_environment_and_memory(
    local_hf: Holdfast,
) -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"clean_environment": True},
        {"memory_bytes_max": 2_000_000_000},
        {"memory_bytes_max": 3_000_000_000},
    ]

    async def handler(ctx: Context) -> list[int]:
        return [await ctx.run_in_process(functions.pid, **kind) for kind in kinds * 2]

    job = await local_hf.job(name="job", retry=Retry.none)(handler).enqueue()
    await local_hf.run_due(concurrency=len(kinds))
    pids = (await local_hf.get(job.id)).result
    assert pids[:4] == pids[4:]
    assert len(set(pids)) == 4


async def test_an_idle_process_makes_room_for_one_of_another_kind(local_hf: Holdfast) -> None:
    async def handler(ctx: Context) -> None:
        before = await ctx.run_in_process(functions.pid)
        await ctx.run_in_process(functions.pid, clean_environment=True)
        await all_gone([before])

    job = await local_hf.job(name="job", retry=Retry.none)(handler).enqueue()
    await local_hf.run_due(concurrency=1)
    assert (await local_hf.get(job.id)).state is State.SUCCEEDED


async def test_a_process_is_replaced_after_so_many_functions(local_url: str) -> None:
    async def handler(ctx: Context) -> list[int]:
        return [await ctx.run_in_process(functions.pid) for _ in range(6)]

    async with Holdfast(local_url, **QUICK, child_jobs_max=2) as hf:
        assert len(set((await run(hf, handler)).result)) == 3


async def test_no_more_functions_run_at_once_than_the_worker_has_slots(
    local_hf: Holdfast, tmp_path: Path
) -> None:
    (folder := tmp_path / "here").mkdir()

    async def handler(ctx: Context) -> list[int]:
        calls = [ctx.run_in_process(functions.meet, folder, 2) for _ in range(6)]
        return await asyncio.gather(*calls)

    job = await run(local_hf, handler)
    assert job.result == [2] * 6


async def test_the_process_of_a_function_does_not_import_the_app(
    local_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(child_jobs.BROKEN_IMPORT, "1")
    async with borrowed(child_jobs.hf, local_url, Seam()):
        job = await child_jobs.call_pid.enqueue()
        await child_jobs.hf.run_due()
        assert (await child_jobs.hf.get(job.id)).state is State.SUCCEEDED


async def test_a_clean_environment_has_no_secrets(
    local_hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {"HOLDFAST_DATABASE_URL": "postgresql://u:p@h/d", "AWS_SECRET_ACCESS_KEY": "key"}
    kept = {"TZ": "Europe/Berlin", "LC_TIME": "C.UTF-8", "TMPDIR": "/tmp"}
    for name, value in {**secrets, **kept}.items():
        monkeypatch.setenv(name, value)

    async def handler(ctx: Context) -> list[dict[str, str]]:
        return [
            await ctx.run_in_process(functions.environment, clean_environment=clean)
            for clean in (False, True)
        ]

    whole, clean = (await run(local_hf, handler)).result
    assert secrets.items() <= whole.items()
    assert kept.items() <= clean.items()
    known = {"HOME", "LANG", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH"}
    assert {name for name in clean if not name.startswith("LC_")} <= known | {"TZ", "TMPDIR"}


async def test_errors_of_functions_reach_the_handler_as_themselves(local_hf: Holdfast) -> None:
    errors = await raised(local_hf, *[call(functions.fail, kind) for kind in functions.ERRORS])
    for error, expected in zip(errors, functions.ERRORS.values(), strict=True):
        assert type(error) is type(expected)
        assert (str(error), error.args) == (str(expected), expected.args)
        told = {name: value for name, value in vars(error).items() if name != "__notes__"}
        assert told == vars(expected)


async def test_errors_that_can_not_be_carried_are_told_by_type_and_text(
    local_hf: Holdfast,
) -> None:
    errors = await raised(local_hf, *[call(functions.fail, kind) for kind in functions.STRANGERS])
    for error, kind in zip(errors, functions.STRANGERS, strict=True):
        assert type(error) is JobError
        assert error.code == kind
        assert str(error).startswith(f"fail raised {kind}")


async def test_hostile_errors_of_functions_end_neither_their_process_nor_the_worker(
    local_hf: Holdfast,
) -> None:
    async def handler(ctx: Context) -> list[int]:
        pids = []
        for kind in hostile.ERRORS:
            try:
                await ctx.run_in_process(functions.fail, kind)
            except Exception:
                pids.append(await ctx.run_in_process(functions.pid))
        return pids

    pids = (await run(local_hf, handler)).result
    assert (len(pids), len(set(pids))) == (len(hostile.ERRORS), 1)


async def test_the_jobs_error_says_where_in_the_function_it_was_raised(
    local_hf: Holdfast,
) -> None:
    async def handler(ctx: Context) -> None:
        await ctx.run_in_process(functions.fail, "ValueError")

    job = await run(local_hf, handler)
    assert job.error_code == "ValueError"
    text = job.error_text or ""
    assert text.startswith("ValueError: no\n")
    assert text.index(f"{__file__}:") < text.index(f"in its process:\n  {functions.__file__}:")


async def test_a_process_that_dies_raises_in_the_handler_and_harms_nothing_else(
    local_hf: Holdfast,
) -> None:
    async def handler(ctx: Context) -> int:
        for reason in child_jobs.CRASHES:
            told = f"the process that ran crash {reason}"
            with pytest.raises(ProcessCrashed, match=told) as crashed:
                await ctx.run_in_process(functions.crash, reason)
            assert crashed.value.code == "CRASHED"
        return await ctx.run_in_process(operator.mul, 6, 7)

    job = await run(local_hf, handler)
    assert (job.result, job.crashes) == (42, 0), job.error_text


@pytest.mark.parametrize(
    ("options", "state"),
    [({}, State.DEAD), ({"permanent": [ProcessCrashed]}, State.FAILED)],
    ids=["transient", "permanent"],
)
async def test_a_crash_is_retried_unless_the_job_says_otherwise(
    local_hf: Holdfast, options: dict[str, Any], state: State
) -> None:
    async def handler(ctx: Context) -> None:
        await ctx.run_in_process(functions.crash, "exited with code 3")

    retry = Retry.schedule([0.0])
    job = await run(local_hf, handler, retry=retry, **options)
    assert (job.state, job.error_code) == (state, "CRASHED")
    assert job.attempts == (2 if state is State.DEAD else 1)


class Refusing(Seam):
    async def start_process(self, command: Sequence[str], **options: Any) -> SeamProcess:
        raise BlockingIOError("no room for another process")


async def test_a_process_that_can_not_be_started_is_an_error_of_the_handler(
    local_url: str,
) -> None:
    hf = Holdfast(**QUICK)
    async with borrowed(hf, local_url, Refusing()):
        (error,) = await raised(hf, call(functions.pid))
    assert isinstance(error, ProcessCrashed)
    assert error.code == "CHILD_FAILED"
    assert "no room for another process" in str(error)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps to the limit")
async def test_a_function_that_needs_too_much_memory_raises_and_its_process_is_replaced(
    local_hf: Holdfast,
) -> None:
    async def handler(ctx: Context) -> list[int]:
        limit: dict[str, Any] = {"memory_bytes_max": 300_000_000}
        before = await ctx.run_in_process(functions.allocate, 10, **limit)
        with pytest.raises(MemoryError):
            await ctx.run_in_process(functions.allocate, 1000, **limit)
        return [before, await ctx.run_in_process(functions.allocate, 10, **limit)]

    job = await run(local_hf, handler)
    assert len(set(job.result)) == 2


async def test_a_process_that_aborts_at_its_memory_limit_is_said_to_be_out_of_memory(
    local_hf: Holdfast,
) -> None:
    aborting = call(functions.crash, "was killed by SIGABRT", memory_bytes_max=300_000_000)
    (error,) = await raised(local_hf, aborting)
    assert isinstance(error, ProcessCrashed)
    assert error.code == "OUT_OF_MEMORY"
    assert "memory_bytes_max at 300,000,000 bytes" in str(error)


async def test_a_function_that_takes_too_long_is_killed(local_hf: Holdfast, tmp_path: Path) -> None:
    (folder := tmp_path / "here").mkdir()

    async def handler(ctx: Context) -> int:
        await ctx.run_in_process(functions.pid)  # so that no import takes its time
        with pytest.raises(ProcessTimeout, match=r"hang took longer than 2 s") as late:
            await ctx.run_in_process(functions.hang, folder, timeout_seconds=2)
        assert isinstance(late.value, TimeoutError)
        await all_gone(processes(folder))
        return await ctx.run_in_process(operator.mul, 6, 7)

    job = await run(local_hf, handler)
    assert job.result == 42, job.error_text
    assert len(processes(folder)) == 1


async def test_an_idle_process_that_dies_or_stands_still_is_replaced(local_hf: Holdfast) -> None:
    async def handler(ctx: Context) -> int:
        os.kill(idle := await ctx.run_in_process(functions.pid), signal.SIGKILL)
        poll_blocking(lambda: not is_alive(idle))  # so that the loop has yet to hear of it
        os.kill(await ctx.run_in_process(functions.pid), signal.SIGSTOP)
        with pytest.raises(ProcessTimeout):
            await ctx.run_in_process(len, bytes(1_000_000), timeout_seconds=0.3)
        return await ctx.run_in_process(operator.mul, 6, 7)

    job = await run(local_hf, handler)
    assert job.result == 42, job.error_text


@pytest.fixture(params=["async", "plain"])
async def hanging(
    request: pytest.FixtureRequest, local_url: str, tmp_path: Path
) -> AsyncIterator[tuple[Holdfast, Job, Path]]:
    """A job whose function hangs, in a handler of each kind that would wait for it forever."""
    (folder := tmp_path / "here").mkdir()

    async def wait(ctx: Context) -> None:
        await ctx.run_in_process(functions.hang, folder)

    def wait_in_thread(ctx: Context) -> None:
        ctx.run_in_process_sync(functions.hang, folder)

    handler = wait if request.param == "async" else wait_in_thread
    async with Holdfast(local_url, **QUICK, timeout_grace_seconds=60, renew_seconds=0.2) as hf:
        job = await hf.job(name="job", retry=Retry.none)(handler).enqueue()
        yield hf, job, folder


async def test_a_canceled_job_kills_its_function(hanging: tuple[Holdfast, Job, Path]) -> None:
    hf, job, folder = hanging
    async with working(hf):
        await wait_until(lambda: processes(folder), "running")
        await hf.jobs.cancel(job.id)
        await all_gone(processes(folder))
        await wait_until(lambda: no_job_runs(hf), "stopped")
    assert (await hf.get(job.id)).state is State.CANCELED


async def no_job_runs(hf: Holdfast) -> bool:
    return all(worker.running == 0 for worker in await hf.workers.list())


async def test_a_lost_lease_kills_the_function(
    hanging: tuple[Holdfast, Job, Path], local_url: str
) -> None:
    hf, job, folder = hanging
    async with working(hf):
        await wait_until(lambda: processes(folder), "running")
        await execute(local_url, LOSE)
        await all_gone(processes(folder))
    assert (await hf.get(job.id)).state is State.RUNNING


async def test_a_worker_that_stops_kills_the_function_and_releases_its_job(
    hanging: tuple[Holdfast, Job, Path],
) -> None:
    hf, job, folder = hanging
    async with working(hf):
        await wait_until(lambda: processes(folder), "running")
    assert not any(map(is_alive, processes(folder)))
    released = await hf.get(job.id)
    assert (released.state, released.attempts, released.releases) == (State.QUEUED, 0, 1)


@pytest.mark.parametrize("plain", [False, True], ids=["async", "plain"])
async def test_the_timeout_of_the_job_kills_its_function(
    local_hf: Holdfast, tmp_path: Path, plain: bool
) -> None:
    (folder := tmp_path / "here").mkdir()

    async def wait(ctx: Context) -> None:
        await ctx.run_in_process(functions.hang, folder)

    def wait_in_thread(ctx: Context) -> None:
        ctx.run_in_process_sync(functions.hang, folder)

    job = await run(local_hf, wait_in_thread if plain else wait, timeout_seconds=2)
    assert (job.state, job.error_code) == (State.DEAD, "TIMEOUT")
    assert job.error_text == "took longer than 2 s"
    assert not any(map(is_alive, processes(folder)))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere C can outlive the worker")
async def test_functions_die_with_a_worker_that_is_killed(local_url: str, tmp_path: Path) -> None:
    (folder := tmp_path / "here").mkdir()
    command = ["-m", "holdfast.cli.main", "worker", "tests.worker.child_jobs:hf"]
    process = Process("worker", command, tmp_path, {"HOLDFAST_DATABASE_URL": local_url})
    try:
        async with borrowed(child_jobs.hf, local_url, Seam()):
            await child_jobs.call_and_hang.enqueue(str(folder))
            await wait_until(lambda: processes(folder), "running")
    finally:
        process.kill()
    await all_gone(processes(folder))


def local_function() -> Any:
    def inner() -> None: ...

    return inner


class Unusual:
    def method(self) -> None: ...


renamed = functools.wraps(functions.pid)(lambda: 0)


REFUSED: dict[Any, str] = {
    (lambda: 0): "<lambda> is a lambda, or defined inside a function",
    local_function(): "is a lambda, or defined inside a function",
    functools.partial(functions.pid): "is not a function",
    "functions.pid": "is not a function",
    Unusual().method: "Unusual.method is a method, or names something else",
    renamed: "functions.pid is a method, or names something else",
    functions.wait: "wait is async",
}


async def test_a_function_that_a_process_can_not_import_is_refused_and_says_why(
    local_hf: Holdfast,
) -> None:
    errors = await raised(local_hf, *map(call, REFUSED))
    for error, reason in zip(errors, REFUSED.values(), strict=True):
        assert isinstance(error, BadArguments)
        assert reason in str(error)


TOO_MUCH: list[tuple[Handler, type[Exception], str]] = [
    (call(print, local_function()), BadArguments, "the arguments of print can't be pickled"),
    (call(functions.give_unpicklable), BadArguments, "the result of give_unpicklable can't be"),
    (call(len, bytes(PICKLE_BYTES_MAX)), PayloadTooLarge, "the limit is 33,554,432"),
    (call(functions.give, PICKLE_BYTES_MAX), PayloadTooLarge, "the limit is 33,554,432"),
    (call(functions.pid, timeout_seconds=-1), BadArguments, "timeout_seconds must be 0 to"),
    (call(functions.pid, memory_bytes_max=0), BadArguments, "memory_bytes_max must be 1 to"),
]


async def test_what_can_not_be_carried_is_refused(local_hf: Holdfast) -> None:
    errors = await raised(local_hf, *[handler for handler, _, _ in TOO_MUCH])
    for error, (_, kind, reason) in zip(errors, TOO_MUCH, strict=True):
        assert type(error) is kind
        assert reason in str(error)


async def test_what_is_as_large_as_the_limit_is_carried(local_hf: Holdfast) -> None:
    async def handler(ctx: Context) -> int:
        size = PICKLE_BYTES_MAX - 1000
        return len(await ctx.run_in_process(functions.give, size))

    assert (await run(local_hf, handler)).result == PICKLE_BYTES_MAX - 1000


async def test_a_handler_in_a_child_process_is_told_to_call_the_function(local_url: str) -> None:
    async with borrowed(child_jobs.hf, local_url, Seam()):
        job = await child_jobs.call_from_a_child.enqueue()
        await child_jobs.hf.run_due()
        text = (await child_jobs.hf.get(job.id)).error_text
    assert "run_in_process does not work in a child process; call the function" in (text or "")


async def test_in_a_sandbox_functions_run_in_threads_under_the_same_rules(
    local_hf: Holdfast,
) -> None:
    async def handler(ctx: Context) -> list[Any]:
        place = await ctx.run_in_process(functions.look, functions.Place("quay"), suffix=" 7")
        errors = []
        for function in (functions.give_unpicklable, functions.wait):
            with pytest.raises(BadArguments) as refused:
                await ctx.run_in_process(function)
            errors.append(str(refused.value))
        with pytest.raises(functions.Twofold):
            await ctx.run_in_process(functions.fail, "Twofold")
        return [place.name, place.pid == os.getpid(), len(errors)]

    job_function = local_hf.job(name="job", retry=Retry.none)(handler)
    async with sandbox(local_hf) as jobs:
        job = await job_function.enqueue()
        await jobs.drain()
        assert (await local_hf.get(job.id)).result == ["quay 7", True, 2]


SCRIPT = """
import asyncio, os
from dataclasses import dataclass
from holdfast import Context, Holdfast

hf = Holdfast("sqlite:///jobs.db", poll_seconds=0.05)

@dataclass
class Point:
    x: int

class Odd(Exception):
    pass

def double(point: Point) -> Point:
    if point.x < 0:
        raise Odd(os.getpid())
    return Point(2 * point.x)

@hf.job
async def handler(ctx: Context) -> None:
    print(await ctx.run_in_process(double, Point(4)) == Point(8))
    try:
        await ctx.run_in_process(double, Point(-1))
    except Odd as error:
        print(error.args[0] != os.getpid())

async def main():
    async with hf:
        await handler.enqueue()
        await hf.run_due()

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["script.py", "-m script"])
async def test_functions_and_classes_of_a_script_are_found(tmp_path: Path, how: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    process = Process("script", how.split(), tmp_path, {})
    assert await process.ended() == 0, process.text
    assert process.output == ["True", "True"]
