"""The transaction that commits a handler's rows together with the end of its job.

The connection is the store's or the caller's. Begin, fenced settlement and commit are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any, TypeVar

from holdfast.domain import codec
from holdfast.domain.errors import LeaseLost, StoreUnavailable, WrongState
from holdfast.domain.job import Claimed, Settlement, Standing
from holdfast.domain.states import State
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import Transactions
from holdfast.transactions.drivers import (
    Driver,
    Foreign,
    finish,
    recognize_async,
    recognize_sync,
    run_now,
)
from holdfast.transactions.drivers.failures import is_of_driver, is_refusal, unwrapped
from holdfast.transactions.transaction import roll_back

T = TypeVar("T")

_ASK_SECONDS_MIN = 0.1
_ASK_SECONDS_MAX = 5.0


class Completing:
    """`settled` is what was committed. `is_settling` is True while a commit is in progress."""

    def __init__(
        self,
        job: Claimed,
        store: Transactions,
        results: codec.Results,
        loop: asyncio.AbstractEventLoop,
        seam: Seam,
    ) -> None:
        self.settled: Settlement | None = None
        self.is_settling = False
        self.result: Any = None
        self._job = job
        self._store = store
        self._results = results
        self._loop = loop
        self._seam = seam
        self._is_open = False
        self._committing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def block(self, connection: Any = None) -> AsyncIterator[Any]:
        with self._only_once():
            borrowed = self._store.connection() if connection is None else nullcontext(connection)
            async with borrowed as given:
                foreign = recognize_async(given, "ctx.completing_sync(connection=...)")
                await self._begin(foreign)
                try:
                    with self._store.writing():
                        yield given
                    settlement = await self._settle(foreign)
                except BaseException:
                    self.is_settling = False
                    await roll_back(foreign)
                    raise
                # In a separate task: a handler that is canceled here must still learn what
                # happened, or its job's success would look like a lost lease.
                self._committing = asyncio.create_task(self._commit(foreign, settlement))
                await finish(self._committing)

    @contextmanager
    def block_sync(self, connection: Any = None) -> Iterator[Any]:
        if is_on_loop(self._loop):
            raise RuntimeError(
                "completing_sync blocks the event loop; in an async handler, use ctx.completing()"
            )
        with self._only_once():
            borrowed = self._borrowed() if connection is None else nullcontext(connection)
            with borrowed as given:
                foreign = recognize_sync(given, "ctx.completing(connection=...)")
                run_now(self._begin(foreign))
                try:
                    with self._store.writing():
                        yield given
                    settlement = run_now(self._settle(foreign))
                except BaseException:
                    self.is_settling = False
                    run_now(roll_back(foreign))
                    raise
                try:
                    run_now(foreign.run(lambda driver: driver.commit()))
                except Exception as failure:
                    run_now(roll_back(foreign))
                    _wait(self._find_out(failure), self._loop)
                self.settled = settlement

    def give_up(self) -> None:
        """Stop waiting for a commit: the worker is exiting."""
        if self._committing is not None:
            self._committing.cancel()

    @contextmanager
    def _only_once(self) -> Iterator[None]:
        if self._is_open or self.settled is not None:
            problem = "has already been completed" if self.settled else "already has an open block"
            raise WrongState(f"job {self._job.id} {problem}; an attempt completes its job once")
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = self.is_settling = False

    async def _begin(self, foreign: Foreign) -> None:
        try:
            await foreign.run(lambda driver: driver.begin())
        except asyncio.CancelledError:
            await roll_back(foreign)
            raise
        except Exception as error:
            if not is_of_driver(unwrapped(error)):
                raise
            raise StoreUnavailable(
                f"could not begin a transaction for job {self._job.id}: {error}"
            ) from error

    async def _settle(self, foreign: Foreign) -> Settlement:
        """Settle the job, as the last statement before the commit."""
        job, result = self._job, self._results.encode(self.result)
        settlement = Settlement(
            job_id=job.id, fence=job.fence, state=State.SUCCEEDED, result=result
        )

        async def settle(driver: Driver) -> bool:
            await driver.flush()
            return await self._store.enrol(driver).settle(settlement)

        self.is_settling = True
        if not await foreign.run(settle):
            raise LeaseLost(job.id, job.fence)
        return settlement

    async def _commit(self, foreign: Foreign, settlement: Settlement) -> None:
        try:
            await foreign.run(lambda driver: driver.commit())
        except Exception as failure:
            await roll_back(foreign)
            await self._find_out(failure)
        self.settled = settlement

    async def _find_out(self, failure: Exception) -> None:
        """Return if the commit happened; raise if it did not."""
        standing = await self._ask()
        fence = self._job.fence
        if standing == Standing(State.SUCCEEDED, fence + 1):
            return
        if standing != Standing(State.RUNNING, fence):
            raise LeaseLost(self._job.id, fence) from failure
        inner = unwrapped(failure)
        if is_refusal(inner) or not is_of_driver(inner):
            raise failure  # the handler caused it
        raise StoreUnavailable(
            f"the commit of job {self._job.id} failed, and nothing was written: {failure}"
        ) from failure

    async def _ask(self) -> Standing | None:
        """Ask until the database answers. The lease is renewed in the meantime."""
        backoff = Backoff(self._seam, _ASK_SECONDS_MIN, _ASK_SECONDS_MAX)
        while True:
            try:
                return await self._store.standing(self._job.id)
            except StoreUnavailable:
                await backoff.wait()

    @contextmanager
    def _borrowed(self) -> Iterator[SyncConnection]:
        """A connection of the store for a thread; a task on the loop borrows and returns it."""
        ready: Future[Any] = Future()
        done = asyncio.Event()
        holder = asyncio.run_coroutine_threadsafe(self._lend(ready, done), self._loop)
        try:
            yield SyncConnection(ready.result(), self._loop)
        finally:
            self._loop.call_soon_threadsafe(done.set)
            holder.result()

    async def _lend(self, ready: Future[Any], done: asyncio.Event) -> None:
        try:
            async with self._store.connection() as connection:
                ready.set_result(connection)
                await done.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise


class SyncConnection:
    """The connection of a handler in a thread."""

    def __init__(self, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop

    def execute(self, query: str, *args: Any) -> Any:
        return _wait(self._connection.execute(query, *args), self._loop)

    def fetch(self, query: str, *args: Any) -> Any:
        return _wait(self._connection.fetch(query, *args), self._loop)

    def fetchrow(self, query: str, *args: Any) -> Any:
        return _wait(self._connection.fetchrow(query, *args), self._loop)

    def fetchval(self, query: str, *args: Any) -> Any:
        return _wait(self._connection.fetchval(query, *args), self._loop)

    def __holdfast_foreign__(self) -> _Remote:
        return _Remote(self._connection, self._loop)


class _Remote:
    """Runs on the connection's event loop, while this thread waits."""

    is_async = False

    def __init__(self, connection: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._foreign = recognize_async(connection, "")
        self._loop = loop

    async def run(self, work: Any) -> Any:
        return _wait(self._foreign.run(work), self._loop)


def is_on_loop(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this runs on the loop, where waiting for it would never end."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _wait(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
    return asyncio.run_coroutine_threadsafe(work, loop).result()
