"""The real machine behind the seam: lanes, side loops and pools of threads."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from holdfast.runtime.seam import Seam, ServiceThread
from holdfast.worker.signals import handling_signals
from tests.support.processes import PROGRAM_SECONDS_MAX, WAIT_SECONDS


def test_a_thread_works_off_everything_in_order_on_one_thread_before_it_closes() -> None:
    done: list[int] = []
    threads: set[str] = set()

    def work(items: list[int]) -> None:
        threads.add(threading.current_thread().name)
        done.extend(items)

    thread = Seam().thread("a-thread", work)
    for number in range(100):
        thread.put(number)
    thread.close()
    assert done == list(range(100))
    assert threads == {"a-thread"}


def test_a_thread_takes_all_that_waits_at_a_time() -> None:
    first, go = threading.Event(), threading.Event()
    batches: list[list[int]] = []

    def work(items: list[int]) -> None:
        batches.append(items)
        first.set()
        go.wait(WAIT_SECONDS)

    thread = Seam().thread("a-thread", work)
    thread.put(0)
    first.wait(WAIT_SECONDS)
    for number in range(1, 5):
        thread.put(number)
    go.set()
    thread.close()
    assert batches == [[0], [1, 2, 3, 4]]


def test_a_side_loop_runs_coroutines_on_a_thread_of_its_own() -> None:
    async def where() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise LookupError("told to the caller")

    loop = Seam().side_loop("aside")
    assert loop.submit(where()).result(WAIT_SECONDS) == "aside"
    with pytest.raises(LookupError, match="told"):
        loop.submit(fail()).result(WAIT_SECONDS)
    loop.close()
    assert "aside" not in [thread.name for thread in threading.enumerate()]


def test_a_side_loop_that_closes_ends_the_tasks_that_others_left_there() -> None:
    """A client library closes its connection in one task, which starts another as it ends."""
    ended: list[str] = []

    async def wait(name: str, then: list[str]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)
            for other in then:
                asyncio.create_task(wait(other, []))  # noqa: RUF006 - left, as they do

    async def leave() -> None:
        asyncio.create_task(wait("reader", ["closer"]))  # noqa: RUF006
        await asyncio.sleep(0)

    loop = Seam().side_loop("aside")
    loop.submit(leave()).result(WAIT_SECONDS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # that a coroutine was never awaited
        loop.close()
        gc.collect()
    assert ended == ["reader", "closer"]


def test_a_pool_runs_so_many_calls_at_a_time_and_no_more() -> None:
    go, full = threading.Event(), threading.Event()
    lock = threading.Lock()
    running = most = 0

    def call() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 3:
                full.set()
        go.wait(WAIT_SECONDS)
        with lock:
            running -= 1

    pool = Seam().threads("pooled", 3)
    calls = [pool.submit(call) for _ in range(9)]
    assert full.wait(WAIT_SECONDS)
    go.set()
    for future in calls:
        future.result(WAIT_SECONDS)
    assert most == 3
    pool.close()


def test_a_pool_makes_no_more_threads_than_are_needed() -> None:
    names: set[str] = set()
    pool = Seam().threads("pooled", 8)
    for _ in range(5):
        done: Future[None] = pool.submit(lambda: names.add(threading.current_thread().name))
        done.result(WAIT_SECONDS)
    assert len(names) <= 2
    pool.close()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_call_raises_reaches_its_caller_and_leaves_the_thread_alive(
    error: BaseException,
) -> None:
    def fail() -> None:
        raise error

    pool = Seam().threads("pooled", 1)
    assert pool.submit(fail).exception(WAIT_SECONDS) is error
    assert pool.submit(lambda: "alive").result(WAIT_SECONDS) == "alive"
    pool.close()


@contextmanager
def no_memory_for_threads() -> Iterator[None]:
    """Ask for stacks that are larger than the address space."""
    before = threading.stack_size(2**48)
    try:
        yield
    finally:
        threading.stack_size(before)


def test_a_thread_that_could_not_be_started_is_started_the_next_time() -> None:
    pool = Seam().threads("pooled", 1)
    with no_memory_for_threads(), pytest.raises(RuntimeError, match="can't start"):
        pool.submit(lambda: None)
    assert pool.submit(lambda: "alive").result(WAIT_SECONDS) == "alive"
    pool.close()


class Stillborn(ServiceThread):
    """A thread that found no memory for its first step."""

    def _bootstrap(self) -> None:
        pass


def test_nobody_waits_forever_for_a_thread_that_never_takes_its_first_step() -> None:
    with pytest.raises(RuntimeError, match="can't start new thread"):
        Stillborn("stillborn", lambda: None, start_seconds_max=0.1).start()


def test_a_thread_that_hangs_does_not_keep_the_process_alive() -> None:
    script = """
import threading
from holdfast.runtime.seam import Seam, ServiceThread
started = threading.Event()
pool = Seam().threads("pooled", 1)
pool.submit(lambda: (started.set(), threading.Event().wait()))
started.wait()
pool.close()
"""
    subprocess.run([sys.executable, "-c", script], timeout=PROGRAM_SECONDS_MAX, check=True)


def test_each_boot_has_an_identity_of_its_own() -> None:
    seam = Seam()
    assert seam.identity() != seam.identity() != Seam().identity()


async def test_signals_are_not_free_on_other_threads() -> None:
    assert not await asyncio.to_thread(Seam().signals_are_free)


async def test_a_signal_is_heard_although_the_loop_was_told_to_handle_another() -> None:
    """Python tells one of them of signals: who asked last."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    async with handling_signals(Seam(), lambda number: heard.put_nowait(number.name)):
        loop.add_signal_handler(signal.SIGUSR1, heard.put_nowait, "other")
        try:
            for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGUSR1, "other")):
                os.kill(os.getpid(), number)
                async with asyncio.timeout(WAIT_SECONDS):
                    assert await heard.get() == name
        finally:
            loop.remove_signal_handler(signal.SIGUSR1)
    assert heard.empty()
