"""An object that nobody closed leaves nothing open when it is collected, and says so."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import Holdfast
from tests.support.processes import wait_until

OBJECTS = 3


def what_is_open() -> tuple[int, int]:
    """Threads and files of this process, once what is of no use is collected."""
    gc.collect()
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


async def use(url: str) -> None:
    hf = Holdfast(url)
    await hf.job(name="work")(lambda: None).enqueue()
    await hf.queues.list()


def use_sync(url: str) -> None:
    hf = Holdfast(url)
    hf.job(name="work")(lambda: None).enqueue_sync()


async def use_on_several_loops(url: str) -> None:
    hf = Holdfast(url)
    work = hf.job(name="work")(lambda: None)
    await work.enqueue()
    await asyncio.to_thread(work.enqueue_sync)


async def use_on_a_thread(url: str) -> None:
    with ThreadPoolExecutor(1) as thread:
        await asyncio.get_running_loop().run_in_executor(thread, use_sync, url)


@pytest.mark.parametrize("use", [use, use_on_several_loops, use_on_a_thread])
async def test_what_nobody_closed_is_closed_when_it_is_collected(
    store_url: str, use: Callable[[str], Awaitable[None]]
) -> None:
    await asyncio.to_thread(int)  # the loop's own thread
    before = what_is_open()

    async def use_and_forget() -> None:
        for _ in range(OBJECTS):
            await use(store_url)
        await wait_until(lambda: what_is_open() <= before, lambda: f"{what_is_open()} {before}")

    with pytest.warns(ResourceWarning, match="Create one object per process"):
        await use_and_forget()


async def test_one_that_was_closed_is_collected_without_a_word(store_url: str) -> None:
    async with Holdfast(store_url) as hf:
        await hf.queues.list()
    del hf
    gc.collect()
