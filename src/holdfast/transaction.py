"""A transaction of the application's own, on the database of its jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
    suppress,
)
from typing import Any, Protocol

from holdfast.domain.errors import StoreUnavailable
from holdfast.stores.foreign import Driver, Foreign, recognise_async, to_its_end
from holdfast.stores.foreign.failures import is_of_driver, is_refusal, unwrapped


class LendingStore(Protocol):
    def lend(self, *, read_only: bool = False) -> AbstractAsyncContextManager[Any]: ...

    def holding(self) -> AbstractContextManager[None]: ...


@asynccontextmanager
async def transaction(store: LendingStore, *, read_only: bool) -> AsyncIterator[Any]:
    """Lend a connection in a transaction: committed at the end, rolled back by an error."""
    async with store.lend(read_only=read_only) as connection:
        foreign = recognise_async(connection, "")
        try:
            with _told("begun"):
                await foreign.run(_begin_to_read if read_only else _begin)
            with nullcontext() if read_only else store.holding():
                yield connection
        except BaseException:
            await roll_back(foreign)
            raise
        # In a task of its own: whoever is cancelled meanwhile does not cut the commit in half.
        await to_its_end(asyncio.create_task(_commit(foreign)))


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
    if driver.dialect == "PostgreSQL":
        await driver.fetch("SET TRANSACTION READ ONLY", ())


async def _commit(foreign: Foreign) -> None:
    async def commit(driver: Driver) -> None:
        await driver.commit()

    with _told("committed, and may have been or not"):
        await foreign.run(commit)


async def _rollback(driver: Driver) -> None:
    await driver.rollback()
