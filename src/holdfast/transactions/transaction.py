"""A transaction of the application, on the database of its jobs."""

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
    finish,
    recognize_async,
    speaks_postgres,
)
from holdfast.transactions.drivers.failures import DriverError, is_of_driver, is_refusal, unwrapped
from holdfast.transactions.drivers.marks import check_mark
from holdfast.transactions.hooks import Hooks

_IN_FAILED_TRANSACTION = "25P02"


@asynccontextmanager
async def transaction(
    store: Transactions, *, read_only: bool, hooks: Hooks | None = None
) -> AsyncIterator[Any]:
    """Lend a connection in a transaction: commit at the end, roll back on error."""
    hooks = Hooks() if hooks is None else hooks
    async with store.connection(read_only=read_only) as connection:
        foreign = recognize_async(connection, "")
        try:
            with translated("could not begin a transaction"):
                await foreign.run(_begin_to_read if read_only else lambda driver: driver.begin())
            with nullcontext() if read_only else store.writing(), hooks.of(connection):
                yield connection
        except BaseException:
            await roll_back(foreign)
            raise
        # In a separate task: a cancellation must not cut the commit in half.
        await finish(asyncio.create_task(_commit(foreign, read_only, hooks)))


async def roll_back(foreign: Foreign) -> None:
    # A broken connection rolls back too, and the first error is the one to report.
    with suppress(Exception):
        await foreign.run(lambda driver: driver.rollback())


@contextmanager
def translated(problem: str) -> Iterator[None]:
    """Translate a driver's error; a violated constraint is left to the caller."""
    try:
        yield
    except Exception as error:
        inner = unwrapped(error)
        if not is_of_driver(inner) or is_refusal(inner):
            raise
        raise StoreUnavailable(f"{problem}: {error}") from error


async def _begin_to_read(driver: Driver) -> None:
    await driver.begin()
    if speaks_postgres(driver):
        await driver.fetch("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY", ())


async def _commit(foreign: Foreign, read_only: bool, hooks: Hooks) -> None:
    async def check_and_commit(driver: Driver) -> None:
        if not read_only:
            await _check(driver)
        await driver.commit()

    try:
        with translated("the commit failed, and it is unknown whether the database did it"):
            await foreign.run(check_and_commit)
    except BaseException:
        await roll_back(foreign)
        raise
    hooks.is_committed = True


async def _check(driver: Driver) -> None:
    """Reject a block that ended its transaction itself, or continued after a failed statement:
    PostgreSQL would answer the commit with a rollback, without an error."""
    try:
        await check_mark(driver)
    except Exception as error:
        if DriverError(unwrapped(error)).sqlstate != _IN_FAILED_TRANSACTION:
            raise
        raise StoreRefused(
            "a statement of the transaction failed, so nothing was written; let the error leave the"
            " block, or put the statement in a savepoint"
        ) from error
