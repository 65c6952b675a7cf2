"""`hf.transaction()`: the application's own rows and its jobs, together, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from holdfast import Filter, Holdfast, StoreUnavailable
from tests.support.running import QUICK

CREATE = "CREATE TABLE notes (text VARCHAR(80) PRIMARY KEY)"
INSERT = "INSERT INTO notes VALUES ($1)"


@pytest.fixture
async def app(store_url: str) -> AsyncIterator[Holdfast]:
    async with Holdfast(store_url, **QUICK) as hf:
        async with hf.transaction() as connection:
            await connection.execute(CREATE)
        yield hf


async def notes(hf: Holdfast) -> list[str]:
    async with hf.transaction(read_only=True) as connection:
        return [row["text"] for row in await connection.fetch("SELECT text FROM notes")]


async def test_rows_and_jobs_are_committed_together(app: Holdfast) -> None:
    @app.job
    async def tell(text: str) -> None: ...

    async with app.transaction() as connection:
        await connection.execute(INSERT, "kept")
        job = await tell.options(connection=connection).enqueue("kept")
    assert await notes(app) == ["kept"]
    assert (await app.get(job.id)).name == "tell"


async def test_an_error_takes_rows_and_jobs_back(app: Holdfast) -> None:
    @app.job
    async def tell(text: str) -> None: ...

    async def fail() -> None:
        async with app.transaction() as connection:
            await connection.execute(INSERT, "lost")
            await tell.options(connection=connection).enqueue("lost")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert await notes(app) == []
    assert (await app.page(Filter())).jobs == []


async def test_a_cancelled_transaction_is_rolled_back(app: Holdfast) -> None:
    inside = asyncio.Event()

    async def write() -> None:
        async with app.transaction() as connection:
            await connection.execute(INSERT, "lost")
            inside.set()
            await asyncio.Event().wait()

    writing = asyncio.create_task(write())
    await inside.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await notes(app) == []


async def test_a_read_only_transaction_can_not_write(app: Holdfast) -> None:
    with pytest.raises(Exception, match=r"read-?only"):
        async with app.transaction(read_only=True) as connection:
            await connection.execute(INSERT, "refused")
    assert await notes(app) == []
    async with app.transaction() as connection:
        await connection.execute(INSERT, "written by whoever comes next")


async def test_a_read_only_transaction_waits_for_no_writer(app: Holdfast) -> None:
    async with app.transaction() as connection:
        await connection.execute(INSERT, "not yet seen")
        assert await asyncio.wait_for(notes(app), 5) == []
    assert await notes(app) == ["not yet seen"]


async def test_a_refusal_is_the_drivers_own(app: Holdfast) -> None:
    async with app.transaction() as connection:
        await connection.execute(INSERT, "once")
    with pytest.raises(Exception, match=r"(?i)unique") as refusal:
        async with app.transaction() as connection:
            await connection.execute(INSERT, "once")
    assert not isinstance(refusal.value, StoreUnavailable)


async def test_both_databases_hold_foreign_keys(app: Holdfast) -> None:
    async with app.transaction() as connection:
        await connection.execute("CREATE TABLE replies (note VARCHAR(80) REFERENCES notes (text))")
    with pytest.raises(Exception, match=r"(?i)foreign key"):
        async with app.transaction() as connection:
            await connection.execute("INSERT INTO replies VALUES ($1)", "to nobody")
