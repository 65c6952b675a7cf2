"""Queues and breakers, as an operator steers them by the functions of a Holdfast object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import (
    BadArguments,
    ConfigurationError,
    Holdfast,
    JobFunction,
    Progress,
    State,
    WrongState,
)
from holdfast.domain.breakers import BreakerStatus
from holdfast.domain.limits import PURGE_ROWS_MAX, QUEUE_RUNNING_MAX
from holdfast.domain.queues import QueueStatus
from holdfast.stores.protocol import Claim
from tests.promises.stage import both_stores
from tests.support.running import WAIT_SECONDS_MAX, signal, working
from tests.support.stores import full_store

pytestmark = both_stores


@pytest.fixture
def nothing(hf: Holdfast) -> JobFunction[[], None]:
    @hf.job(queue="images", breaker="gateway")
    async def nothing() -> None: ...

    return nothing


async def queue_of(hf: Holdfast, name: str = "images") -> QueueStatus:
    (found,) = [queue for queue in await hf.queues.list() if queue.name == name]
    return found


async def breaker_of(hf: Holdfast) -> BreakerStatus:
    (found,) = await hf.breakers.list()
    return found


async def claim(hf: Holdfast, limit: int) -> int:
    """Lease as many as may run, for a worker that does nothing with them."""
    store = await full_store(hf)
    claim = Claim(worker="idle", limit=limit, lease_seconds=60.0, names=hf.names)
    return len(await store.claim(claim))


async def last(steps: AsyncIterator[Progress]) -> Progress:
    return [step async for step in steps][-1]


async def test_a_paused_queue_starts_nothing_until_it_is_resumed(
    hf: Holdfast, nothing: JobFunction[[], None]
) -> None:
    job = await nothing.enqueue()
    await hf.queues.pause("images", by="ann@host", because="the disk is full")
    await hf.run_due()
    queue = await queue_of(hf)
    assert (queue.ready, queue.paused_by, queue.paused_because) == (
        1,
        "ann@host",
        "the disk is full",
    )
    await hf.queues.resume("images")
    await hf.run_due()
    assert (await hf.get(job.id)).state is State.SUCCEEDED


async def test_who_pauses_what_is_paused_learns_by_whom_and_since_when(hf: Holdfast) -> None:
    await hf.queues.pause("images", by="ann@host", because="the disk is full")
    told = (
        r"queue images has already been paused, by ann@host since 20\S+Z: the disk is full; nothing"
    )
    with pytest.raises(WrongState, match=told):
        await hf.queues.pause("images", by="bob@host")
    assert (await queue_of(hf)).paused_by == "ann@host"
    await hf.queues.resume("images")
    with pytest.raises(WrongState, match="queue images is not paused; nothing was changed"):
        await hf.queues.resume("images")


async def test_names_and_reasons_are_checked(hf: Holdfast) -> None:
    for wrong in ("", "a\nb", "q" * 201):
        with pytest.raises(ConfigurationError, match="the queue "):
            await hf.queues.pause(wrong)
        with pytest.raises(ConfigurationError, match="the queue "):
            await hf.queues.resume(wrong)
        with pytest.raises(ConfigurationError, match="the queue "):
            await hf.queues.cap(wrong, 1)
        with pytest.raises(ConfigurationError, match="the queue "):
            await anext(hf.queues.drain(wrong))
        with pytest.raises(ConfigurationError, match="the queue "):
            await anext(hf.queues.purge(wrong))
        for verb in (hf.breakers.open, hf.breakers.close, hf.breakers.reset):
            with pytest.raises(BadArguments, match="the breaker's key "):
                await verb(wrong)
        with pytest.raises(BadArguments, match="the operator "):
            await hf.queues.pause("images", by=wrong)
        with pytest.raises(BadArguments, match="the reason "):
            await hf.breakers.open("gateway", because=wrong)
    assert [*await hf.queues.list(), *await hf.breakers.list()] == []


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "3", QUEUE_RUNNING_MAX + 1])
async def test_a_cap_is_a_number_of_jobs(hf: Holdfast, wrong: int) -> None:
    with pytest.raises(ConfigurationError, match="running_max must be 0 to 1,000,000, or None"):
        await hf.queues.cap("images", wrong)


async def test_a_cap_lets_so_many_run_and_is_lifted_again(
    hf: Holdfast, nothing: JobFunction[[], None]
) -> None:
    await hf.enqueue_many([nothing.call() for _ in range(5)])
    await hf.queues.cap("images", 2)
    assert (await claim(hf, 10), await claim(hf, 10)) == (2, 0)
    queue = await queue_of(hf)
    assert (queue.running, queue.running_max, queue.ready) == (2, 2, 3)
    await hf.queues.cap("images", None)
    assert await claim(hf, 10) == 3
    assert (await queue_of(hf)).running_max is None


async def test_a_drain_waits_for_what_runs_and_leaves_the_queue_paused(hf: Holdfast) -> None:
    begun, gate = asyncio.Event(), asyncio.Event()

    @hf.job(queue="images")
    async def hold() -> None:
        begun.set()
        await signal(gate)

    async with working(hf, concurrency=1):
        jobs = await hf.enqueue_many([hold.call() for _ in range(3)])
        await signal(begun)
        steps = []
        async for queue in hf.queues.drain("images", by="ann@host"):
            steps.append(queue.running)
            gate.set()
        assert (steps[0], steps[-1]) == (1, 0)
        assert steps.count(0) > 1  # a claim may have been on its way when the first look found none
        queue = await queue_of(hf)
        assert (queue.paused_by, queue.running, queue.ready) == ("ann@host", 0, 2)
        await hf.queues.resume("images")
        for job in jobs:
            await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)


async def test_a_queue_that_is_paused_can_be_drained(hf: Holdfast) -> None:
    await hf.queues.pause("images", by="ann@host")
    assert [queue.running async for queue in hf.queues.drain("images", by="bob@host")][-1] == 0
    assert (await queue_of(hf)).paused_by == "ann@host"


async def test_a_drain_ends_when_somebody_resumes_the_queue(
    hf: Holdfast, nothing: JobFunction[[], None]
) -> None:
    await nothing.enqueue()
    await claim(hf, 1)
    steps = hf.queues.drain("images")
    assert (await anext(steps)).running == 1
    await hf.queues.resume("images")
    with pytest.raises(WrongState, match="queue images was resumed while it was being drained"):
        await anext(steps)


async def test_a_purge_cancels_what_waits_and_nothing_vanishes(
    hf: Holdfast, nothing: JobFunction[[], None]
) -> None:
    (running,) = await hf.enqueue_many([nothing.call()])
    await claim(hf, 1)
    due = await hf.enqueue_many([nothing.call() for _ in range(PURGE_ROWS_MAX)])
    (later,) = await hf.enqueue_many([nothing.options(delay_seconds=60).call()])
    (other,) = await hf.enqueue_many([nothing.options(queue="mail").call()])
    await hf.breakers.open("gateway")
    await (await full_store(hf)).park(100)
    purged = [job.id for job in (*due, later)]
    assert sorted((await hf.queues.purge_preview("images")).ids) == sorted(purged)
    steps = [(step.done, step.changed, step.total) async for step in hf.queues.purge("images")]
    total = PURGE_ROWS_MAX + 1
    assert steps == [(PURGE_ROWS_MAX, PURGE_ROWS_MAX, total), (total, total, total)]
    counts = {(each.queue, each.state): each.jobs for each in await hf.jobs.counts()}
    assert counts == {
        ("images", State.CANCELED): total,
        ("images", State.RUNNING): 1,
        ("mail", State.QUEUED): 1,
    }
    assert (await hf.get(running.id)).state is State.RUNNING
    assert (await hf.get(other.id)).state is State.QUEUED
    assert [step async for step in hf.queues.purge("images")] == []


async def test_a_job_that_began_since_the_preview_is_left_alone(
    hf: Holdfast, nothing: JobFunction[[], None]
) -> None:
    await hf.enqueue_many([nothing.call() for _ in range(3)])
    choice = await hf.queues.purge_preview("images")
    await claim(hf, 1)
    late = await nothing.enqueue()
    end = await last(hf.queues.purge("images", choice.ids))
    assert (end.total, end.changed, end.moved_on) == (3, 2, 1)
    assert (await hf.get(late.id)).state is State.QUEUED
    assert (await queue_of(hf)).running == 1


async def test_a_purge_takes_what_runs_if_asked_to(
    hf: Holdfast, nothing: JobFunction[[], None]
) -> None:
    await hf.enqueue_many([nothing.call() for _ in range(3)])
    await claim(hf, 1)
    assert len((await hf.queues.purge_preview("images", running=True)).ids) == 3
    assert (await last(hf.queues.purge("images", running=True))).changed == 3
    assert list(await hf.queues.list()) == []


async def test_a_purge_keeps_its_pace(hf: Holdfast, nothing: JobFunction[[], None]) -> None:
    await hf.enqueue_many([nothing.call() for _ in range(6)])
    steps = [step.done async for step in hf.queues.purge("images", jobs_per_second=20)]
    assert steps == [2, 4, 6]
    with pytest.raises(ConfigurationError, match="jobs_per_second must be at least"):
        await anext(hf.queues.purge("images", jobs_per_second=0))


async def test_a_breaker_is_opened_by_hand_and_holds_until_it_is_closed(
    hf: Holdfast, nothing: JobFunction[[], None]
) -> None:
    job = await nothing.enqueue()
    await hf.breakers.open("gateway", by="ann@host", because="deploying")
    await hf.run_due()
    assert (await hf.get(job.id)).state is State.QUEUED
    breaker = await breaker_of(hf)
    assert (breaker.opened_by, breaker.opened_because) == ("ann@host", "deploying")
    assert breaker.by_hand
    await hf.breakers.close("gateway")
    await hf.run_worker(until_empty=True)
    assert (await hf.get(job.id)).state is State.SUCCEEDED
    with pytest.raises(WrongState, match="breaker gateway is not open; nothing was changed"):
        await hf.breakers.close("gateway")


async def test_a_reset_forgets_a_breaker(hf: Holdfast) -> None:
    await hf.breakers.open("gateway")
    await hf.breakers.reset("gateway")
    assert list(await hf.breakers.list()) == []
    with pytest.raises(WrongState, match="breaker gateway does not exist"):
        await hf.breakers.reset("gateway")
