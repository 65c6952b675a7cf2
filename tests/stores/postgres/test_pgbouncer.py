"""Behind PgBouncer, of which nobody has told the engine anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from holdfast import (
    ConfigurationError,
    Context,
    Holdfast,
    JobNotFound,
    Permanent,
    Retry,
    State,
    StoreUnavailable,
)
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres import PostgresStore
from holdfast.wakeups.protocol import Wakeup
from tests.promises.stage import Stage
from tests.support.bouncer import Bouncer, bouncer_program
from tests.support.postgres import Databases, Server
from tests.support.processes import wait_until
from tests.support.running import QUICK, WAIT_SECONDS_MAX, seen_events
from tests.support.services import missing

pytestmark = pytest.mark.slow
behind_bouncer = pytest.mark.parametrize("store_url", ["bouncer"], indirect=True)
SESSION = """
SELECT pg_backend_pid() AS process, current_setting('jit') AS jit,
    current_setting('plan_cache_mode') AS plan_cache_mode,
    (SELECT count(*) FROM pg_prepared_statements) AS statements,
    (SELECT count(*) FROM pg_listening_channels()) AS channels
"""


class Shop:
    """A job that pays through its completing transaction, and what was paid."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.hf = Holdfast(url, **QUICK)
        self.pay = self.hf.job(retry=Retry.none())(self._pay)

    async def _pay(self, ctx: Context, amount: int) -> None:
        async with ctx.completing() as connection:
            await connection.execute("INSERT INTO public.payments VALUES ($1)", amount)
            if amount < 0:
                raise Permanent("no such amount")

    async def set_up(self) -> None:
        async with self.hf.transaction() as connection:
            await connection.execute("CREATE TABLE public.payments (amount int)")

    async def paid(self) -> list[int]:
        async with self.hf.transaction(read_only=True) as connection:
            rows = await connection.fetch("SELECT amount FROM public.payments ORDER BY amount")
            return [amount for (amount,) in rows]


@pytest.fixture
async def shop(store_url: str) -> AsyncIterator[Shop]:
    shop = Shop(store_url)
    await shop.set_up()
    yield shop
    await shop.hf.close()


@pytest.fixture
async def stage(store_url: str, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(store_url, tmp_path)
    yield stage
    await stage.close()


async def sessions(url: str, count: int) -> dict[int, asyncpg.Record]:
    """What so many sessions of the server are like, by their processes."""
    found = {}
    async with AsyncExitStack() as stack:
        for _ in range(count):
            connection = await asyncpg.connect(url, statement_cache_size=0)
            stack.push_async_callback(connection.close)
            # All at the same time, so that they can't be one and the same.
            await stack.enter_async_context(connection.transaction())
            row = await connection.fetchrow(SESSION)
            found[row["process"]] = row
    return found


@behind_bouncer
async def test_nothing_is_left_in_sessions_that_others_use(shop: Shop) -> None:
    used = await sessions(shop.url, 4)
    async with seen_events() as seen:
        await shop.hf.enqueue_many([shop.pay.call(number) for number in range(30)])
        await shop.hf.run_worker(until_empty=True)
        assert len(seen.named("listen_unavailable")) == 1
    await shop.hf.jobs.counts()
    assert await shop.paid() == list(range(30))
    left = await sessions(shop.url, 6)
    # Or nothing was proven about them. PgBouncer closes a session that is idle for too long, or
    # whose client leaves in the middle of a transaction.
    assert len(set(used) & set(left)) >= 2
    states = {
        (row["jit"], row["plan_cache_mode"], row["statements"], row["channels"])
        for row in left.values()
    }
    assert states == {("on", "auto", 0, 0)}


@behind_bouncer
async def test_the_engines_statements_have_its_settings(store_url: str) -> None:
    """Though no session keeps them: plans don't depend on values, and are not compiled."""
    store = PostgresStore(store_url, Seam())

    async def look(connection: Any) -> tuple[str, str, int]:
        row = await connection.fetchrow(SESSION)
        compiled_from = await connection.fetchval("SHOW jit_above_cost")
        return compiled_from, row["plan_cache_mode"], row["statements"]

    try:
        looks = await asyncio.gather(*(store._connections.run(look) for _ in range(8)))
    finally:
        await store.close()
    assert set(looks) == {("-1", "force_generic_plan", 0)}


@behind_bouncer
async def test_completing_and_transactions_commit_as_a_whole_or_not_at_all(shop: Shop) -> None:
    good, bad = await shop.pay.enqueue(1), await shop.pay.enqueue(-1)
    undone = []
    with suppress(ZeroDivisionError):
        async with shop.hf.transaction() as connection:
            await connection.execute("INSERT INTO public.payments VALUES ($1)", 2)
            undone.append(await shop.pay.options(connection=connection).enqueue(3))
            raise ZeroDivisionError
    async with shop.hf.transaction() as connection:
        await connection.execute("INSERT INTO public.payments VALUES ($1)", 4)
        chosen = await shop.pay.options(connection=connection).enqueue(5)
    await shop.hf.run_worker(until_empty=True)
    states = [(await shop.hf.get(job.id)).state for job in (good, bad, chosen)]
    assert states == [State.SUCCEEDED, State.FAILED, State.SUCCEEDED]
    assert await shop.paid() == [1, 4, 5]
    with pytest.raises(JobNotFound):
        await shop.hf.get(undone[0].id)


@behind_bouncer
async def test_jobs_are_enqueued_in_the_callers_transaction(shop: Shop) -> None:
    """By drivers that were told to prepare nothing."""
    ours = await asyncpg.connect(shop.url, statement_cache_size=0)
    async with ours.transaction():
        first = await shop.pay.options(connection=ours).enqueue(1)
    await ours.close()
    async with await psycopg.AsyncConnection.connect(shop.url, prepare_threshold=None) as theirs:
        second = await shop.pay.options(connection=theirs).enqueue(2)
        await theirs.rollback()
        third = await shop.pay.options(connection=theirs).enqueue(3)
    await shop.hf.run_worker(until_empty=True)
    assert await shop.paid() == [1, 3]
    assert (await shop.hf.get(first.id)).state is (await shop.hf.get(third.id)).state
    with pytest.raises(JobNotFound):
        await shop.hf.get(second.id)


@pytest.fixture
def empty_url(postgres_databases: Callable[[str], Databases]) -> Iterator[str]:
    through, databases = postgres_databases("bouncer"), postgres_databases("pg15")
    name = databases.create()
    yield through.url(name)
    databases.drop(name)


async def test_several_migrate_at_once(empty_url: str) -> None:
    apps = [Holdfast(empty_url) for _ in range(3)]
    try:
        done = await asyncio.gather(*(app.migrate() for app in apps))
        steps = [step for taken in done for step in taken]
        assert len(steps) == len(set(steps)) > 0
        assert await apps[0].migrate() == []
    finally:
        for app in apps:
            await app.close()


@behind_bouncer
async def test_a_worker_says_once_that_it_can_only_poll_and_runs_new_jobs(stage: Stage) -> None:
    worker = stage.worker()
    await worker.logs("listen_unavailable")
    for number in range(3):
        job = await stage.jobs.quick.enqueue(number)
        assert await stage.hf.result(job.id, timeout_seconds=WAIT_SECONDS_MAX) == number
    assert len(worker.events("listen_unavailable")) == 1


@behind_bouncer
async def test_prepared_statements_that_were_asked_for_fail_with_what_to_do(store_url: str) -> None:
    store = PostgresStore(f"{store_url}?statement_cache_size=100", Seam())

    async def use() -> None:
        for _ in range(10):
            await store.counts()

    await sessions(store_url, 3)  # so many serve in turn from now on
    try:
        with pytest.raises(ConfigurationError, match="Remove statement_cache_size from the URL"):
            await use()
    finally:
        await store.close()


@pytest.fixture
def own_bouncer(own_postgres: Server) -> Iterator[Callable[..., Bouncer]]:
    made: list[Bouncer] = []

    def make(**settings: str) -> Bouncer:
        program = bouncer_program() or missing("PgBouncer is not installed")
        made.append(Bouncer(program, own_postgres, **settings))
        made[-1].start()
        return made[-1]

    yield make
    for bouncer in made:
        bouncer.remove()


async def test_a_pooler_in_session_mode_delivers_wake_ups(
    own_bouncer: Callable[..., Bouncer],
) -> None:
    store = PostgresStore(own_bouncer(pool_mode="session").url("postgres"), Seam())
    heard: asyncio.Queue[Wakeup] = asyncio.Queue()
    try:
        await store.migrate()
        listener = await store.listen(heard.put_nowait)
        assert listener is not None
        await store._notify("q:mail")
        assert await asyncio.wait_for(heard.get(), WAIT_SECONDS_MAX) == Wakeup(queue="mail")
        await listener.close()
    finally:
        await store.close()


async def answers(hf: Holdfast) -> bool:
    try:
        await hf.jobs.counts()
    except StoreUnavailable:
        return False
    return True


async def test_a_restart_of_postgresql_behind_the_pooler_is_survived(
    own_postgres: Server, own_bouncer: Callable[..., Bouncer], tmp_path: Path
) -> None:
    stage = Stage(own_bouncer().url("postgres"), tmp_path)
    try:
        await stage.hf.migrate()
        worker = stage.worker()
        before = await stage.jobs.gated.enqueue("go")
        await stage.noted("start", before.id)
        own_postgres.restart()
        stage.open_gate("go")
        await wait_until(lambda: answers(stage.hf), "reached again")
        (ended,) = await stage.ended(before)
        assert (ended.state, ended.attempts) == (State.SUCCEEDED, 1)
        after = await stage.jobs.quick.enqueue(1)
        await stage.ended(after)
        assert worker.code is None
    finally:
        await stage.close()
