"""Sandboxes for tests that have no event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from holdfast import Context, Holdfast, State
from holdfast.testing import sandbox_sync
from tests.testing.test_private_databases import sandboxes


def test_a_plain_test_enqueues_drains_and_travels_in_time(
    idle_hf: Holdfast, server: str | None
) -> None:
    @idle_hf.job
    def thank(ctx: Context, name: str) -> str:
        remind.options(delay_seconds=86400).enqueue_sync(name)
        return f"Thank you, {name}"

    @idle_hf.job
    async def remind(name: str) -> None: ...

    with sandbox_sync(idle_hf, server) as jobs:
        job = thank.enqueue_sync("Ann")
        assert jobs.drain_sync(raise_errors=True).succeeded == 1
        assert idle_hf.get_sync(job.id).result == "Thank you, Ann"
        (reminder,) = jobs.jobs_sync(State.QUEUED)
        assert reminder.run_at > jobs.now_sync()
        jobs.advance_sync(86400)
        jobs.crash_before_commit(remind)
        report = jobs.drain_sync()
        assert (report.succeeded, report.lost) == (1, 1)


def test_nothing_is_left_of_a_sandbox(
    idle_hf: Holdfast, postgres_server: str, local_url: str
) -> None:
    @idle_hf.job
    async def nothing() -> None: ...

    names = set()

    def fail_in(server: str | None) -> None:
        with sandbox_sync(idle_hf, server) as jobs:
            names.add(jobs.url.rpartition("/")[2])
            nothing.enqueue_sync()
            jobs.drain_sync()
            raise LookupError

    own, threads = idle_hf.url_shown, set(threading.enumerate())
    for server in (None, postgres_server):
        with pytest.raises(LookupError):
            fail_in(server)
    assert idle_hf.url_shown == own
    assert not names & set(asyncio.run(sandboxes(postgres_server)))
    assert [each.name for each in set(threading.enumerate()) - threads if is_ours(each)] == []


def is_ours(thread: threading.Thread) -> bool:
    return thread.name.startswith("holdfast")


def test_event_loops_of_the_test_are_cleaned_up_with_the_sandbox(
    idle_hf: Holdfast, server: str | None
) -> None:
    @idle_hf.job
    async def nothing() -> None: ...

    async def enqueue_and_forget() -> None:
        await nothing.enqueue()

    with sandbox_sync(idle_hf, server) as jobs:
        asyncio.run(enqueue_and_forget())
        assert jobs.drain_sync().succeeded == 1


async def test_it_is_refused_on_an_event_loop(hf: Holdfast) -> None:
    enter: Callable[[], object] = sandbox_sync(hf).__enter__
    with pytest.raises(RuntimeError, match=r"use: async with sandbox\(hf\)"):
        enter()
