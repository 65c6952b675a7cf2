"""The transaction that commits a handler's rows together with the end of its job.

The connection is the store's or the caller's. Begin, fenced settlement and commit are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

from holdfast.domain import codec
from holdfast.domain.breakers import Strike
from holdfast.domain.errors import BadArguments, LeaseLost, StoreUnavailable, WrongState
from holdfast.domain.job import Claimed, Settlement, Standing
from holdfast.domain.outcomes import Succeeded, Verdict
from holdfast.domain.states import State
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.blocking import wait_for
from holdfast.runtime.seam import Seam
from holdfast.stores.protocol import History, Transactions, capability
from holdfast.transactions.drivers import (
    Driver,
    Foreign,
    finish,
    recognize_async,
    recognize_sync,
    run_now,
)
from holdfast.transactions.drivers.failures import is_of_driver, is_refusal, unwrapped
from holdfast.transactions.hooks import Hooks, hooked
from holdfast.transactions.sync import SyncConnection
from holdfast.transactions.transaction import roll_back

T = TypeVar("T")

_ASK_SECONDS_MIN = 0.1
_ASK_SECONDS_MAX = 5.0


class Judge(Protocol):
    """The worker, which knows what an error means for a job."""

    def judge(self, job: Claimed, error: BaseException) -> Verdict:
        """Decide; raise LeaseLost if nothing may be written. Safe from any thread."""

    async def strike(self, strike: Strike) -> bool:
        """Count a failure against its breaker; return whether that was open."""


class Completing:
    """`settled` is what was committed. `is_settling` is True while a commit is in progress.

    `failed_with` is the error of the last block that was to fail the attempt, and `found_open` the
    breaker's answer to it, if it was counted. `succeeded_with` is the result that the last block
    recorded; `result` may change after it.
    """

    def __init__(
        self,
        job: Claimed,
        store: Transactions,
        results: codec.Results,
        loop: asyncio.AbstractEventLoop,
        seam: Seam,
        judge: Judge,
    ) -> None:
        self.settled: Verdict | None = None
        self.is_settling = False
        self.failed_with: BaseException | None = None
        self.found_open: bool | None = None
        self.succeeded_with: Any = None
        self.result: Any = None
        self._job = job
        self._store = store
        self._results = results
        self._loop = loop
        self._seam = seam
        self._judge = judge
        self._judged: dict[int, tuple[BaseException, Verdict]] = {}  # by the error's identity
        self._is_open = False
        self._committing: asyncio.Task[None] | None = None

    def judge(self, error: BaseException) -> Verdict:
        """What was said about an error stands: the application may have written it."""
        check_exception(error)
        if id(error) not in self._judged:
            self._judged[id(error)] = error, self._judge.judge(self._job, error)
        return self._judged[id(error)][1]

    @asynccontextmanager
    async def block(
        self, connection: Any = None, error: BaseException | None = None
    ) -> AsyncIterator[Any]:
        """End the attempt with its success, or with this error."""
        with self._only_once():
            failure = None if error is None else await self._struck(error)
            borrowed = self._store.connection() if connection is None else nullcontext(connection)
            async with hooked() as hooks, borrowed as given:
                foreign = recognize_async(given, f"ctx.{_method(error)}_sync(connection=...)")
                await self._begin(foreign)
                try:
                    with self._store.writing(), hooks.of(given):
                        yield given
                    verdict = failure or self._success()
                    is_settled = await self._settle(foreign, verdict.settlement, hooks)
                except BaseException:
                    self.is_settling = False
                    await roll_back(foreign)
                    raise
                if not is_settled:
                    self.is_settling = False
                    await roll_back(foreign)
                    raise await self._why_unsettled()
                # In a separate task: a handler that is canceled here must still learn what
                # happened, or its job's success would look like a lost lease.
                self._committing = asyncio.create_task(self._commit(foreign, verdict, hooks))
                await finish(self._committing)

    @contextmanager
    def block_sync(
        self, connection: Any = None, error: BaseException | None = None
    ) -> Iterator[Any]:
        method = _method(error)
        if is_on_loop(self._loop):
            raise RuntimeError(
                f"{method}_sync blocks the event loop; in an async handler, use ctx.{method}()"
            )
        with self._only_once():
            failure = None if error is None else self._wait(self._struck(error))
            borrowed = self._borrowed() if connection is None else nullcontext(connection)
            hooks = Hooks()
            with borrowed as given:
                foreign = recognize_sync(given, f"ctx.{method}(connection=...)")
                run_now(self._begin(foreign))
                try:
                    with self._store.writing(), hooks.of(given):
                        yield given
                    verdict = failure or self._success()
                    is_settled = run_now(self._settle(foreign, verdict.settlement, hooks))
                except BaseException:
                    self.is_settling = False
                    run_now(roll_back(foreign))
                    raise
                if not is_settled:
                    self.is_settling = False
                    run_now(roll_back(foreign))
                    raise self._wait(self._why_unsettled())
                try:
                    run_now(foreign.run(lambda driver: driver.commit()))
                except Exception as problem:
                    run_now(roll_back(foreign))
                    self._wait(self._find_out(verdict.settlement, problem))
                self.settled = verdict
            hooks.run_sync(self._wait)

    def give_up(self) -> None:
        """Stop waiting for a commit: the worker is exiting."""
        if self._committing is not None:
            self._committing.cancel()

    @contextmanager
    def _only_once(self) -> Iterator[None]:
        if self._is_open or self.settled is not None:
            problem = "already has an open block"
            if self.settled is not None:
                succeeded = self.settled.settlement.state is State.SUCCEEDED
                problem = f"has already {'been completed' if succeeded else 'failed in a block'}"
            raise WrongState(f"job {self._job.id} {problem}; an attempt ends once")
        self._is_open = True
        try:
            yield
        finally:
            self._is_open = self.is_settling = False

    async def _struck(self, error: BaseException) -> Verdict:
        """The final verdict. Before the block begins, because the breaker is in the same database,
        and must count a failure whose block is rolled back."""
        verdict = self.judge(error)
        if verdict.counted is not None:
            if self.found_open is None:
                self.found_open = await self._judge.strike(verdict.counted.strike)
            verdict = verdict.after_strike(self.found_open)
            self._judged[id(error)] = error, verdict
        self.failed_with = error
        return verdict

    def _success(self) -> Verdict:
        self.succeeded_with = self.result
        job, result = self._job, self._results.encode(self.succeeded_with)
        settlement = Settlement(
            job_id=job.id, fence=job.fence, state=State.SUCCEEDED, result=result
        )
        return Verdict(Succeeded(result), settlement)

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

    async def _settle(self, foreign: Foreign, settlement: Settlement, hooks: Hooks) -> bool:
        """Settle the job, as the last statement before the commit; return whether it was ours."""

        async def settle(driver: Driver) -> bool:
            await driver.flush()
            return await self._store.enrol(driver, hooks.add_wake).settle(settlement)

        self.is_settling = True
        return await foreign.run(settle)

    async def _why_unsettled(self) -> LeaseLost | WrongState:
        """The error of a block that found nothing to settle. If the lease is ours again after the
        rollback, it was the block that ended it, and the worker must not take it for lost."""
        job = self._job
        standing = await self._ask(lambda: self._store.standing(job.id))
        if standing != Standing(State.RUNNING, job.fence):
            return LeaseLost(job.id, job.fence)
        return WrongState(
            f"the block changed its own job {job.id}, which only its end may; nothing was written"
        )

    async def _commit(self, foreign: Foreign, verdict: Verdict, hooks: Hooks) -> None:
        try:
            await foreign.run(lambda driver: driver.commit())
        except Exception as failure:
            await roll_back(foreign)
            await self._find_out(verdict.settlement, failure)
        self.settled = verdict
        hooks.is_committed = True

    async def _find_out(self, settlement: Settlement, failure: Exception) -> None:
        """Return if the commit happened; raise if it did not."""
        standing = await self._ask(lambda: self._store.standing(self._job.id))
        fence = self._job.fence
        if standing != Standing(State.RUNNING, fence):
            if await self._is_written(settlement, standing):
                return
            raise LeaseLost(self._job.id, fence) from failure
        inner = unwrapped(failure)
        if is_refusal(inner) or not is_of_driver(inner):
            raise failure  # the handler caused it
        raise StoreUnavailable(
            f"the commit of job {self._job.id} failed, and nothing was written: {failure}"
        ) from failure

    async def _is_written(self, settlement: Settlement, standing: Standing | None) -> bool:
        """Whether it was this settlement that ended the lease. A retry may have started already,
        and a reclaim leaves the same state, so for these the attempt that it kept decides."""
        history = capability(self._store, History)
        if settlement.outcome is None or history is None:
            return standing == Standing(settlement.state, settlement.fence + 1)
        attempts = await self._ask(lambda: history.attempts(settlement.job_id))
        ended = (settlement.fence, settlement.outcome)
        return any((attempt.fence, attempt.outcome) == ended for attempt in attempts)

    async def _ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Ask until the database answers. The lease is renewed in the meantime."""
        backoff = Backoff(self._seam, _ASK_SECONDS_MIN, _ASK_SECONDS_MAX)
        while True:
            try:
                return await question()
            except StoreUnavailable:
                await backoff.wait()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return wait_for(asyncio.run_coroutine_threadsafe(work, self._loop))

    @contextmanager
    def _borrowed(self) -> Iterator[SyncConnection]:
        """A connection of the store for a thread; a task on the loop borrows and returns it."""
        ready: Future[Any] = Future()
        done = asyncio.Event()
        holder = asyncio.run_coroutine_threadsafe(self._lend(ready, done), self._loop)
        try:
            yield SyncConnection(ready.result(), self._wait)
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


def is_on_loop(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this runs on the loop, where waiting for it would never end."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def check_exception(error: object) -> None:
    if not isinstance(error, BaseException):
        raise BadArguments(f"pass the exception that the attempt failed with, not {error!r}")


def _method(error: BaseException | None) -> str:
    return "completing" if error is None else "failing"
