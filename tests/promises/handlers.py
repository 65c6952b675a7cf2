"""The jobs of the promises' tests. Each writes down what happens to it before and after."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import Context, Holdfast, Permanent, Retry, Snooze
from tests.support import hostile
from tests.support.processes import LOOK_SECONDS_MAX, poll, poll_blocking

FOLDER = "PROMISES_FOLDER"
SOON = Retry.schedule([0.01] * 9)


def folder() -> Path:
    return Path(os.environ[FOLDER])


def note(ctx: Context, what: str) -> None:
    """Append one line at once: it is whole even if the process is killed right after it."""
    entry = {
        "what": what,
        "job": str(ctx.job_id),
        "fence": ctx.fence,
        "attempt": ctx.attempt,
        "pid": os.getpid(),
        "time": time.time(),
        "name": ctx.name,
    }
    ledger = os.open(folder() / "ledger", os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    try:
        os.write(ledger, json.dumps(entry).encode() + b"\n")
    finally:
        os.close(ledger)


def is_open(gate: str, ctx: Context) -> bool:
    """A gate is opened for all attempts, or for the one with a certain number."""
    return (folder() / gate).exists() or (folder() / f"{gate}.{ctx.attempt}").exists()


async def quick(ctx: Context, number: int = 0) -> int:
    note(ctx, "start")
    note(ctx, "finish")
    return number


async def gated(ctx: Context, gate: str) -> str:
    note(ctx, "start")
    try:
        await poll(partial(is_open, gate, ctx))
    except asyncio.CancelledError:
        note(ctx, "canceled")
        raise
    note(ctx, "finish")
    return f"attempt {ctx.attempt}"


def gated_in_thread(ctx: Context, gate: str) -> str:
    note(ctx, "start")
    while not is_open(gate, ctx):
        if ctx.wait_canceled(LOOK_SECONDS_MAX):
            note(ctx, "canceled")
            raise RuntimeError("told to stop")
    note(ctx, "finish")
    return f"attempt {ctx.attempt}"


async def gated_and_blocking(ctx: Context, gate: str) -> str:
    """Block the event loop, as code that was never meant for one does."""
    note(ctx, "start")
    poll_blocking(partial(is_open, gate, ctx))
    note(ctx, "finish")
    return f"attempt {ctx.attempt}"


async def block(ctx: Context, seconds: float) -> None:
    note(ctx, "start")
    threading.Event().wait(seconds)
    note(ctx, "finish")


async def stubborn(ctx: Context, gate: str) -> None:
    """Don't listen to being canceled."""
    note(ctx, "start")
    while not is_open(gate, ctx):
        try:
            await poll(partial(is_open, gate, ctx))
        except asyncio.CancelledError:
            note(ctx, "canceled")
    note(ctx, "finish")


async def linger(ctx: Context, seconds: float) -> None:
    """Take a while, so that a kill finds it at work."""
    note(ctx, "start")
    await asyncio.sleep(seconds)
    note(ctx, "finish")


async def crash(ctx: Context) -> None:
    note(ctx, "start")
    os.kill(os.getpid(), signal.SIGKILL)


def _overflow() -> None:
    """Recurse in C until the stack is full."""
    sys.setrecursionlimit(2**31 - 1)
    nested: list[Any] = []
    for _ in range(1_000_000):
        nested = [nested]
    repr(nested)


POISONS: dict[str, Callable[[], object]] = {
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: ctypes.string_at(0),
    "stack overflow": _overflow,
}


async def poison(ctx: Context, how: str) -> None:
    """Kill the process, when its neighbors have started."""
    note(ctx, "start")
    await asyncio.sleep(0.05)
    faulthandler.disable()
    POISONS[how]()


def exhaust_memory(ctx: Context) -> None:
    """Ask for more than the process may have; what the process itself had is left as it was."""
    note(ctx, "start")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**32, limits[1]))
    try:
        bytearray(2**33)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


async def recurse(ctx: Context) -> None:
    note(ctx, "start")

    def deeper() -> None:
        deeper()

    deeper()


async def block_for_ever(ctx: Context) -> None:
    """Block the event loop, with a timeout that nothing on the loop can enforce."""
    note(ctx, "start")
    threading.Event().wait()


def hang_for_ever(ctx: Context) -> None:
    note(ctx, "start")
    threading.Event().wait()


async def leave_a_thread_behind(ctx: Context) -> None:
    """Wait in a thread of asyncio's own, which the interpreter waits for at its end."""
    note(ctx, "start")
    await asyncio.to_thread(threading.Event().wait)


async def unsteady(ctx: Context, failures: int) -> int:
    note(ctx, "start")
    if ctx.attempt <= failures:
        raise ConnectionError(f"attempt {ctx.attempt} failed")
    return ctx.attempt


async def snoozing(ctx: Context) -> int:
    """Ask for a later time once, then succeed."""
    note(ctx, "start")
    if ctx.fence == 1:
        raise Snooze(0.01, "not now")
    return ctx.fence


async def reporting(ctx: Context) -> None:
    note(ctx, "start")
    await ctx.progress({"half": True})


async def hopeless(ctx: Context, text: str) -> None:
    note(ctx, "start")
    raise Permanent(text, code="HOPELESS")


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("there is no text")

    __repr__ = __str__


class Odd(str):
    """Not a plain value, and not a readable one."""

    def __str__(self) -> str:
        raise RuntimeError("there is no text")

    __repr__ = __str__


RESULTS: dict[str, Any] = {
    "nul in a result": "a\0b",
    "lone surrogate in a result": "\ud800",
    "nan": float("nan"),
    "infinity": [float("inf"), float("-inf")],
    "huge integer": 10**5000,
    "unreadable object": Unreadable(),
    "odd text": Odd("text"),
    "odd keys": {(1, 2): 3, None: 4, "\0": 5},
    "bytes": b"\xff\0",
} | hostile.RESULTS
STORABLE = ("odd text", "bytes")
ERRORS: dict[str, BaseException] = {
    "nul in an error": ValueError("a\0b"),
    "lone surrogate in an error": ValueError("\udfff"),
    "huge error": ValueError("x" * 1_000_000),
    "unreadable error": Unreadable(),
    "error without words": ValueError(),
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
    "stop iteration": StopIteration("next() of nothing"),
    "stop async iteration": StopAsyncIteration(),
    "generator exit": GeneratorExit(),
    "canceled": asyncio.CancelledError(),
    "timeout": TimeoutError(),
    "group": BaseExceptionGroup("\0", [ValueError("\0"), KeyboardInterrupt()]),
    "odd code": Permanent("odd", code="\0" * 1000),
} | hostile.ERRORS


async def odd(ctx: Context, kind: str) -> Any:
    """Answer, or raise, what a database or an event loop would refuse."""
    note(ctx, "start")
    return make_odd(kind)


def odd_in_thread(ctx: Context, kind: str) -> Any:
    note(ctx, "start")
    return make_odd(kind)


def make_odd(kind: str) -> Any:
    if kind in ERRORS:
        raise ERRORS[kind]
    nested: Any = []
    for _ in range(100_000 if kind == "deep" else 1):
        nested = [nested]
    return nested if kind == "deep" else RESULTS[kind]


class Jobs:
    def __init__(self, hf: Holdfast) -> None:
        self.quick = hf.job(quick)
        self.gated = hf.job(retry=SOON)(gated)
        self.gated_in_thread = hf.job(retry=SOON)(gated_in_thread)
        self.gated_and_blocking = hf.job(retry=SOON)(gated_and_blocking)
        self.block = hf.job(block)
        self.stubborn = hf.job(stubborn)
        self.linger = hf.job(retry=SOON)(linger)
        self.crash = hf.job(retry=SOON)(crash)
        self.poison = hf.job(retry=SOON)(poison)
        self.exhaust_memory = hf.job(retry=Retry.none())(exhaust_memory)
        self.recurse = hf.job(retry=Retry.none())(recurse)
        self.block_for_ever = hf.job(retry=SOON, timeout_seconds=0.3)(block_for_ever)
        self.hang_for_ever = hf.job(retry=SOON, timeout_seconds=0.3)(hang_for_ever)
        self.leave_a_thread_behind = hf.job(leave_a_thread_behind)
        self.unsteady = hf.job(retry=SOON)(unsteady)
        self.snoozing = hf.job(snoozing)
        self.reporting = hf.job(reporting)
        self.hopeless = hf.job(hopeless)
        self.odd = hf.job(retry=Retry.none())(odd)
        self.odd_in_thread = hf.job(retry=Retry.none())(odd_in_thread)
