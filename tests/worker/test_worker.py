"""What a worker claims, in which order, how many at a time, and how it starts and stops."""

from __future__ import annotations

import asyncio
import os
import signal as signals
import sqlite3
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import asyncpg
import pytest

from holdfast import (
    ConfigurationError,
    Context,
    Holdfast,
    JobFailed,
    Retry,
    SchemaMismatch,
    State,
    StoreError,
)
from holdfast.domain.job import Claimed
from holdfast.domain.limits import IN_HAND_MAX
from holdfast.observability.logs import Event
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Claim, Store
from holdfast.testing.simulation import Simulation
from tests.support.around import Around
from tests.support.processes import turn, wait_until
from tests.support.running import QUICK, WAIT_SECONDS_MAX, execute, seen_events, signal, working
from tests.support.services import missing

SLOTS = 400


class Gate:
    """Holds handlers until the test lets them go, and counts those inside."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.wanted: int | None = None
        self.reached = asyncio.Event()
        self._go = asyncio.Semaphore(0)

    async def passing(self, kind: str = "all") -> None:
        self.inside[kind] += 1
        self.most[kind] = max(self.most[kind], self.inside[kind])
        if self.inside.total() == self.wanted:
            self.reached.set()
        await self._go.acquire()
        self.inside[kind] -= 1

    async def fill(self, wanted: int) -> None:
        self.wanted = wanted
        if self.inside.total() < wanted:
            await signal(self.reached)

    def open(self, count: int) -> None:
        for _ in range(count):
            self._go.release()


async def running(hf: Holdfast) -> int:
    return sum(count.jobs for count in await hf.jobs.counts() if count.state is State.RUNNING)


class Claims:
    """Notes of each claim how many jobs it asked for, and how many started meanwhile.

    An answer comes no sooner than after so many turns of the loop."""

    def __init__(self) -> None:
        self.answer_turns = 0
        self.started = 0
        self.asked: list[int] = []
        self.meanwhile: list[int] = []

    async def until_started(self, jobs: int) -> None:
        await wait_until(lambda: self.started == jobs, f"{jobs} started")


class WatchedStore(Around):
    def __init__(self, store: Store, claims: Claims) -> None:
        super().__init__(store)
        self._claims = claims

    async def claim(self, asked: Claim) -> Sequence[Claimed]:
        before = self._claims.started
        jobs: Sequence[Claimed] = await self.store.claim(asked)
        for _ in range(self._claims.answer_turns):
            await turn()
        self._claims.asked.append(asked.limit)
        self._claims.meanwhile.append(self._claims.started - before)
        return jobs


class Watched(Holdfast):
    def __init__(self, url: str, claims: Claims) -> None:
        self.claims = claims
        super().__init__(url, **QUICK)

    def _make_store(self) -> Store:
        return cast(Store, WatchedStore(super()._make_store(), self.claims))


@pytest.fixture
async def watched(store_url: str) -> AsyncIterator[Watched]:
    hf = Watched(store_url, Claims())
    async with hf:
        yield hf


@pytest.mark.parametrize("concurrency", [20, 400])
async def test_half_of_what_is_in_hand_runs_while_the_other_half_is_claimed(
    watched: Watched, concurrency: int
) -> None:
    """Where handlers end at once, they and the database would wait for each other otherwise."""
    hf, claims = watched, watched.claims
    half = IN_HAND_MAX // 2
    # Enough for all in hand. How many start during a real answer depends on which of the two is
    # faster, and on a busy machine the worker may get the CPU for a few turns only.
    claims.answer_turns = half

    @hf.job
    async def quick() -> None:
        claims.started += 1

    await hf.enqueue_many([quick.call() for _ in range(16 * half)])
    await hf.run_worker(concurrency=concurrency, until_empty=True)
    assert claims.started == 16 * half
    assert claims.asked[0] == concurrency
    # Seen: 26 claims, and on a busy machine some more.
    assert len(claims.asked) <= 60
    assert claims.asked.count(half) >= 5
    assert sum(claims.meanwhile) >= 5 * half


async def test_handlers_that_take_time_take_their_first_step_before_the_next_claim(
    watched: Watched,
) -> None:
    """One that blocks the loop must not leave the answer to a claim lying unread."""
    hf, claims, gate = watched, watched.claims, Gate()

    @hf.job
    async def slow() -> None:
        claims.started += 1
        await gate.passing()

    await hf.enqueue_many([slow.call() for _ in range(2 * SLOTS)])
    worker = asyncio.create_task(hf.run_worker(concurrency=SLOTS, until_empty=True))
    await gate.fill(SLOTS)
    for ended, started in ((1, 1), (5, 6), (50, 56)):
        gate.open(ended)
        await claims.until_started(SLOTS + started)
    assert len(claims.asked) >= 4
    assert not any(claims.meanwhile)
    gate.open(2 * SLOTS)
    await worker


async def test_never_more_handlers_run_at_once_than_the_concurrency(hf: Holdfast) -> None:
    gate = Gate()

    @hf.job
    async def pass_gate() -> None:
        await gate.passing()

    jobs = await hf.enqueue_many([pass_gate.call() for _ in range(12)])
    async with working(hf, concurrency=3):
        await gate.fill(3)
        assert await running(hf) == 3
        gate.open(12)
        for job in jobs:
            await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
    assert gate.most["all"] == 3


@pytest.mark.parametrize("queues", ["narrow:2,*", {"wide": None, "narrow": 2}])
async def test_a_queue_runs_no_more_than_its_own_limit(hf: Holdfast, queues: Any) -> None:
    gate = Gate()

    @hf.job
    async def pass_gate(kind: str) -> None:
        await gate.passing(kind)

    for kind in ("wide", "narrow"):
        await hf.enqueue_many([pass_gate.options(queue=kind).call(kind) for _ in range(5)])
    async with working(hf, concurrency=20, queues=queues):
        await gate.fill(7)
        assert gate.inside == {"wide": 5, "narrow": 2}
        gate.wanted = None
        gate.open(10)
        for job in (await hf.jobs.list()).jobs:
            await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
    assert gate.most == {"wide": 5, "narrow": 2}


async def test_a_full_queue_leaves_room_to_one_with_a_limit(hf: Holdfast) -> None:
    order: list[str] = []

    @hf.job
    async def note(kind: str) -> None:
        order.append(kind)

    await hf.enqueue_many([note.options(queue="flood").call("flood") for _ in range(30)])
    await note.options(queue="small").enqueue("small")
    await hf.run_worker(concurrency=1, queues="flood,small:1", until_empty=True)
    assert order.index("small") < 5


async def test_a_queue_that_is_capped_for_all_workers_goes_on_as_soon_as_one_job_ends(
    store_url: str,
) -> None:
    async with Holdfast(store_url, **{**QUICK, "poll_seconds": 3600}) as hf:
        gate = Gate()

        @hf.job(queue="narrow")
        async def pass_gate() -> None:
            await gate.passing()

        await hf.queues.cap("narrow", 2)
        jobs = await hf.enqueue_many([pass_gate.call() for _ in range(6)])
        async with working(hf, concurrency=20):
            await gate.fill(2)
            gate.open(6)
            for job in jobs:
                await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
        assert gate.most["all"] == 2


async def test_queues_that_are_not_named_are_left_alone(local_hf: Holdfast) -> None:
    @local_hf.job
    async def nothing() -> None: ...

    served = await nothing.options(queue="served").enqueue()
    other = await nothing.options(queue="other").enqueue()
    report = await local_hf.run_worker(queues=["served"], until_empty=True)
    assert report.succeeded == 1
    assert (await local_hf.get(served.id)).state is State.SUCCEEDED
    assert (await local_hf.get(other.id)).state is State.QUEUED


async def test_a_misspelled_queue_is_told_of_at_the_start(hf: Holdfast) -> None:
    @hf.job(queue="images")
    async def resize() -> None: ...

    await resize.options(queue="customer-7").enqueue()
    async with seen_events() as seen:
        queues = ["image", "custmer-7", "images", "customer-7", "elsewhere"]
        await hf.run_worker(queues=queues, until_empty=True)
    assert [(each.fields["queue"], each.message) for each in seen.named("unknown_queue")] == [
        ("image", "no job uses the queue 'image' yet; did you mean 'images'?"),
        ("custmer-7", "no job uses the queue 'custmer-7' yet; did you mean 'customer-7'?"),
    ]


async def test_lower_priorities_come_first_and_then_what_was_due_first(hf: Holdfast) -> None:
    order: list[str] = []

    @hf.job
    async def note(text: str) -> None:
        order.append(text)

    hour_ago = datetime.now(UTC) - timedelta(hours=1)
    await note.options(priority=7).enqueue("last")
    await note.options(run_at=hour_ago).enqueue("second")
    await note.options(run_at=hour_ago - timedelta(hours=1)).enqueue("first of the default")
    await note.options(priority=-3).enqueue("first")
    await hf.run_worker(concurrency=1, until_empty=True)
    assert order == ["first", "first of the default", "second", "last"]


async def test_a_delayed_job_starts_when_it_is_due(hf: Holdfast) -> None:
    @hf.job
    async def nothing() -> None: ...

    job = await nothing.options(delay_seconds=0.3).enqueue()
    await hf.run_worker(until_empty=True)
    ended = await hf.get(job.id)
    assert ended.started_at is not None
    assert ended.started_at >= ended.run_at >= ended.created_at + timedelta(seconds=0.3)


async def test_an_expired_job_is_canceled_and_never_starts(store_url: str) -> None:
    started: list[str] = []
    async with Holdfast(store_url, **QUICK, reclaim_seconds=3600) as hf:

        @hf.job
        async def note(text: str) -> None:
            started.append(text)

        async with working(hf):
            await hf.result((await note.enqueue("in time")).id, timeout_seconds=WAIT_SECONDS_MAX)
            # The sweep at the worker's start is over: it is the claim that finds this one.
            job = await note.options(expires_in_seconds=0).enqueue("late")
            with pytest.raises(JobFailed, match="EXPIRED"):
                await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
        ended = await hf.get(job.id)
    assert (ended.state, ended.attempts, started) == (State.CANCELED, 0, ["in time"])


async def test_a_job_that_expired_while_it_waited_is_canceled_by_the_sweep(hf: Holdfast) -> None:
    @hf.job
    async def nothing() -> None: ...

    job = await nothing.options(delay_seconds=3600, expires_in_seconds=0).enqueue()
    async with working(hf):
        with pytest.raises(JobFailed, match="EXPIRED"):
            await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)


async def test_jobs_of_unknown_names_are_left_alone_and_told_once(
    hf: Holdfast, store_url: str
) -> None:
    @hf.job
    async def known() -> None: ...

    async with Holdfast(store_url) as other:

        @other.job(name="elsewhere")
        async def unknown() -> None: ...

        jobs = await other.enqueue_many([unknown.call() for _ in range(3)])
    async with seen_events() as seen, working(hf):
        told = await seen.first("unknown_name")
        assert told.fields["name"] == "elsewhere"
        await hf.result((await known.enqueue()).id, timeout_seconds=WAIT_SECONDS_MAX)
    assert len(seen.named("unknown_name")) == 1
    for job in jobs:
        left = await hf.get(job.id)
        assert (left.state, left.attempts, left.fence) == (State.QUEUED, 0, 0)


def test_an_unknown_name_is_told_once_however_long_its_jobs_wait(local_url: str) -> None:
    async def run_for_an_hour(simulation: Simulation) -> list[Event]:
        before = Holdfast(local_url, seam=simulation.seam("before"))

        @before.job(name="elsewhere")
        async def unknown() -> None: ...

        await unknown.enqueue()
        hf = Holdfast(local_url, seam=simulation.seam("worker"), poll_seconds=60)

        @hf.job
        async def known() -> None: ...

        async with seen_events() as seen, working(hf):
            await simulation.pass_time(3600)
        return seen.named("unknown_name")

    with Simulation(seed=1) as simulation:
        assert len(simulation.run(run_for_an_hour(simulation))) == 1


async def test_a_job_enqueued_under_an_old_name_is_run_by_its_alias(
    local_hf: Holdfast, local_url: str
) -> None:
    async with Holdfast(local_url) as before:

        @before.job(name="shrink")
        async def old(width: int) -> int:
            return -width

        job = await old.enqueue(3)

    @local_hf.job(name="resize", aliases=["shrink"])
    async def new(width: int) -> int:
        return width

    await local_hf.run_worker(until_empty=True)
    assert await local_hf.result(job.id) == 3
    assert (await local_hf.get(job.id)).name == "shrink"


async def test_until_empty_waits_for_a_retry_but_not_for_what_is_far_away(hf: Holdfast) -> None:
    @hf.job(retry=Retry.schedule([0.2]))
    async def flaky(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ConnectionError("not yet")
        return ctx.attempt

    flaked = await flaky.enqueue()
    far = await flaky.options(delay_seconds=3600).enqueue()
    report = await hf.run_worker(until_empty=True)
    assert (report.retried, report.succeeded) == (1, 1)
    assert await hf.result(flaked.id, timeout_seconds=0) == 2
    assert (await hf.get(far.id)).state is State.QUEUED


async def test_until_empty_waits_for_what_handlers_enqueue(local_hf: Holdfast) -> None:
    @local_hf.job
    async def count_down(number: int) -> None:
        if number:
            await count_down.enqueue(number - 1)

    await count_down.enqueue(5)
    assert (await local_hf.run_worker(until_empty=True)).succeeded == 6


async def test_until_empty_waits_for_jobs_that_other_workers_run(
    hf: Holdfast, store_url: str
) -> None:
    gate = Gate()

    @hf.job
    async def held() -> None:
        await gate.passing()

    async with Holdfast(store_url, **QUICK) as other:

        @other.job(name="held")
        async def same() -> None: ...

        await held.enqueue()
        async with working(hf):
            await gate.fill(1)
            async with seen_events() as seen:
                waiting = asyncio.create_task(other.run_worker(until_empty=True))
                await seen.first("worker_started")
                assert await running(other) == 1
                gate.open(1)
                report = await waiting
    assert str(report) == "nothing to do"
    assert str(seen.named("stopped")[-1]).startswith("stopped nothing to do")


async def test_two_workers_share_the_jobs_and_run_each_once(hf: Holdfast, store_url: str) -> None:
    runs: Counter[int] = Counter()
    async with Holdfast(store_url, **QUICK) as other:
        for app in (hf, other):

            @app.job(name="count")
            async def count(number: int) -> None:
                runs[number] += 1

        await other.enqueue_many([count.call(number) for number in range(200)])
        reports = await asyncio.gather(
            hf.run_worker(concurrency=5, until_empty=True),
            other.run_worker(concurrency=5, until_empty=True),
        )
    assert runs == dict.fromkeys(range(200), 1)
    assert sum(report.succeeded for report in reports) == 200


async def test_canceling_a_worker_lets_its_jobs_finish_and_claims_no_more(local_url: str) -> None:
    gate = Gate()
    async with Holdfast(local_url, **(QUICK | {"grace_seconds": 30})) as local_hf:

        @local_hf.job
        async def pass_gate() -> str:
            await gate.passing()
            return "finished"

        first, second = await local_hf.enqueue_many([pass_gate.call(), pass_gate.call()])
        worker = asyncio.create_task(local_hf.run_worker(concurrency=1))
        await gate.fill(1)
        worker.cancel()
        gate.open(2)
        with pytest.raises(asyncio.CancelledError):
            await worker
        assert await local_hf.result(first.id, timeout_seconds=0) == "finished"
        waiting = await local_hf.get(second.id)
        assert (waiting.state, waiting.attempts) == (State.QUEUED, 0)


async def test_the_first_cancel_waits_and_the_second_releases_jobs_with_their_attempts(
    store_url: str,
) -> None:
    gates = {"first": Gate(), "second": Gate()}
    canceled: list[str] = []
    async with Holdfast(store_url, **(QUICK | {"grace_seconds": 3600})) as hf:

        @hf.job
        async def pass_gate(name: str) -> None:
            try:
                await gates[name].passing()
            except asyncio.CancelledError:
                canceled.append(name)
                raise

        first, second = await hf.enqueue_many([pass_gate.call(name) for name in gates])
        worker = asyncio.create_task(hf.run_worker(concurrency=2))
        for gate in gates.values():
            await gate.fill(1)
        worker.cancel()
        gates["first"].open(1)
        await hf.result(first.id, timeout_seconds=WAIT_SECONDS_MAX)
        assert canceled == []
        assert not worker.done()
        worker.cancel()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            with suppress(asyncio.CancelledError):
                await worker
        assert canceled == ["second"]
        released = await hf.get(second.id)
        assert (released.state, released.attempts) == (State.QUEUED, 0)
        assert (released.releases, released.lease_owner) == (1, None)
        assert await hf.jobs.attempts(second.id) == []
        gates["second"].open(1)
        await hf.run_worker(until_empty=True)
        assert (await hf.get(second.id)).state is State.SUCCEEDED


def test_a_worker_without_a_free_slot_waits_its_grace_time_once(local_url: str) -> None:
    async def stop(simulation: Simulation) -> float:
        """Answer how long it took, in virtual time."""
        gate = Gate()
        hf = Holdfast(local_url, seam=simulation.seam("worker"), grace_seconds=7)

        @hf.job
        async def pass_gate() -> None:
            await gate.passing()

        await hf.enqueue_many([pass_gate.call(), pass_gate.call()])
        async with working(hf, concurrency=1):
            await gate.fill(1)
            told_at = simulation.loop.time()
        return simulation.loop.time() - told_at

    with Simulation(seed=1) as simulation:
        assert 7 <= simulation.run(stop(simulation)) < 8


async def test_a_signal_stops_the_worker_and_is_given_back_afterwards(local_hf: Holdfast) -> None:
    if not Seam().signals_are_free():
        missing("somebody else handles SIGTERM in this process")
    gate = Gate()

    @local_hf.job
    async def pass_gate() -> None:
        await gate.passing()

    job = await pass_gate.enqueue()
    before = signals.signal(signals.SIGINT, signals.SIG_IGN)
    try:
        async with seen_events() as seen:
            worker = asyncio.create_task(local_hf.run_worker())
            await gate.fill(1)
            os.kill(os.getpid(), signals.SIGTERM)
            report = await worker
        assert signals.getsignal(signals.SIGINT) == signals.SIG_IGN
    finally:
        signals.signal(signals.SIGINT, before)
    assert report.released == 1
    assert (await local_hf.get(job.id)).attempts == 0
    assert seen.named("shutdown")[0].message.startswith("SIGTERM")
    assert Seam().signals_are_free()


async def test_the_signals_of_a_web_server_are_left_alone(local_hf: Holdfast) -> None:
    @local_hf.job
    async def nothing() -> None: ...

    heard = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signals.SIGTERM, heard.set)
    try:
        async with working(local_hf):
            await local_hf.result((await nothing.enqueue()).id, timeout_seconds=WAIT_SECONDS_MAX)
            os.kill(os.getpid(), signals.SIGTERM)
            await signal(heard)
            await local_hf.result((await nothing.enqueue()).id, timeout_seconds=WAIT_SECONDS_MAX)
    finally:
        loop.remove_signal_handler(signals.SIGTERM)


async def test_a_handler_that_gives_up_because_it_is_told_to_stop_has_not_failed(
    local_hf: Holdfast,
) -> None:
    """A deploy is no failure, whatever a handler or a library makes of being canceled."""
    started = asyncio.Event()
    loop = asyncio.get_running_loop()

    @local_hf.job
    async def turns_it_into_an_error() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ConnectionError("interrupted") from None

    @local_hf.job
    def raises_in_its_thread(ctx: Context) -> None:
        loop.call_soon_threadsafe(started.set)
        ctx.wait_canceled(20)
        raise RuntimeError("told to stop")

    @local_hf.job
    def returns_from_its_thread(ctx: Context) -> str:
        loop.call_soon_threadsafe(started.set)
        return "stopped" if ctx.wait_canceled(20) else "not told"

    for function in (turns_it_into_an_error, raises_in_its_thread, returns_from_its_thread):
        started.clear()
        job = await function.enqueue()
        async with working(local_hf, concurrency=1):
            await signal(started)
        released = await local_hf.get(job.id)
        assert (released.state, released.attempts, released.error_code) == ("queued", 0, None)
        await local_hf.jobs.cancel(job.id)


async def test_a_thread_that_ends_by_itself_while_the_worker_stops_has_succeeded(
    local_hf: Holdfast,
) -> None:
    started, stopped = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @local_hf.job
    async def neighbor() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    @local_hf.job
    def finishes() -> str:
        loop.call_soon_threadsafe(started.set)
        stopped.wait(WAIT_SECONDS_MAX)
        return "in time"

    beside, job = await local_hf.enqueue_many([neighbor.call(), finishes.call()])
    async with working(local_hf):
        await signal(started)
    assert stopped.is_set()
    assert await local_hf.result(job.id, timeout_seconds=0) == "in time"
    assert (await local_hf.get(beside.id)).state is State.QUEUED


async def test_a_thread_that_ignores_the_stop_is_released_and_can_write_nothing(
    local_hf: Holdfast,
) -> None:
    started = asyncio.Event()
    loop = asyncio.get_running_loop()
    go = threading.Event()

    @local_hf.job
    def deaf() -> str:
        loop.call_soon_threadsafe(started.set)
        go.wait(WAIT_SECONDS_MAX)
        return "nobody reads this"

    job = await deaf.enqueue()
    try:
        async with working(local_hf):
            await signal(started)
        released = await local_hf.get(job.id)
        assert (released.state, released.attempts, released.releases) == ("queued", 0, 1)
    finally:
        go.set()
    assert (await local_hf.get(job.id)).result is None


async def test_resources_open_in_order_close_in_the_other_and_reach_the_handlers(
    local_hf: Holdfast,
) -> None:
    told: list[str] = []

    @local_hf.resource
    async def pool() -> AsyncIterator[str]:
        told.append("pool opens")
        yield "the pool"
        told.append("pool closes")

    @local_hf.resource
    def client() -> Iterator[str]:
        told.append("client opens")
        yield "the client"
        told.append("client closes")

    @local_hf.resource
    async def token() -> str:
        return "the token"

    @local_hf.resource
    def limit() -> int:
        return 5

    @local_hf.job
    async def use(ctx: Context) -> list[Any]:
        told.append("runs")
        return [ctx.resources[name] for name in ("pool", "client", "token", "limit")]

    job = await use.enqueue()
    await local_hf.run_worker(until_empty=True)
    assert await local_hf.result(job.id) == ["the pool", "the client", "the token", 5]
    assert told == ["pool opens", "client opens", "runs", "client closes", "pool closes"]


async def test_a_resource_that_fails_to_start_ends_the_worker_before_any_claim(
    local_hf: Holdfast,
) -> None:
    closed: list[str] = []

    @local_hf.resource
    async def first() -> AsyncIterator[None]:
        yield
        closed.append("first")

    @local_hf.resource
    async def broken() -> None:
        raise ConnectionRefusedError("no such server")

    @local_hf.job
    async def nothing() -> None: ...

    job = await nothing.enqueue()
    with pytest.raises(ConnectionRefusedError, match="no such server"):
        await local_hf.run_worker(until_empty=True)
    waiting = await local_hf.get(job.id)
    assert (waiting.state, waiting.fence) == (State.QUEUED, 0)
    assert closed == ["first"]


async def test_a_resource_that_fails_to_close_is_told_after_the_others_are_closed(
    local_hf: Holdfast,
) -> None:
    closed: list[str] = []

    @local_hf.resource
    async def first() -> AsyncIterator[None]:
        yield
        closed.append("first")

    @local_hf.resource
    async def second() -> AsyncIterator[None]:
        yield
        raise OSError("can't be closed")

    @local_hf.job
    async def nothing() -> None: ...

    job = await nothing.enqueue()
    with pytest.raises(OSError, match="can't be closed"):
        await local_hf.run_worker(until_empty=True)
    assert closed == ["first"]
    assert (await local_hf.get(job.id)).state is State.SUCCEEDED


async def test_two_resources_of_one_name_are_refused(local_hf: Holdfast) -> None:
    @local_hf.resource
    def pool() -> int:
        return 1

    with pytest.raises(ConfigurationError, match="resource named 'pool'"):
        local_hf.resource(pool)


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"concurrency": -1},
        {"queues": ""},
        {"queues": []},
        {"queues": "mail:0"},
        {"queues": "mail:many"},
        {"queues": "*:3"},
        {"queues": {"mail": 0}},
        {"queues": ["mail\n"]},
    ],
)
async def test_a_worker_refuses_options_that_can_not_be_right(
    local_hf: Holdfast, options: dict[str, Any]
) -> None:
    @local_hf.job
    async def nothing() -> None: ...

    with pytest.raises(ConfigurationError):
        await local_hf.run_worker(until_empty=True, **options)


async def test_a_worker_without_jobs_is_refused(local_hf: Holdfast) -> None:
    with pytest.raises(ConfigurationError, match="no jobs are defined"):
        await local_hf.run_worker()


async def test_one_outcome_that_the_database_refuses_harms_no_other(
    hf: Holdfast, store_url: str
) -> None:
    @hf.job
    async def answer(text: str) -> str:
        return text

    if store_url.startswith("sqlite"):
        refusal = """CREATE TRIGGER refusal BEFORE INSERT ON history WHEN new.result = '"bad"'
            BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"""
    else:
        refusal = """ALTER TABLE history ADD CONSTRAINT refusal CHECK (result::text <> '"bad"')"""
    await execute(store_url, refusal)
    texts = ["good"] * 6 + ["bad"] + ["good"] * 6
    jobs = await hf.enqueue_many([answer.call(text) for text in texts])
    report = await hf.run_worker(until_empty=True)
    assert (report.succeeded, report.failed) == (12, 1)
    refused = await hf.get(jobs[6].id)
    assert (refused.state, refused.error_code) == (State.FAILED, "UNSTORABLE")


async def test_a_job_of_which_the_database_refuses_every_end_is_let_go(
    hf: Holdfast, store_url: str
) -> None:
    cursed_name = "cursed"

    @hf.job(name=cursed_name)
    async def cursed() -> None: ...

    @hf.job
    async def fine() -> None: ...

    if store_url.startswith("sqlite"):
        refusal = """CREATE TRIGGER refusal BEFORE INSERT ON history WHEN new.name = 'cursed'
            BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"""
    else:
        refusal = "ALTER TABLE history ADD CONSTRAINT refusal CHECK (name <> 'cursed')"
    await execute(store_url, refusal)
    async with seen_events() as seen, working(hf):
        job = await cursed.enqueue()
        refused = await seen.first("settle_refused")
        assert refused.fields["job_id"] == job.id
        await hf.result((await fine.enqueue()).id, timeout_seconds=WAIT_SECONDS_MAX)


class Outage(Seam):
    """A machine whose disk can fail for a while: SQLite itself interrupts every statement."""

    def __init__(self) -> None:
        super().__init__()
        self.is_on = False

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        connection = super().connect_sqlite(path)
        connection.set_progress_handler(lambda: self.is_on, 1)
        return connection


async def test_a_worker_goes_on_after_its_sqlite_file_could_not_be_used(tmp_path: Path) -> None:
    outage = Outage()
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    settings = QUICK | {"reclaim_seconds": 0.05, "renew_seconds": 0.3}
    hf = Holdfast(url, seam=outage, **settings)
    gate = Gate()

    @hf.job
    async def pass_gate() -> str:
        await gate.passing()
        return "settled afterwards"

    async with Holdfast(url) as client, hf, seen_events() as seen, working(hf) as worker:
        held = await pass_gate.enqueue()
        await gate.fill(1)
        outage.is_on = True
        for trouble in ("claim_failed", "sweep_failed", "renew_failed"):
            await seen.first(trouble)
        gate.open(2)
        await seen.first("settle_failed")
        assert not worker.done()
        outage.is_on = False
        assert (
            await client.result(held.id, timeout_seconds=WAIT_SECONDS_MAX) == "settled afterwards"
        )
        next_job = await pass_gate.enqueue()
        await client.result(next_job.id, timeout_seconds=WAIT_SECONDS_MAX)


async def test_a_worker_goes_on_after_its_postgres_connections_were_cut(
    postgres_url: str,
) -> None:
    hf = Holdfast(postgres_url, **QUICK)
    await hf.migrate()
    gate = Gate()

    @hf.job
    async def pass_gate() -> None:
        await gate.passing()

    async with hf, working(hf) as worker:
        held = await pass_gate.enqueue()
        await gate.fill(1)
        server = await asyncpg.connect(postgres_url)
        for _ in range(3):
            await server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await server.close()
        gate.open(2)
        await _patiently(lambda: hf.result(held.id, timeout_seconds=WAIT_SECONDS_MAX))
        next_job = await _patiently(pass_gate.enqueue)
        await hf.result(next_job.id, timeout_seconds=WAIT_SECONDS_MAX)
        assert not worker.done()


async def _patiently(call: Any) -> Any:
    """Call again if this process's own connections to the database were cut, too."""
    for _ in range(10):
        with suppress(StoreError):
            return await call()
    return await call()


class LostAnswer(Seam):
    """A machine on which one commit of a settlement happens, but its answer is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        seam = self

        class Connection(sqlite3.Connection):
            settles = False

            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                cursor = super().execute(sql, *parameters)
                settling = "INSERT INTO history" in sql
                self.settles = self.settles or settling
                if sql == "COMMIT" and self.settles and not seam.lost:
                    seam.lost += 1
                    raise sqlite3.OperationalError("disk I/O error")
                return cursor

        return sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, factory=Connection
        )


async def test_a_settlement_whose_answer_was_lost_is_not_taken_for_a_lost_lease(
    tmp_path: Path,
) -> None:
    seam = LostAnswer()
    async with Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}", seam=seam, **QUICK) as hf:

        @hf.job
        async def nothing() -> None: ...

        await hf.enqueue_many([nothing.call() for _ in range(3)])
        report = await hf.run_worker(until_empty=True)
    assert seam.lost == 1
    assert (report.succeeded, report.lost) == (3, 0)


async def test_a_database_that_lost_its_schema_ends_the_worker_with_that_error(
    postgres_url: str,
) -> None:
    hf = Holdfast(postgres_url, **QUICK)
    await hf.migrate()

    @hf.job
    async def nothing() -> None: ...

    async with hf:
        worker = asyncio.create_task(hf.run_worker())
        await hf.result((await nothing.enqueue()).id, timeout_seconds=WAIT_SECONDS_MAX)
        await execute(postgres_url, "DROP SCHEMA holdfast CASCADE")
        with pytest.raises(SchemaMismatch, match="holdfast migrate"):
            await worker


async def test_a_worker_whose_keeper_can_not_connect_yet_waits_for_its_database(
    tmp_path: Path,
) -> None:
    outage = Outage()
    async with Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}", seam=outage, **QUICK) as hf:

        @hf.job
        async def nothing() -> None: ...

        @hf.resource
        def breaks_off() -> None:
            outage.is_on = True

        job = await nothing.enqueue()
        threads = threading.active_count()
        async with seen_events() as seen, working(hf):
            await seen.first("open_failed")
            outage.is_on = False
            await hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX)
        assert threading.active_count() == threads


async def test_a_worker_whose_keeper_can_not_connect_stops_when_it_is_told_to(
    tmp_path: Path,
) -> None:
    outage = Outage()
    async with Holdfast(f"sqlite:///{tmp_path / 'jobs.db'}", seam=outage, **QUICK) as hf:

        @hf.job
        async def nothing() -> None: ...

        @hf.resource
        def breaks_off() -> None:
            outage.is_on = True

        async with seen_events() as seen, working(hf):
            await seen.first("open_failed")
