"""Transactions for code without an event loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar

from holdfast.runtime.blocking import RunSync, entered_sync
from holdfast.stores.protocol import Transactions
from holdfast.transactions.drivers import recognize_async
from holdfast.transactions.hooks import Hooks
from holdfast.transactions.transaction import transaction

T = TypeVar("T")


@contextmanager
def transaction_sync(
    store: Transactions, run: RunSync, *, read_only: bool
) -> Iterator[SyncConnection]:
    hooks = Hooks()
    block = transaction(store, read_only=read_only, hooks=hooks)
    try:
        with (
            entered_sync(run, block) as connection,
            nullcontext() if read_only else store.writing(),
        ):
            yield SyncConnection(connection, run)
    finally:
        if hooks.is_committed:  # even if Ctrl-C came during the commit
            hooks.run_sync(run)


class SyncConnection:
    """The connection of code without an event loop. `run` runs a coroutine on the connection's
    loop, while this thread waits."""

    def __init__(self, connection: Any, run: RunSync) -> None:
        self.__holdfast_connection__ = connection
        self._connection = connection
        self._run = run

    def execute(self, query: str, *args: Any) -> Any:
        return self._run(self._connection.execute(query, *args))

    def fetch(self, query: str, *args: Any) -> Any:
        return self._run(self._connection.fetch(query, *args))

    def fetchrow(self, query: str, *args: Any) -> Any:
        return self._run(self._connection.fetchrow(query, *args))

    def fetchval(self, query: str, *args: Any) -> Any:
        return self._run(self._connection.fetchval(query, *args))

    def __holdfast_foreign__(self) -> _Remote:
        return _Remote(self._connection, self._run)


class _Remote:
    is_async = False

    def __init__(self, connection: Any, run: RunSync) -> None:
        self._foreign = recognize_async(connection, "")
        self._run = run

    async def run(self, work: Any) -> Any:
        return self._run(self._foreign.run(work))
