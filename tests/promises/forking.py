"""Processes that copy themselves while they use the database.

A client is `python -m tests.promises.forking FUNCTION [JSON ARGUMENT ...]`, a worker
`holdfast worker tests.promises.forking:hf`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable

from holdfast import ConfigurationError, Context, Holdfast
from tests.promises.clients import acknowledge, say
from tests.promises.handlers import note
from tests.support.forks import end_with_parent
from tests.support.processes import WAIT_SECONDS

COPIES = 6
JOBS_BETWEEN = 10

hf = Holdfast()


@hf.job
async def quick(number: int = 0) -> int:
    return number


def enqueue_as(color: str) -> None:
    if color == "sync":
        acknowledge([quick.enqueue_sync(1)])
    else:
        asyncio.run(enqueue())


async def enqueue() -> None:
    async with hf:
        acknowledge([await quick.enqueue(1)])


def copied(work: Callable[[], None]) -> int:
    """Do this in a copy of this process, which then ends like any program; answer its id."""
    if child := os.fork():
        return child
    signal.alarm(int(WAIT_SECONDS))
    work()
    gc.collect()
    raise SystemExit


def codes(children: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def copy_while_writing(color: str) -> None:
    """Copy this process again and again while threads enqueue; the copies enqueue, too."""
    enough = threading.Event()
    progress = threading.Semaphore(0)

    def enqueue_on_and_on() -> None:
        while not enough.is_set():
            acknowledge([quick.enqueue_sync(0)])
            progress.release()

    threads = [threading.Thread(target=enqueue_on_and_on) for _ in range(2)]
    for thread in threads:
        thread.daemon = True
        thread.start()
    children = []
    for _ in range(COPIES):
        for _ in range(JOBS_BETWEEN):
            progress.acquire()
        children.append(copied(lambda: enqueue_as(color)))
    ended = codes(children)
    for _ in range(JOBS_BETWEEN):
        progress.acquire()
    enough.set()
    for thread in threads:
        thread.join()
    hf.close_sync()
    raise SystemExit(ended != [0] * COPIES)


def copy_then_close() -> None:
    """Close the parent's connections while its copy writes, and kill the copy."""
    acknowledge([quick.enqueue_sync(0)])
    connected, closed = multiprocessing.Event(), multiprocessing.Event()

    def write_until_killed() -> None:
        acknowledge([quick.enqueue_sync(1)])
        connected.set()
        closed.wait()
        acknowledge([quick.enqueue_sync(2)])
        os.kill(os.getpid(), signal.SIGKILL)

    child = copied(write_until_killed)
    connected.wait()
    hf.close_sync()
    closed.set()
    raise SystemExit(codes([child]) != [-signal.SIGKILL])


def tell_refusal() -> None:
    def ask() -> None:  # on another thread, which is not inside the block around the fork
        try:
            quick.enqueue_sync(2)
        except ConfigurationError as error:
            say(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()


async def copy_within_a_transaction() -> None:
    async with hf:
        async with hf.transaction() as connection:
            job = await quick.options(connection=connection).enqueue(1)
            child = os.fork()
            if child == 0:
                signal.alarm(int(WAIT_SECONDS))
                tell_refusal()
                os._exit(0)
            ended = codes([child])
        acknowledge([job, await quick.enqueue(3)])
    raise SystemExit(ended != [0])


def wait_for_a_signal() -> None:
    end_with_parent()  # where the signal is lost, nothing else would end it
    threading.Event().wait()


def fork(ctx: Context) -> None:
    """Let one process enqueue, and end another by a signal that does not concern the worker."""
    methods = multiprocessing.get_context("fork")
    enqueuing = methods.Process(target=enqueue_as, args=("sync",))
    enqueuing.start()
    enqueuing.join()
    waiting = methods.Process(target=wait_for_a_signal)
    waiting.start()
    waiting.terminate()
    waiting.join()
    note(ctx, f"its processes ended with {enqueuing.exitcode} and {waiting.exitcode}")


hf.job(fork)


if __name__ == "__main__":
    told = globals()[sys.argv[1]](*map(json.loads, sys.argv[2:]))
    if told is not None:
        asyncio.run(told)
