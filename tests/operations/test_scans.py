"""A search through many jobs holds few of them in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import Filter, Holdfast, Retry, State
from holdfast.domain.limits import SCAN_ROWS_MAX

JOBS = 6 * SCAN_ROWS_MAX
TEXT = "x" * 20_000

SEARCHES: dict[str, Callable[[Holdfast], Awaitable[Any]]] = {
    "a fingerprint": lambda hf: hf.jobs.list(Filter(fingerprint="none")),
    "a choice": lambda hf: hf.jobs.choose(Filter(queue="default")),
    "a bulk change": lambda hf: hf.bulk.create("cancel", Filter(queue="default")),
    "error groups": lambda hf: hf.dead.grouped(Filter(states=(State.CANCELED,))),
}


async def fill(hf: Holdfast) -> None:
    @hf.job
    async def keep(text: str) -> None: ...

    await hf.enqueue_many([keep.call(TEXT) for _ in range(JOBS)])


@pytest.mark.parametrize("search", SEARCHES)
async def test_a_search_reads_large_jobs_a_few_at_a_time(hf: Holdfast, search: str) -> None:
    await fill(hf)
    if search == "error groups":
        async for _ in hf.jobs.cancel_many(Filter()):
            pass
    tracemalloc.start()
    try:
        await SEARCHES[search](hf)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < JOBS * len(TEXT)


async def test_one_call_finds_a_fingerprint_behind_many_other_jobs(hf: Holdfast) -> None:
    @hf.job(retry=Retry.none())
    async def fail() -> None:
        raise RuntimeError("odd")

    job = await fail.enqueue()
    await hf.run_due()
    (group,) = (await hf.dead.grouped()).groups
    await fill(hf)
    page = await hf.jobs.list(Filter(fingerprint=group.fingerprint), 1)
    assert [each.id for each in page.jobs] == [job.id]
