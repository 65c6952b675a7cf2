"""`hf.transaction()`: the application's own rows and its jobs, together, on both databases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast import Filter, Holdfast, StoreRefused, StoreUnavailable
from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.server_limits import Limits
from tests.support.running import QUICK, WAIT_SECONDS_MAX

pytestmark = pytest.mark.both_postgres

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
    assert (await app.jobs.list(Filter())).jobs == []


async def test_a_canceled_transaction_is_rolled_back(app: Holdfast) -> None:
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
        assert await asyncio.wait_for(notes(app), WAIT_SECONDS_MAX) == []
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


async def test_a_failed_statement_that_was_passed_over_is_no_silent_rollback(
    app: Holdfast, store_url: str
) -> None:
    @app.job
    async def tell(text: str) -> None: ...

    async def pass_over() -> None:
        async with app.transaction() as connection:
            await connection.execute(INSERT, "first")
            await tell.options(connection=connection).enqueue("first")
            with suppress(Exception):
                await connection.execute(INSERT, "first")

    if store_url.startswith("sqlite"):
        await pass_over()  # SQLite takes back the statement alone
        assert await notes(app) == ["first"]
    else:
        with pytest.raises(StoreRefused, match="so nothing was written"):
            await pass_over()
        assert await notes(app) == []
    async with app.transaction() as connection:
        await connection.execute(INSERT, "by whoever comes next")


async def test_sqlite_refuses_at_once_what_would_wait_for_itself(local_hf: Holdfast) -> None:
    @local_hf.job
    async def tell(text: str) -> None: ...

    async with local_hf.transaction():
        with pytest.raises(
            StoreRefused, match=r"hf\.transaction\(\) block .* would wait for itself"
        ):
            await tell.enqueue("outside of the transaction")
        with pytest.raises(StoreRefused, match="would wait for itself"):
            async with local_hf.transaction():
                pass


async def test_sqlite_knows_the_outer_one_of_two_files_too(
    local_hf: Holdfast, tmp_path: Path
) -> None:
    async with (
        Holdfast(f"sqlite:///{tmp_path / 'other.db'}", **QUICK) as other,
        local_hf.transaction(),
        other.transaction(),
    ):
        with pytest.raises(StoreRefused, match="would wait for itself"):
            async with local_hf.transaction():
                pass


async def test_a_task_that_outlives_the_transaction_may_write(app: Holdfast) -> None:
    over = asyncio.Event()

    async def write_later() -> None:
        await over.wait()
        async with app.transaction() as connection:
            await connection.execute(INSERT, "later")

    async with app.transaction():
        writing = asyncio.create_task(write_later())
    over.set()
    await writing
    assert await notes(app) == ["later"]


async def test_a_transaction_may_end_in_another_task_than_it_began_in(app: Holdfast) -> None:
    block = app.transaction()
    connection = await asyncio.create_task(block.__aenter__())
    await connection.execute(INSERT, "kept")
    await asyncio.create_task(block.__aexit__(None, None, None))
    assert await notes(app) == ["kept"]


async def test_a_connection_is_refused_after_its_transaction(app: Holdfast) -> None:
    async with app.transaction() as connection:
        pass
    with pytest.raises(Exception, match=r"has ended|released"):
        await asyncio.wait_for(connection.fetchval("SELECT 1"), WAIT_SECONDS_MAX)


async def test_an_insert_that_returns_something_is_counted(local_hf: Holdfast) -> None:
    async with local_hf.transaction() as connection:
        assert await connection.execute(CREATE) == 0
        assert await connection.execute(f"{INSERT} RETURNING text", "counted") == 1
        assert await connection.execute("SELECT text FROM notes") == 0


async def test_a_transaction_that_is_canceled_anywhere_keeps_nobody_waiting(
    app: Holdfast,
) -> None:
    """Canceled at its first wait, at its second, ... until it gets through."""

    async def write(text: str) -> None:
        async with app.transaction() as connection:
            await connection.execute(INSERT, text)

    for turns in count():
        writing = asyncio.create_task(write(f"after {turns}"))
        for _ in range(turns):
            await asyncio.wait([writing], timeout=0)
        if not writing.cancel():
            break
        await asyncio.wait([writing])
        async with app.transaction() as connection:
            await connection.execute("DELETE FROM notes")
    assert await notes(app) == [f"after {turns}"]


async def test_a_read_only_transaction_sees_one_moment(app: Holdfast) -> None:
    async with app.transaction(read_only=True) as connection:
        assert await connection.fetchval("SELECT count(*) FROM notes") == 0
        async with app.transaction() as writing:
            await writing.execute(INSERT, "meanwhile")
        assert await connection.fetchval("SELECT count(*) FROM notes") == 0
    assert await notes(app) == ["meanwhile"]


class Cut(Connections):
    """Whose connections end while they are given back."""

    async def _reset(self, connection: Any) -> None:
        connection.terminate()
        await super()._reset(connection)


@pytest.mark.parametrize("store_url", ["pg15"], indirect=True)
async def test_a_connection_that_ends_while_it_is_given_back_undoes_nothing(store_url: str) -> None:
    connections = Cut(store_url, Seam(), size=1, limits=Limits(lease_seconds=30))
    async with connections.connection() as connection:
        await connection.execute(CREATE)
    async with connections.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM notes") == 0
    await connections.close()
