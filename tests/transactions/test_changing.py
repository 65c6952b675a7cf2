"""Cancel, retry and requeue in a transaction of the caller's, with every driver that is known."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from typing import Any
from uuid import UUID, uuid4

import pytest

from holdfast import (
    AlreadyRequeued,
    BadArguments,
    Context,
    Holdfast,
    JobNotFound,
    State,
    StoreRefused,
    WrongState,
)
from tests.support.processes import WAIT_SECONDS
from tests.support.running import QUICK, signal, working
from tests.transactions.test_drivers import EVERYTHING, Client, Undone

BOTH = pytest.mark.parametrize("store_url", ["sqlite", "pg15"], indirect=True)
every_driver = pytest.mark.parametrize(
    ("store_url", "opened", "is_sync"),
    [(store, opened, is_sync) for store, _, opened, is_sync in EVERYTHING],
    indirect=["store_url"],
    ids=[f"{store} {name}" for store, name, _, _ in EVERYTHING],
)


class Shop(Client):
    """A job that waits, and one that has ended."""

    waiting: UUID
    ended: UUID

    async def fill(self) -> None:
        self.ended = (await self.resize.enqueue("ended")).id
        await self.hf.run_due()
        self.waiting = (await self.resize.options(delay_seconds=3600).enqueue("waiting")).id

    def change(self, method: str, job_id: UUID, **options: Any) -> Callable[[Any], Any]:
        change = getattr(self.hf.jobs, f"{method}_sync" if self._is_sync else method)
        return lambda connection: change(job_id, connection=connection, **options)


@pytest.fixture
async def shop(store_url: str, opened: Any, is_sync: bool) -> AsyncIterator[Shop]:
    async with Holdfast(store_url, **QUICK) as hf:
        shop = Shop(hf, store_url, opened, is_sync)
        await shop.fill()
        yield shop


@pytest.fixture
async def images(store_url: str) -> AsyncIterator[Shop]:
    """The same, to be used with Holdfast's own blocks."""
    async with Holdfast(store_url, **QUICK) as hf:
        shop = Shop(hf, store_url, lambda url: hf.transaction(), False)
        await shop.fill()
        yield shop


@every_driver
async def test_changes_are_committed_together(shop: Shop) -> None:
    retried, requeued, again, canceled = await shop.transact(
        shop.change("retry", shop.waiting),
        shop.change("requeue", shop.ended, arguments={"image": "new"}),
        shop.change("retry", shop.ended),
        shop.change("cancel", shop.waiting, by="ann"),
    )
    assert (retried.id, retried.state) == (shop.waiting, State.QUEUED)
    assert (retried.run_at - retried.created_at).total_seconds() < 600
    assert (requeued.state, requeued.requeued_from) == (State.QUEUED, shop.ended)
    assert requeued.arguments["image"] == "new"
    assert again.arguments["image"] == "ended"
    assert (canceled.state, canceled.error_text) == (State.CANCELED, "canceled by ann")
    assert (await shop.hf.get(shop.waiting)).state is State.CANCELED
    assert (await shop.hf.get(requeued.id)).state is State.QUEUED
    assert await shop.hf.jobs.requeued_as(shop.ended) == again.id


@every_driver
async def test_a_rollback_takes_all_changes_back(shop: Shop) -> None:
    before = await shop.hf.get(shop.waiting)
    with pytest.raises(Undone):
        await shop.transact(
            shop.change("retry", shop.waiting),
            shop.change("requeue", shop.ended),
            shop.change("cancel", shop.waiting),
            shop.fail,
        )
    assert await shop.hf.get(shop.waiting) == before
    assert await shop.hf.jobs.requeued_as(shop.ended) is None
    assert await shop.ids() == {shop.waiting, shop.ended}


@every_driver
async def test_a_transaction_goes_on_after_what_was_refused(shop: Shop) -> None:
    _, _, _, _, _, canceled = await shop.transact(
        shop.refused(shop.change("cancel", uuid4()), JobNotFound),
        shop.refused(shop.change("cancel", shop.ended), WrongState),
        shop.refused(shop.change("requeue", shop.waiting), WrongState),
        shop.change("requeue", shop.ended),
        shop.refused(shop.change("requeue", shop.ended, again=False), AlreadyRequeued),
        shop.change("cancel", shop.waiting),
    )
    assert (await shop.hf.get(shop.waiting)).state is State.CANCELED
    assert canceled.id == shop.waiting


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_a_change_that_the_database_refuses_leaves_nothing_behind(images: Shop) -> None:
    """On PostgreSQL, a transaction with an error can't be committed."""
    async with images.hf.transaction() as connection:
        await connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON requeues BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    async with images.hf.transaction() as connection:
        with pytest.raises(StoreRefused, match="no"):
            await images.hf.jobs.requeue(images.ended, connection=connection)
    assert await images.ids() == {images.waiting, images.ended}


@BOTH
async def test_a_change_in_a_block_is_made_at_its_commit(images: Shop) -> None:
    async with images.hf.transaction() as connection:
        await images.hf.jobs.cancel(images.waiting, connection=connection)
        assert (await images.hf.get(images.waiting)).state is State.QUEUED
    assert (await images.hf.get(images.waiting)).state is State.CANCELED


@BOTH
async def test_a_handler_cancels_a_job_with_its_own_success(images: Shop) -> None:
    @images.hf.job
    async def deliver(ctx: Context, guard: UUID) -> None:
        async with ctx.completing() as connection:
            await images.hf.jobs.cancel(guard, connection=connection)

    job = await deliver.enqueue(images.waiting)
    await images.hf.run_due()
    assert (await images.hf.get(job.id)).state is State.SUCCEEDED
    assert (await images.hf.get(images.waiting)).state is State.CANCELED


@BOTH
async def test_changes_wake_workers_at_the_commit(store_url: str) -> None:
    """Long before a worker would look by itself, or renew its leases."""
    hf = Holdfast(store_url, **{**QUICK, "poll_seconds": 600.0, "lease_seconds": 600.0})
    async with hf:
        started, stopped, ran = asyncio.Event(), asyncio.Event(), asyncio.Event()

        @hf.job
        async def wait() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        @hf.job
        async def run() -> None:
            ran.set()

        async with working(hf):
            later = await run.options(delay_seconds=3600).enqueue()
            job = await wait.enqueue()
            await signal(started)
            async with hf.transaction() as connection:
                await hf.jobs.cancel(job.id, connection=connection)
                await hf.jobs.retry(later.id, connection=connection)
            await signal(stopped)
            await hf.result(later.id, timeout_seconds=WAIT_SECONDS)
            ran.clear()
            async with hf.transaction() as connection:
                await hf.jobs.requeue(later.id, connection=connection)
            await signal(ran)


@BOTH
async def test_a_tenants_job_is_changed_in_a_transaction_by_that_tenant_only(images: Shop) -> None:
    ours = await images.hf.for_tenant("acme").enqueue(images.resize, "ours")
    async with images.hf.transaction() as connection:
        jobs = images.hf.for_tenant("other").jobs
        with pytest.raises(JobNotFound):
            await jobs.cancel(ours.id, connection=connection)
        await images.hf.for_tenant("acme").jobs.cancel(ours.id, connection=connection)
    assert (await images.hf.get(ours.id)).state is State.CANCELED


@BOTH
async def test_a_connection_of_the_wrong_color_is_told_where_to_go(images: Shop) -> None:
    with (
        closing(sqlite3.connect(":memory:")) as blocking,
        pytest.raises(BadArguments, match=r"use cancel_sync\(\.\.\.\)"),
    ):
        await images.hf.jobs.cancel(images.waiting, connection=blocking)
    async with images.hf.transaction() as connection:

        def cancel() -> None:
            with pytest.raises(BadArguments, match=r"use await cancel\(\.\.\.\)"):
                images.hf.jobs.cancel_sync(images.waiting, connection=connection)

        await asyncio.to_thread(cancel)
