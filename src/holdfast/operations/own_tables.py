"""Holdfast's own tables beside the jobs: keys, the audit log, bulk changes, stored responses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final
from weakref import WeakSet

from holdfast.stores.protocol import Store, Transactions, capability, require
from holdfast.transactions.hooks import hooked
from holdfast.transactions.tables import Statements, Tables, check_tables, not_up_to_date
from holdfast.transactions.transaction import transaction, translated

NAME: Final = "service"
PACKAGE: Final = "holdfast.operations"


class OwnTables:
    """`holdfast migrate` creates these tables; on SQLite, so does the first use. Workers don't need
    them, so they are checked only when used."""

    def __init__(
        self, store: Callable[[], Awaitable[Store]], may_migrate: Callable[[], bool]
    ) -> None:
        self.tables = Tables(NAME, PACKAGE)
        self._store = store
        self._may_migrate = may_migrate
        self._checked: WeakSet[Store] = WeakSet()

    @asynccontextmanager
    async def transaction(
        self, *, read_only: bool = False
    ) -> AsyncIterator[tuple[Any, Statements]]:
        """The block gets the connection and its statements."""
        store = await self._store()
        owner = require(store, Transactions, "keep keys, bulk changes and an audit log")
        if store not in self._checked:
            await check_tables(store, [self.tables], may_migrate=self._may_migrate())
            self._checked.add(store)
        with translated("the transaction failed, and nothing was written"):
            async with (
                hooked() as hooks,
                transaction(owner, read_only=read_only, hooks=hooks) as connection,
            ):
                yield connection, self.tables.on(connection)

    async def are_there(self) -> bool:
        """Whether the tables are up to date. Changes nothing."""
        store = await self._store()
        owner = capability(store, Transactions)
        if owner is None or store in self._checked:
            return owner is not None
        async with transaction(owner, read_only=True) as connection:
            is_missing = bool(await self.tables.missing(connection))
        if not is_missing:
            self._checked.add(store)
        return not is_missing

    @asynccontextmanager
    async def one_by_one(self) -> AsyncIterator[Statements]:
        """The block gets the statements, each of which is a transaction of its own: an event loop
        that is blocked keeps nobody waiting for its locks."""
        owner = require(await self._store(), Transactions, "keep samples")
        with translated("the statement failed"):
            async with owner.connection() as connection:
                yield self.tables.on(connection)

    async def on(self, connection: Any) -> Statements:
        """Return the statements on the connection of an `hf.transaction()`. On SQLite, that
        transaction creates missing tables, because another one would wait for it."""
        if await self._store() not in self._checked and await self.tables.missing(connection):
            if not self._may_migrate():
                raise not_up_to_date([self.tables])
            await self.tables.migrate(connection)
        return self.tables.on(connection)

    @asynccontextmanager
    async def joined(self, connection: Any) -> AsyncIterator[Statements]:
        """The statements on the connection of an `hf.transaction()`, or in a transaction of their
        own if it is None."""
        if connection is not None:
            yield await self.on(connection)
            return
        async with self.transaction() as (_, statements):
            yield statements
