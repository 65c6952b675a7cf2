"""A transaction of the application's own, on the database of its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Any

from holdfast.domain.errors import StoreRefused, StoreUnavailable
from holdfast.stores.protocol import Transactions
from holdfast.transactions.drivers import (
    Driver,
    Foreign,
    recognize_async,
    speaks_postgres,
    to_its_end,
)
from holdfast.transactions.drivers.failures import DriverError, is_of_driver, is_refusal, unwrapped
from holdfast.transactions.drivers.marks import check_mark

_IN_FAILED_TRANSACTION = "25P02"


@asynccontextmanager
async def transaction(store: Transactions, *, read_only: bool) -> AsyncIterator[Any]:
    """Lend a connection in a transaction: committed at the end, rolled back by an error."""
    async with store.connection(read_only=read_only) as connection:
        foreign = recognize_async(connection, "")
        try:
            with _told("begun"):
                await foreign.run(_begin_to_read if read_only else _begin)
            with nullcontext() if read_only else store.writing():
                yield connection
        except BaseException:
            await roll_back(foreign)
            raise
        # In a task of its own: whoever is canceled meanwhile does not cut the commit in half.
        await to_its_end(asyncio.create_task(_commit(foreign, read_only)))


async def roll_back(foreign: Foreign) -> None:
    # What breaks a connection rolls back, too; and the first error is the one to tell.
    with suppress(Exception):
        await foreign.run(_rollback)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Say in Holdfast's words that the database could not do it; a refusal is the caller's."""
    try:
        yield
    except Exception as error:
        inner = unwrapped(error)
        if not is_of_driver(inner) or is_refusal(inner):
            raise
        raise StoreUnavailable(f"a transaction could not be {what}: {error}") from error


async def _begin(driver: Driver) -> None:
    await driver.begin()


async def _begin_to_read(driver: Driver) -> None:
    await driver.begin()
    if speaks_postgres(driver):
        await driver.fetch("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY", ())


async def _commit(foreign: Foreign, read_only: bool) -> None:
    async def commit(driver: Driver) -> None:
        if not read_only:
            await _check(driver)
        await driver.commit()

    try:
        with _told("committed, and may have been or not"):
            await foreign.run(commit)
    except BaseException:
        await roll_back(foreign)
        raise


async def _check(driver: Driver) -> None:
    """Refuse a block that has ended its transaction by itself, or went on after a failed statement:
    PostgreSQL answers its commit with a rollback, and no error."""
    try:
        await check_mark(driver)
    except Exception as error:
        if DriverError(unwrapped(error)).sqlstate != _IN_FAILED_TRANSACTION:
            raise
        raise StoreRefused(
            "a statement of the transaction failed before, so nothing of it was written; let the"
            " error leave the block, or put the statement into a savepoint"
        ) from error


async def _rollback(driver: Driver) -> None:
    await driver.rollback()
