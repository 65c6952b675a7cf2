"""Jobs that run in child processes, which import this module again."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from pydantic import BaseModel, Field

from holdfast import Context, Holdfast, LeaseLost, Permanent, Retry, RetryAfter, Snooze
from tests.support import hostile
from tests.support.processes import LOOK_SECONDS, poll_blocking
from tests.support.running import QUICK

BROKEN_IMPORT = "CHILD_JOBS_BROKEN_IMPORT"
BROKEN_RESOURCE = "CHILD_JOBS_BROKEN_RESOURCE"
BROKEN_SPEECH = "CHILD_JOBS_BROKEN_SPEECH"
TRACED = "CHILD_JOBS_TRACED"
IS_CHILD = "holdfast.worker.processes.child" in sys.modules

if IS_CHILD and BROKEN_IMPORT in os.environ:
    raise RuntimeError("this module can't be imported in a child")
if IS_CHILD and BROKEN_SPEECH in os.environ:
    os.write(int(sys.argv[1]), b"\0\0\0\5hello")
if IS_CHILD and TRACED in os.environ:
    trace.set_tracer_provider(TracerProvider())

hf = Holdfast(**QUICK, timeout_grace_seconds=1.5, renew_seconds=1)
reused_twice = Holdfast(**QUICK, child_jobs_max=2)
soon_too_large = Holdfast(**QUICK, child_bytes_max=1)

user: ContextVar[str | None] = ContextVar("user", default=None)


@hf.resource
def greeting() -> Iterator[str]:
    if IS_CHILD and BROKEN_RESOURCE in os.environ:
        raise RuntimeError("the greeting is away")
    yield f"hello from {os.getpid()}"
    if "GREETING_FOLDER" in os.environ:
        (Path(os.environ["GREETING_FOLDER"]) / f"closed-{os.getpid()}").touch()


@hf.job
async def neighbor() -> None: ...


@hf.job
def follow_up(ctx: Context) -> None: ...


@hf.job(executor="process", queue="images")
def look(ctx: Context, word: str, *, times: int = 2) -> dict[str, Any]:
    process = Path("/proc/self")
    return {
        "words": [word] * times,
        "job_id": str(ctx.job_id),
        "name": ctx.name,
        "queue": ctx.queue,
        "tenant": ctx.tenant,
        "correlation_id": ctx.correlation_id,
        "attempts": [ctx.attempt, ctx.max_attempts],
        "fence": ctx.fence,
        "greeting": ctx.resources["greeting"],
        "pid": os.getpid(),
        "parent": os.getppid(),
        "group": os.getpgid(0),
        "on_main_thread": threading.current_thread() is threading.main_thread(),
        "title": (process / "comm").read_text().strip() if process.exists() else None,
        "folder": os.getcwd(),
        "path": sys.path,
    }


def pid() -> int:
    return os.getpid()


which = hf.job(executor="process", name="which")(pid)
which_of_twice = reused_twice.job(executor="process", name="which")(pid)
which_of_large = soon_too_large.job(executor="process", name="which")(pid)


@hf.job(executor="process")
def remember(name: str) -> str | None:
    before = user.get()
    user.set(name)
    return before


@hf.job(executor="process")
def enqueue_more() -> str:
    return str(follow_up.enqueue_sync().id)


@hf.job(executor="process")
def tell_trace() -> dict[str, str | None]:
    """Say which span is the current one, and what another job gets from it."""
    span = trace.get_current_span().get_span_context()
    job = follow_up.enqueue_sync()
    return {"current": f"{span.trace_id:032x} {span.span_id:016x}", "enqueued": job.trace}


@hf.job(executor="process", timeout_seconds=200)
def gated(ctx: Context, folder: str) -> str:
    """Report progress, then wait for the gate; stop when told to."""
    ctx.progress_sync({"pid": os.getpid()})
    while not (Path(folder) / "gate").exists():
        if ctx.wait_canceled(LOOK_SECONDS):
            (Path(folder) / "told").touch()
            raise RuntimeError("told to stop")
    return "through"


@hf.job(executor="process", encrypted=True, retry=Retry.none)
def confide(ctx: Context, secret: str, fails: bool = False) -> str:
    ctx.progress_sync(f"confiding {secret}")
    if fails:
        raise ValueError(f"can't keep {secret}")
    return secret.upper()


@hf.job(executor="process")
def report_twice(ctx: Context, folder: str) -> None:
    ctx.progress_sync(1)
    poll_blocking((Path(folder) / "gate").exists)
    try:
        ctx.progress_sync(2)
    except LeaseLost:
        (Path(folder) / "lost").touch()
        raise


@hf.job(executor="process", retry=Retry.none)
def leave_behind(ctx: Context, folder: str, what: str) -> None:
    """Leave a thread behind that acts while the next job runs."""

    def act() -> None:
        poll_blocking((Path(folder) / "next").exists)
        if what == "crash":
            os._exit(3)
        try:
            ctx.progress_sync("of the job before")
        except LeaseLost:
            (Path(folder) / "lost").touch()

    threading.Thread(target=act, daemon=True).start()


@hf.job(executor="process", retry=Retry.none, timeout_seconds=200)
def come_next(ctx: Context, folder: str) -> int:
    (Path(folder) / "next").touch()
    if ctx.fence == 1:
        poll_blocking((Path(folder) / "lost").exists)
    return os.getpid()


@hf.job(executor="process", retry=Retry.none, timeout_seconds=200)
def report_on_a_loop_of_its_own(ctx: Context) -> None:
    async def report() -> None:
        await asyncio.gather(*[ctx.progress(number) for number in range(5)])

    asyncio.run(report())


@hf.job(executor="process", retry=Retry.none, timeout_seconds=200)
def end_a_copy() -> int | None:
    copy = multiprocessing.get_context("fork").Process(target=threading.Event().wait)
    copy.start()
    copy.terminate()
    copy.join()
    return copy.exitcode


@hf.job(retry=Retry.none)
def copy_the_worker(ctx: Context) -> None:
    copy = os.fork()
    if not copy:
        threading.Event().wait(60)
        os._exit(0)
    ctx.progress_sync(copy)


@hf.job(executor="process", retry=Retry.none)
def complete(ctx: Context, fails: bool) -> None:
    async def use() -> None:
        async with ctx.failing(OSError("no disk")) if fails else ctx.completing():
            pass

    asyncio.run(use())


@hf.job(executor="process", retry=Retry.none)
def set_result(ctx: Context) -> None:
    ctx.set_result({"done": True})


class OwnError(Exception):
    code = "OWN"


ERRORS: dict[str, BaseException] = {
    "ValueError": ValueError("no\0"),
    "OWN": OwnError("no"),
    "GONE": Permanent("no", code="GONE"),
    "RETRY_AFTER": RetryAfter(5),
    "SystemExit": SystemExit(3),
    "KeyboardInterrupt": KeyboardInterrupt(),
    "StopIteration": StopIteration(),
    "CancelledError": asyncio.CancelledError(),
}


@hf.job(executor="process", retry=Retry.none, permanent=["OWN"])
def fail(kind: str) -> None:
    raise ERRORS[kind]


@hf.job(executor="process", retry=Retry.none)
def turn_on_us(kind: str) -> Any:
    if kind in hostile.RESULTS:
        return hostile.RESULTS[kind]
    raise hostile.ERRORS[kind]


@hf.job(executor="process", retry=Retry.none)
def snooze_once(ctx: Context) -> int:
    if ctx.fence == 1:
        raise Snooze(0.01)
    return ctx.attempt


@hf.job(executor="process", retry=Retry.none)
def say_odd(ctx: Context, kind: str) -> Any:
    if kind == "progress":
        ctx.progress_sync({"done": object()})
    return {"nan": {"mean": float("nan")}, "large": "x" * 2_000_000}[kind]


def overflow() -> None:
    """Let C call itself until its stack is used up."""
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    sys.setrecursionlimit(10**9)

    def again(left: int, right: int) -> int:
        numbers = (ctypes.c_int * 2)()
        ctypes.CDLL(None).qsort(numbers, 2, ctypes.sizeof(ctypes.c_int), compare(again))
        return 0

    again(0, 0)


CRASHES: dict[str, Any] = {
    "exited with code 3": lambda: os._exit(3),
    "was killed by SIGSEGV": lambda: ctypes.string_at(0),
    "was killed by SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "was killed by SIGABRT": os.abort,
    "closed its connection to the worker": lambda: os.closerange(3, 100),
}


@hf.job(executor="process", retry=Retry.none)
def crash(reason: str) -> None:
    CRASHES[reason]()
    threading.Event().wait()


@hf.job(executor="process", retry=Retry.none)
def overflow_stack() -> None:
    overflow()


@hf.job(executor="process", retry=Retry.none, memory_bytes_max=300_000_000)
def allocate(megabytes: int) -> int:
    return len(bytearray(megabytes * 1_000_000)) and os.getpid()


@hf.job(executor="process", retry=Retry.none, memory_bytes_max=300_000_000)
def abort() -> None:
    os.abort()


@hf.job(executor="process", retry=Retry.none, timeout_seconds=0.3)
def hang() -> None:
    threading.Event().wait()


@hf.job(executor="process", retry=Retry.none, timeout_seconds=0.3)
def hang_in_c() -> None:
    """Hang without ever letting another thread run."""
    ctypes.PyDLL(None).pause()


@hf.job(executor="process", retry=Retry.none, timeout_seconds=0.3)
def give_up(ctx: Context) -> str:
    return "half of it" if ctx.wait_canceled(20) else "all of it"


@hf.job(executor="process", retry=Retry.none)
def start_others(ctx: Context, folder: str, and_then: str) -> None:
    """Start a process, and a copy of this one, which has its connection, too."""
    started = subprocess.Popen(["sleep", "60"]).pid
    copy = os.fork()
    if not copy:
        threading.Event().wait(60)
        os._exit(0)
    ctx.progress_sync([os.getpid(), started, copy])
    if and_then == "crash":
        os._exit(3)
    if and_then == "hang in C":
        ctypes.PyDLL(None).pause()
    threading.Event().wait()


@hf.job(retry=Retry.none)
async def call_and_hang(ctx: Context, folder: str) -> None:
    from tests.worker import functions

    await ctx.run_in_process(functions.hang, Path(folder))


@hf.job(retry=Retry.none)
async def call_pid(ctx: Context) -> int:
    return await ctx.run_in_process(os.getpid)


@hf.job(executor="process", retry=Retry.none)
def call_from_a_child(ctx: Context) -> None:
    ctx.run_in_process_sync(os.getpid)


@hf.job(executor="process")
def write_log(text: str) -> None:
    logging.getLogger("child_jobs").warning(text)


class Line(BaseModel):
    sku: str
    price: Decimal
    shown_as: str = Field(default="", alias="shownAs")


@hf.job(executor="process")
def raise_prices(lines: list[Line], since: date) -> dict[date, list[Line]]:
    return {since: [line.model_copy(update={"price": line.price * 2}) for line in lines]}


@hf.job(executor="process", retry=Retry.none)
def lie_about_lines() -> list[Line]:
    return [5]  # type: ignore[list-item]


if IS_CHILD:

    @hf.job(executor="process", name="only_in_children")
    def only_in_children() -> None: ...

else:

    @hf.job(executor="process", retry=Retry.none)
    def only_in_the_parent() -> None: ...
