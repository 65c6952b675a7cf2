"""The transaction in which a handler writes its rows together with the failure of its attempt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from holdfast import (
    BadArguments,
    Breaker,
    CallNext,
    Context,
    Holdfast,
    LeaseLost,
    Permanent,
    Retry,
    RetryAfter,
    Snooze,
    State,
    StoreUnavailable,
    WrongState,
)
from holdfast.stores.protocol import Claim
from tests.support.completing import (
    ALIKE,
    LEASE_SECONDS,
    ONLY_POSTGRES,
    WAYS,
    Pay,
    Stage,
    pay_asyncpg,
    pay_own,
    run,
    staged,
    table,
)
from tests.support.fast_forward import fast_forward, fast_forwarding
from tests.support.processes import WAIT_SECONDS, wait_until
from tests.support.proxy import Proxy
from tests.support.running import QUICK, execute, seen_events, signal, working

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
POSTGRES = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
BROKE = RuntimeError("not enough money")
every_way = pytest.mark.parametrize(
    ("store_url", "pay"),
    WAYS,
    indirect=["store_url"],
    ids=[f"{pay.__name__[4:]} {store}" for store, pay in WAYS],
)


@dataclass
class InDebt:
    """Fails where a handler that pays completes."""

    ctx: Context
    error: BaseException = BROKE

    @property
    def job_id(self) -> UUID:
        return self.ctx.job_id

    def completing(self, connection: Any = None) -> Any:
        return self.ctx.failing(self.error, connection)

    def completing_sync(self, connection: Any = None) -> Any:
        return self.ctx.failing_sync(self.error, connection)


async def fail(pay: Pay, stage: Stage, url: str | None = None) -> None:
    debtor: Any = InDebt(stage.ctx)
    await run(pay, debtor, url or stage.url)


@pytest.fixture
async def stage(store_url: str) -> AsyncIterator[Stage]:
    async with staged(store_url) as stage:
        yield stage


@pytest.fixture
async def shop(store_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(store_url, **QUICK) as hf:
        await execute(store_url, f"CREATE TABLE {table(store_url)} (job text PRIMARY KEY)")
        yield hf


async def payments(hf: Holdfast) -> list[str]:
    async with hf.transaction(read_only=True) as connection:
        return [row["job"] for row in await connection.fetch("SELECT job FROM payments")]


async def note(connection: Any, text: str) -> None:
    await connection.execute("INSERT INTO payments VALUES ($1)", text)


@every_way
async def test_what_a_block_writes_is_committed_with_the_failure(stage: Stage, pay: Pay) -> None:
    await fail(pay, stage)
    now = await stage.now()
    assert (now.state, now.error_code, now.error_text) == (
        State.QUEUED,
        "RuntimeError",
        "not enough money",
    )
    assert now.fence == stage.job.fence + 1
    assert await stage.payments() == [str(stage.job.id)]
    (attempt,) = await stage.hf.jobs.attempts(stage.job.id)
    assert (attempt.fence, attempt.outcome) == (stage.job.fence, "failed")


@every_way
async def test_a_block_of_a_lost_lease_writes_nothing(stage: Stage, pay: Pay) -> None:
    await stage.hf.jobs.cancel(stage.job.id)
    with pytest.raises(LeaseLost):
        await fail(pay, stage)
    assert (await stage.now()).state is State.CANCELED
    assert await stage.payments() == []
    assert not stage.ctx._settles_itself


@every_way
async def test_an_error_of_the_block_writes_nothing(stage: Stage, pay: Pay) -> None:
    await execute(stage.url, f"INSERT INTO {table(stage.url)} VALUES ('{stage.job.id}')")
    with pytest.raises(Exception, match=r"(?i)unique"):
        await fail(pay, stage)
    assert (await stage.now()).state is State.RUNNING
    assert (await stage.now()).fence == stage.job.fence
    assert stage.ctx._completed is None


@POSTGRES
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("pay", [*ALIKE, *ONLY_POSTGRES], ids=lambda pay: pay.__name__[4:])
async def test_a_commit_whose_answer_is_lost_is_known_by_the_attempt_that_it_kept(
    store_url: str, pay: Pay, before: bool
) -> None:
    parts = urlsplit(store_url)
    assert parts.port is not None
    with Proxy(parts.port) as proxy:
        through = proxy.url(parts.path[1:])
        async with staged(store_url, through) as stage:
            cut = proxy.cut_at_commit(b"payments", before=before)
            if before:
                with pytest.raises(StoreUnavailable, match="nothing was written"):
                    await fail(pay, stage, through)
            else:
                await fail(pay, stage, through)
            assert cut.done.is_set()
            assert (await stage.now()).state is (State.RUNNING if before else State.QUEUED)
            assert await stage.payments() == ([] if before else [str(stage.job.id)])
            assert (stage.ctx._completed is None) is before


@POSTGRES
@pytest.mark.parametrize("ours", [True, False], ids=["committed", "reclaimed"])
async def test_a_lost_answer_is_told_from_a_reclaim_although_the_job_runs_again(
    store_url: str, ours: bool
) -> None:
    """After both, the job may be queued or running, with a higher fence."""
    parts = urlsplit(store_url)
    assert parts.port is not None
    with Proxy(parts.port) as way, Proxy(parts.port) as other_way:
        database = parts.path[1:]
        async with staged(store_url, other_way.url(database)) as stage:
            held = way.hold_at_commit(b"payments", before=not ours)
            failing = asyncio.create_task(fail(pay_asyncpg, stage, way.url(database)))
            await wait_until(held.done.is_set, "committing")
            other_way.switch(1)  # nobody's port
            way.cut()
            await wait_until(lambda: other_way.refused > 1, "asked in vain")
            store = await stage.hf._store()
            if not ours:
                await store.reclaim(1, dead_worker="test", reason="was killed")
            await store.retry(stage.job.id)
            (again,) = await store.claim(Claim("other", 1, LEASE_SECONDS, ["pay"]))
            other_way.switch(parts.port)
            if ours:
                await asyncio.wait_for(failing, WAIT_SECONDS)
            else:
                with pytest.raises(LeaseLost):
                    await asyncio.wait_for(failing, WAIT_SECONDS)
            assert again.fence > stage.job.fence + 1
            assert await stage.payments() == ([str(stage.job.id)] if ours else [])


@BOTH
async def test_an_attempt_ends_once(stage: Stage) -> None:
    async with stage.ctx.failing(BROKE):
        for another in (stage.ctx.failing(BROKE), stage.ctx.completing()):
            with pytest.raises(WrongState, match="already has an open block"):
                await another.__aenter__()
    for another in (stage.ctx.failing(BROKE), stage.ctx.completing()):
        with pytest.raises(WrongState, match="has already failed in a block"):
            await another.__aenter__()
    assert (await stage.now()).fence == stage.job.fence + 1


@BOTH
async def test_a_completed_attempt_can_not_fail(stage: Stage) -> None:
    await pay_own(stage.ctx, stage.url)
    block = stage.ctx.failing(BROKE)
    with pytest.raises(WrongState, match="has already been completed"):
        await block.__aenter__()
    assert (await stage.now()).state is State.SUCCEEDED


@BOTH
async def test_a_block_that_failed_can_be_followed_by_one_that_says_so(stage: Stage) -> None:
    async def complete() -> None:
        async with stage.ctx.completing() as connection:
            await note(connection, "paid")
            raise BROKE

    with pytest.raises(RuntimeError, match="not enough money"):
        await complete()
    async with stage.ctx.failing(BROKE) as connection:
        await note(connection, "owed")
    assert await stage.payments() == ["owed"]
    assert (await stage.now()).state is State.QUEUED


@BOTH
async def test_a_block_that_ends_its_transaction_itself_fails_no_attempt(stage: Stage) -> None:
    async def commit() -> None:
        async with stage.ctx.failing(BROKE) as connection:
            await note(connection, "kept")
            await connection.execute("COMMIT")

    with pytest.raises(BadArguments, match="inside the block ended its transaction"):
        await commit()
    assert (await stage.now()).state is State.RUNNING
    assert await stage.payments() == ["kept"]


@BOTH
@pytest.mark.parametrize("given", [None, "not enough money", RuntimeError])
async def test_a_block_needs_an_exception(stage: Stage, given: Any) -> None:
    for method in (stage.ctx.failing, stage.ctx.failing_sync, stage.ctx.judge):
        with pytest.raises(BadArguments, match=f"pass the exception .* not {given!r}"):
            method(given)
    assert (await stage.now()).state is State.RUNNING


@BOTH
@pytest.mark.parametrize("way", ["completing", "failing"])
@pytest.mark.parametrize("is_async", [True, False], ids=["on the loop", "in a thread"])
async def test_a_block_that_cancels_its_own_job_is_an_error_of_the_handler(
    shop: Holdfast, way: str, is_async: bool
) -> None:
    async def withdraw(ctx: Context) -> None:
        async with ctx.completing() if way == "completing" else ctx.failing(BROKE) as connection:
            await note(connection, "withdrawn")
            await shop.jobs.cancel(ctx.job_id, connection=connection)

    def withdraw_sync(ctx: Context) -> None:
        block = ctx.completing_sync() if way == "completing" else ctx.failing_sync(BROKE)
        with block as connection:
            connection.execute("INSERT INTO payments VALUES ($1)", "withdrawn")
            shop.jobs.cancel_sync(ctx.job_id, connection=connection)

    ship = shop.job(name="ship", retry=Retry.none)(withdraw if is_async else withdraw_sync)
    job = await ship.enqueue()
    report = await shop.run_due()
    assert (report.dead, report.lost) == (1, 0)
    now = await shop.get(job.id)
    assert (now.state, now.error_code) == (State.DEAD, "WrongState")
    assert "the block changed its own job" in (now.error_text or "")
    assert await payments(shop) == []


@BOTH
@pytest.mark.parametrize("leaves", ["raises", "returns"])
async def test_a_failure_is_reported_like_any_other(shop: Holdfast, leaves: str) -> None:
    @shop.job(retry=Retry.schedule([600.0]))
    async def ship(ctx: Context) -> str:
        error = ConnectionError("no answer")
        async with ctx.failing(error) as connection:
            await note(connection, "failed")
        if leaves == "raises":
            raise error
        return "ignored"

    async with seen_events() as seen:
        job = await ship.enqueue()
        report = await shop.run_due()
    assert (report.retried, report.succeeded, report.failed) == (1, 0, 0)
    (line,) = seen.named("retry")
    assert line.fields["error_code"] == "ConnectionError"
    assert line.fields["delay_seconds"] == pytest.approx(600, rel=0.2)
    assert seen.named("error_after_completing") == []
    now = await shop.get(job.id)
    assert (now.state, now.attempts, now.result) == (State.QUEUED, 1, None)
    assert (now.run_at - now.created_at).total_seconds() > 400
    assert await payments(shop) == ["failed"]


@BOTH
async def test_a_failure_ends_the_job_as_its_error_would(shop: Holdfast) -> None:
    said: list[Any] = []

    async def end(ctx: Context, error: BaseException) -> None:
        async with ctx.failing(error) as connection:
            said.append(ctx.judge(error))
            await note(connection, ctx.name)

    @shop.job
    async def forbidden(ctx: Context) -> None:
        await end(ctx, Permanent("no such order", code="NO_ORDER"))

    @shop.job(retry=Retry.none)
    async def last(ctx: Context) -> None:
        await end(ctx, OSError("no disk"))

    @shop.job
    async def later(ctx: Context) -> None:
        await end(ctx, RetryAfter(900))

    @shop.job
    async def sleepy(ctx: Context) -> None:
        await end(ctx, Snooze(900))

    expected = {
        forbidden: (State.FAILED, "NO_ORDER", 1),
        last: (State.DEAD, "OSError", 1),
        later: (State.QUEUED, "RETRY_AFTER", 1),
        sleepy: (State.QUEUED, None, 0),
    }
    for function, (state, code, attempts) in expected.items():
        job = await function.enqueue()
        await shop.run_due()
        now = await shop.get(job.id)
        assert (now.state, now.error_code, now.attempts) == (state, code, attempts)
        assert (said[-1].state, said[-1].code) == (state, code)
        assert (said[-1].delay_seconds >= 900) is (state is State.QUEUED)
    assert await payments(shop) == ["forbidden", "last", "later", "sleepy"]


@BOTH
async def test_what_was_judged_is_what_is_written(shop: Holdfast) -> None:
    judged: list[Any] = []

    @shop.job(retry=Retry.exponential(base=100, jitter=0.5))
    async def ship(ctx: Context) -> None:
        error = OSError("no disk")
        judged.append(ctx.judge(error))
        async with ctx.failing(error):
            judged.append(ctx.judge(error))

    async with seen_events() as seen:
        await ship.enqueue()
        await shop.run_due()
    assert judged[0] == judged[1]
    delay = (await seen.first("retry")).fields["delay_seconds"]
    assert delay == pytest.approx(judged[0].delay_seconds, abs=0.001)


@BOTH
async def test_a_handler_in_a_thread_fails_with_its_rows(shop: Holdfast) -> None:
    @shop.job(retry=Retry.none)
    def ship(ctx: Context) -> None:
        error = OSError("no disk")
        with ctx.failing_sync(error) as connection:
            connection.execute("INSERT INTO payments VALUES ($1)", ctx.judge(error).state)
        raise error

    job = await ship.enqueue()
    report = await shop.run_due()
    assert report.dead == 1
    assert (await shop.get(job.id)).state is State.DEAD
    assert await payments(shop) == ["dead"]


@BOTH
@pytest.mark.parametrize("is_async", [True, False])
async def test_middleware_fails_with_its_rows(shop: Holdfast, is_async: bool) -> None:
    @shop.middleware
    async def audit(ctx: Context, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except Exception as error:
            async with ctx.failing(error) as connection:
                await note(connection, f"{ctx.name}: {ctx.judge(error).state}")
            raise

    def fail() -> None:
        raise Permanent("no such order", code="NO_ORDER")

    async def fail_async() -> None:
        fail()

    ship = shop.job(name="ship")(fail_async if is_async else fail)
    job = await ship.enqueue()
    report = await shop.run_due()
    assert report.failed == 1
    assert (await shop.get(job.id)).error_code == "NO_ORDER"
    assert await payments(shop) == ["ship: failed"]


@BOTH
async def test_a_block_that_is_rolled_back_leaves_the_end_to_the_handler(shop: Holdfast) -> None:
    @shop.job
    async def ship(ctx: Context) -> None:
        async with ctx.failing(OSError("no disk")) as connection:
            await note(connection, "failed")
            raise Permanent("no such order", code="NO_ORDER")

    job = await ship.enqueue()
    report = await shop.run_due()
    assert report.failed == 1
    assert (await shop.get(job.id)).error_code == "NO_ORDER"
    assert await payments(shop) == []


@fast_forwarding
async def timed_out(url: str, way: str) -> None:
    async with Holdfast(url, timeout_grace_seconds=60.0, **QUICK) as hf:
        await execute(url, f"CREATE TABLE {table(url)} (job text PRIMARY KEY)")
        started = asyncio.Event()

        @hf.job(timeout_seconds=30.0, retry=Retry.none)
        async def ship(ctx: Context) -> None:
            try:
                started.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError as error:
                async with ctx.failing(error) as connection:
                    await note(connection, ctx.judge(error).code or "")
                if way == "raises":
                    raise

        job = await ship.enqueue()
        running = asyncio.create_task(hf.run_due())
        await signal(started)
        await fast_forward(30.0)
        report = await asyncio.wait_for(running, WAIT_SECONDS)
        assert report.dead == 1
        assert (await hf.get(job.id)).error_code == "TIMEOUT"
        assert await payments(hf) == ["TIMEOUT"]


@BOTH
@pytest.mark.parametrize("way", ["raises", "returns"])
def test_a_timeout_can_be_recorded_with_its_rows(store_url: str, way: str) -> None:
    timed_out(store_url, way)


@fast_forwarding
async def given_up(url: str) -> None:
    async with Holdfast(url, timeout_grace_seconds=60.0, **QUICK) as hf, seen_events() as seen:
        await execute(url, f"CREATE TABLE {table(url)} (job text PRIMARY KEY)")
        started, release = asyncio.Event(), asyncio.Event()

        @hf.job(timeout_seconds=30.0, breaker="gateway", retry=Retry.none)
        async def ship(ctx: Context) -> None:
            try:
                started.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError as error:
                await release.wait()
                async with ctx.failing(error) as connection:
                    await note(connection, "too late")

        job = await ship.enqueue()
        running = asyncio.create_task(hf.run_due())
        await signal(started)
        await fast_forward(30.0)
        await fast_forward(60.0)
        await seen.first("settle")
        release.set()
        report = await asyncio.wait_for(running, WAIT_SECONDS)
        assert (report.dead, report.lost) == (1, 0)
        assert (await hf.get(job.id)).error_code == "TIMEOUT"
        assert await payments(hf) == []
        (breaker,) = await hf.breakers.list()
        assert breaker.failures == 1


@BOTH
def test_a_handler_that_was_given_up_can_not_fail_again(store_url: str) -> None:
    given_up(store_url)


@BOTH
async def test_a_failure_counts_once_against_its_breaker(shop: Holdfast) -> None:
    @shop.job(breaker=Breaker("gateway", failures=50), retry=Retry.schedule([600.0]))
    async def ship(ctx: Context, rolls_back: int) -> None:
        error = ConnectionError("no answer")
        for again in range(rolls_back):
            try:
                async with ctx.failing(ConnectionError(f"no answer to {again}")) as connection:
                    await note(connection, "failed")
                    raise OSError("no disk")
            except OSError:
                pass
        if rolls_back != 1:
            async with ctx.failing(error) as connection:
                await note(connection, f"failed after {rolls_back}")
        raise error

    for rolls_back in (0, 1, 2):
        await ship.enqueue(rolls_back)
    report = await shop.run_due(concurrency=1)
    assert report.retried == 3
    (breaker,) = await shop.breakers.list()
    assert breaker.failures == 3
    assert await payments(shop) == ["failed after 0", "failed after 2"]


@BOTH
@pytest.mark.parametrize("rolls_back", [False, True])
async def test_a_failure_that_finds_its_breaker_open_costs_no_attempt(
    shop: Holdfast, rolls_back: bool
) -> None:
    judged: list[Any] = []

    @shop.job(breaker=Breaker("gateway"), retry=Retry.none)
    async def ship(ctx: Context) -> None:
        error = ConnectionError("no answer")
        await shop.breakers.open("gateway")  # while the job runs
        async with ctx.failing(error) as connection:
            judged.append(ctx.judge(error))
            await note(connection, "failed")
            if rolls_back:
                raise error

    job = await ship.enqueue()
    report = await shop.run_due()
    assert (report.parked, report.dead) == (1, 0)
    now = await shop.get(job.id)
    assert (now.state, now.attempts) == (State.QUEUED, 0)
    assert judged[0].state is State.QUEUED
    assert await payments(shop) == ([] if rolls_back else ["failed"])


@BOTH
async def test_a_probe_answers_with_the_error_of_its_block(shop: Holdfast) -> None:
    """It is no success that the handler returns, and only another error closes the breaker."""
    breaker = Breaker("gateway", failures=1, window_seconds=600, probe_seconds=0.05)
    errors = [*[ConnectionError("no answer")] * 3, Permanent("no such order")]

    @shop.job(breaker=breaker, retry=Retry.schedule([0.0] * 9))
    async def ship(ctx: Context) -> None:
        async with ctx.failing(errors.pop(0)):
            pass

    async with seen_events() as seen, working(shop):
        await ship.enqueue()
        closed = await seen.first("breaker_closed")
        assert errors == []
    assert closed.fields["breaker"] == "gateway"


@BOTH
async def test_a_handler_whose_job_was_canceled_can_not_fail(shop: Holdfast) -> None:
    started = asyncio.Event()
    raised: list[BaseException] = []

    @shop.job(breaker=Breaker("gateway"))
    async def ship(ctx: Context) -> None:
        try:
            started.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            try:
                async with ctx.failing(error) as connection:
                    await note(connection, "failed")
            except LeaseLost as lost:
                raised.append(lost)

    job = await ship.enqueue()
    running = asyncio.create_task(shop.run_due())
    await signal(started)
    await shop.jobs.cancel(job.id)
    report = await asyncio.wait_for(running, WAIT_SECONDS)
    assert (report.lost, report.retried, len(raised)) == (1, 0, 1)
    assert (await shop.get(job.id)).state is State.CANCELED
    assert await payments(shop) == []
    assert await shop.breakers.list() == []


@BOTH
async def test_a_block_after_the_attempt_is_a_lost_lease(shop: Holdfast) -> None:
    contexts: list[Context] = []

    @shop.job
    async def ship(ctx: Context) -> None:
        contexts.append(ctx)

    await ship.enqueue()
    await shop.run_due()
    with pytest.raises(LeaseLost):
        contexts[0].judge(OSError("no disk"))
    block = contexts[0].failing(OSError("no disk"))
    with pytest.raises(LeaseLost):
        await block.__aenter__()
