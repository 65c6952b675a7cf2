"""`hf.after_commit`: functions that run once, after the commit of a block, and never without it."""

from __future__ import annotations

import asyncio
import signal as signals
import sqlite3
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connections

from holdfast import (
    BadArguments,
    Context,
    Holdfast,
    LeaseLost,
    Retry,
    State,
    StoreUnavailable,
    WrongState,
)
from holdfast.domain.limits import AFTER_COMMIT_SECONDS_MAX
from holdfast.transactions.hooks import hooks_of
from tests.support import django_settings
from tests.support.completing import Stage, staged
from tests.support.fast_forward import fast_forward, fast_forwarding
from tests.support.processes import WAIT_SECONDS, wait_until
from tests.support.proxy import Proxy
from tests.support.running import QUICK, seen_events, signal, working

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
POSTGRES = pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
BLOCKS = pytest.mark.parametrize("kind", ["transaction", "completing", "failing"])
BROKE = RuntimeError("not enough money")


@pytest.fixture
async def stage(store_url: str) -> AsyncIterator[Stage]:
    async with staged(store_url) as stage:
        yield stage


def opened(stage: Stage, kind: str) -> Any:
    if kind == "transaction":
        return stage.hf.transaction()
    return stage.ctx.completing() if kind == "completing" else stage.ctx.failing(BROKE)


async def pay(connection: Any, text: str = "paid") -> None:
    await connection.execute("INSERT INTO payments VALUES ($1)", text)


@BOTH
@BLOCKS
async def test_functions_run_once_in_order_and_see_the_commit(stage: Stage, kind: str) -> None:
    done: list[Any] = []

    async def read() -> None:
        done.append(await stage.payments())

    async with opened(stage, kind) as connection:
        stage.hf.after_commit(connection, lambda: done.append("first"))
        stage.hf.after_commit(connection, read)
        await pay(connection)
        stage.hf.after_commit(connection, lambda: done.append("last"))
        assert done == []
    assert done == ["first", ["paid"], "last"]


@BOTH
@BLOCKS
async def test_a_function_can_use_the_database_itself(stage: Stage, kind: str) -> None:
    """It does not wait for the block's own connection or lock."""

    async def write() -> None:
        async with stage.hf.transaction() as connection:
            await pay(connection, "by the function")

    async with opened(stage, kind) as connection:
        stage.hf.after_commit(connection, write)
    assert await stage.payments() == ["by the function"]


@BOTH
@BLOCKS
@pytest.mark.parametrize("error", [ZeroDivisionError, asyncio.CancelledError])
async def test_nothing_runs_after_a_rollback(
    stage: Stage, kind: str, error: type[BaseException]
) -> None:
    done: list[str] = []

    async def fail() -> None:
        async with opened(stage, kind) as connection:
            stage.hf.after_commit(connection, lambda: done.append("never"))
            await pay(connection)
            raise error

    with pytest.raises(error):
        await fail()
    async with opened(stage, kind) as connection:
        stage.hf.after_commit(connection, lambda: done.append("of the next block"))
    assert done == ["of the next block"]
    assert await stage.payments() == []


@BOTH
async def test_nothing_runs_after_a_lost_lease(stage: Stage) -> None:
    done: list[str] = []

    async def complete() -> None:
        async with stage.ctx.completing() as connection:
            stage.hf.after_commit(connection, lambda: done.append("never"))

    await stage.hf.jobs.cancel(stage.job.id)
    with pytest.raises(LeaseLost):
        await complete()
    assert done == []


@BOTH
@BLOCKS
async def test_a_function_that_fails_is_logged_and_harms_nothing(stage: Stage, kind: str) -> None:
    done: list[str] = []

    def exit_process() -> None:
        raise SystemExit(1)

    async def fail_later() -> None:
        await asyncio.sleep(0)
        raise KeyError("nobody's")

    async def give_up() -> None:
        raise asyncio.CancelledError

    async with seen_events() as seen:
        async with opened(stage, kind) as connection:
            await pay(connection)
            for function in (exit_process, fail_later, give_up, lambda: done.append("ran")):
                stage.hf.after_commit(connection, function)
        assert done == ["ran"]
        codes = [event.fields["error_code"] for event in seen.named("after_commit_failed")]
    assert codes == ["SystemExit", "KeyError", "CancelledError"]
    assert "exit_process failed after the commit" in seen.named("after_commit_failed")[0].message
    assert await stage.payments() == ["paid"]


@BOTH
def test_a_function_that_hangs_is_left_behind(store_url: str) -> None:
    hang(store_url)


@fast_forwarding
async def hang(url: str) -> None:
    started, release = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def stubborn() -> None:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                done.append("asked to stop")

    async with staged(url) as stage, seen_events() as seen:

        async def complete() -> None:
            async with stage.ctx.completing() as connection:
                stage.hf.after_commit(connection, stubborn)
                stage.hf.after_commit(connection, lambda: done.append("next"))

        completing = asyncio.create_task(complete())
        await signal(started)
        await fast_forward(AFTER_COMMIT_SECONDS_MAX)
        await asyncio.wait_for(completing, WAIT_SECONDS)
        assert sorted(done) == ["asked to stop", "next"]
        (line,) = seen.named("after_commit_failed")
        assert line.fields["error_code"] == "TimeoutError"
        assert (await stage.now()).state is State.SUCCEEDED
        release.set()


@BOTH
@BLOCKS
async def test_a_cancellation_after_the_commit_cuts_no_function_short(
    stage: Stage, kind: str
) -> None:
    started, release = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    async def slow() -> None:
        started.set()
        await release.wait()
        done.append("slow")

    async def work() -> None:
        async with opened(stage, kind) as connection:
            stage.hf.after_commit(connection, slow)
            stage.hf.after_commit(connection, lambda: done.append("next"))

    working = asyncio.create_task(work())
    await signal(started)
    working.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(working, WAIT_SECONDS)
    assert done == ["slow", "next"]


@POSTGRES
@BLOCKS
async def test_a_cancellation_during_the_commit_keeps_the_functions(
    store_url: str, kind: str
) -> None:
    parts = urlsplit(store_url)
    assert parts.port is not None
    with Proxy(parts.port) as proxy:
        async with (
            staged(store_url, proxy.url(parts.path[1:])) as stage,
            Holdfast(proxy.url(parts.path[1:]), **QUICK) as through,
        ):
            done: list[str] = []
            stage.hf = through
            held = proxy.hold_at_commit(b"payments", before=False)

            async def work() -> None:
                async with opened(stage, kind) as connection:
                    await pay(connection)
                    through.after_commit(connection, lambda: done.append("ran"))

            working = asyncio.create_task(work())
            await wait_until(held.done.is_set, "committed, and not answered")
            working.cancel()
            proxy.let_go(held)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(working, WAIT_SECONDS)
            assert done == ["ran"]


@POSTGRES
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("kind", ["completing", "failing"])
async def test_a_commit_whose_answer_is_lost_runs_them_if_it_happened(
    store_url: str, kind: str, before: bool
) -> None:
    parts = urlsplit(store_url)
    assert parts.port is not None
    with Proxy(parts.port) as proxy:
        async with staged(store_url, proxy.url(parts.path[1:])) as stage:
            done: list[str] = []
            proxy.cut_at_commit(b"payments", before=before)

            async def work() -> None:
                async with opened(stage, kind) as connection:
                    await pay(connection)
                    stage.hf.after_commit(connection, lambda: done.append("ran"))

            if before:
                with pytest.raises(StoreUnavailable, match="nothing was written"):
                    await work()
            else:
                await work()
            assert done == ([] if before else ["ran"])


@BOTH
@pytest.mark.parametrize("kind", ["completing", "failing"])
async def test_in_a_thread_plain_functions_run_there_and_async_ones_on_the_loop(
    stage: Stage, kind: str
) -> None:
    done: list[tuple[str, Any]] = []
    loop = asyncio.get_running_loop()

    async def read() -> None:
        done.append(("async", asyncio.get_running_loop() is loop))

    def work() -> None:
        here = threading.get_ident()
        ctx = stage.ctx
        block = ctx.completing_sync() if kind == "completing" else ctx.failing_sync(BROKE)
        with block as connection:
            connection.execute("INSERT INTO payments VALUES ('paid')")
            stage.hf.after_commit(
                connection, lambda: done.append(("plain", threading.get_ident() == here))
            )
            stage.hf.after_commit(connection, read)
        assert len(done) == 2

    await asyncio.to_thread(work)
    assert done == [("plain", True), ("async", True)]


@BOTH
async def test_a_transaction_without_a_loop_runs_them_in_its_thread(store_url: str) -> None:
    done: list[Any] = []
    hf = Holdfast(store_url, **QUICK)

    @hf.job
    async def tell() -> None: ...

    def work() -> None:
        with hf.transaction_sync() as connection:
            # A function that waits for the loop would block it, if it ran there.
            hf.after_commit(connection, lambda: done.append(tell.enqueue_sync().state))
        with pytest.raises(ZeroDivisionError):
            fail()
        hf.close_sync()

    def fail() -> None:
        with hf.transaction_sync() as connection:
            hf.after_commit(connection, lambda: done.append("never"))
            raise ZeroDivisionError

    await asyncio.to_thread(work)
    assert done == [State.QUEUED]


@BOTH
def test_ctrl_c_in_a_function_is_raised_after_the_others(store_url: str) -> None:
    done: list[str] = []
    hf = Holdfast(store_url, **QUICK)

    def interrupt() -> None:
        raise KeyboardInterrupt

    async def wait_for_ctrl_c() -> None:
        main = threading.main_thread().ident
        assert main is not None
        signals.pthread_kill(main, signals.SIGINT)
        await asyncio.Event().wait()

    def work(function: Any) -> None:
        with hf.transaction_sync() as connection:
            hf.after_commit(connection, function)
            hf.after_commit(connection, lambda: done.append("next"))

    for function in (interrupt, wait_for_ctrl_c):
        with pytest.raises(KeyboardInterrupt):
            work(function)
    hf.close_sync()
    assert done == ["next", "next"]


@POSTGRES
def test_ctrl_c_during_the_commit_keeps_the_functions(store_url: str) -> None:
    parts = urlsplit(store_url)
    assert parts.port is not None
    done: list[str] = []
    interrupted = threading.Event()

    def interrupt(number: int, frame: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    with Proxy(parts.port) as proxy:
        hf = Holdfast(proxy.url(parts.path[1:]), **QUICK)
        held = proxy.hold_at_commit(b"payments", before=False)

        def press_ctrl_c() -> None:
            assert held.done.wait(WAIT_SECONDS)
            main = threading.main_thread().ident
            assert main is not None
            signals.pthread_kill(main, signals.SIGINT)
            interrupted.wait(WAIT_SECONDS)
            proxy.let_go(held)

        def work() -> None:
            with hf.transaction_sync() as connection:
                connection.execute("CREATE TABLE holdfast.payments (text text)")
                hf.after_commit(connection, lambda: done.append("ran"))

        before = signals.signal(signals.SIGINT, interrupt)
        presser = threading.Thread(target=press_ctrl_c)
        presser.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                work()
        finally:
            signals.signal(signals.SIGINT, before)
            presser.join()
        hf.close_sync()
    assert done == ["ran"]


@BOTH
async def test_what_is_not_a_function_is_refused_immediately(stage: Stage) -> None:
    async def tell() -> None: ...

    called: Coroutine[Any, Any, None] = tell()
    wrong: Any
    async with stage.hf.transaction() as connection:
        for wrong in (None, called):
            with pytest.raises(BadArguments, match="pass the function, not its result"):
                stage.hf.after_commit(connection, wrong)
    called.close()


@BOTH
async def test_a_connection_that_was_passed_in_has_them_too(stage: Stage) -> None:
    done: list[str] = []

    def work() -> None:
        is_sqlite = stage.url.startswith("sqlite")
        connection: Any = (
            sqlite3.connect(stage.url.removeprefix("sqlite:///"))
            if is_sqlite
            else psycopg.connect(stage.url)
        )
        with closing(connection):
            with stage.ctx.completing_sync(connection=connection):
                stage.hf.after_commit(connection, lambda: done.append("ran"))
            with pytest.raises(WrongState, match="no open block"):
                stage.hf.after_commit(connection, lambda: done.append("never"))

    await asyncio.to_thread(work)
    assert done == ["ran"]


@BOTH
async def test_what_stands_for_another_connection_in_each_thread_is_not_mixed_up(
    stage: Stage,
) -> None:
    """Django's `connection` is one object for all threads."""
    done: list[str] = []

    def work() -> None:
        from django.db import connection

        with django_settings.database(stage.url), connections["jobs"].cursor():
            proxy = type(connection)(connections, "jobs")
            assert elsewhere(proxy)
            with stage.ctx.completing_sync(connection=proxy):
                assert elsewhere(proxy)
                stage.hf.after_commit(proxy, lambda: done.append("by proxy"))
                stage.hf.after_commit(connections["jobs"], lambda: done.append("by itself"))

    def elsewhere(proxy: Any) -> bool:
        found: list[bool] = []
        thread = threading.Thread(target=lambda: found.append(hooks_of(proxy) is None))
        thread.start()
        thread.join()
        return found == [True]

    await asyncio.to_thread(work)
    assert done == ["by proxy", "by itself"]


@BOTH
async def test_a_connection_without_a_block_is_told_what_to_do(stage: Stage) -> None:
    with pytest.raises(WrongState, match=r"inside hf\.transaction\(\).* with the connection of"):
        stage.hf.after_commit(object(), print)
    async with stage.hf.transaction() as connection:
        pass
    with pytest.raises(WrongState, match="no open block"):
        stage.hf.after_commit(connection, print)


@BOTH
async def test_a_job_that_was_enqueued_in_a_block_wakes_a_worker_at_its_commit(
    store_url: str,
) -> None:
    """Long before the worker would look by itself."""
    hf = Holdfast(store_url, **{**QUICK, "poll_seconds": 600.0})
    async with hf, seen_events() as seen:
        ran = asyncio.Event()

        @hf.job
        async def start(ctx: Context) -> None:
            async with ctx.completing() as connection:
                await follow.options(connection=connection).enqueue()

        @hf.job(retry=Retry.schedule([0.0]))
        async def follow(ctx: Context) -> None:
            if ctx.attempt == 1:
                async with ctx.failing(BROKE):
                    pass
            else:
                ran.set()

        @hf.job
        async def be_first() -> None: ...

        async with working(hf):
            await be_first.enqueue()
            await seen.first("settle")
            async with hf.transaction() as connection:
                await start.options(connection=connection).enqueue()
            await signal(ran)
