"""The worker: claim -> run -> settle, from its start to a clean stop.

Boot, in order: resources, keeper, wake-ups, then settler, sweeper and claimer side by side. The
stop goes the other way round, and the keeper ends last, when nothing is held any more.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from holdfast.context import Context
from holdfast.definition import Definition
from holdfast.domain.errors import StoreError
from holdfast.domain.job import Claimed, Lease, Lost, Settlement
from holdfast.domain.outcomes import Failed, Outcome, Released, decide
from holdfast.domain.retry import Retry
from holdfast.domain.states import State
from holdfast.maintenance.sweeper import Sweeper
from holdfast.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store
from holdfast.wakeups.protocol import Wakeup
from holdfast.worker import events
from holdfast.worker.backoff import Backoff
from holdfast.worker.claimer import Claimer
from holdfast.worker.executor import Executor
from holdfast.worker.keeper import LeaseKeeper
from holdfast.worker.report import WorkerReport
from holdfast.worker.run import Run, Stop
from holdfast.worker.settler import Settler
from holdfast.worker.slots import Slots

STOP_HANDLERS_SECONDS = 2.0
_NO_RETRY = Retry.none()


class Worker:
    """With `horizon_seconds` it ends when nothing runs and nothing becomes due within them."""

    def __init__(
        self,
        *,
        store: Store,
        make_keepers_store: Callable[[], Store],
        definitions: Mapping[str, Definition],
        resources: Mapping[str, Any],
        settings: Settings,
        seam: Seam,
        slots: Slots,
        horizon_seconds: float | None,
    ) -> None:
        self.id = seam.identity()
        self.report = WorkerReport()
        self._store = store
        self._definitions = definitions
        self._resources = resources
        self._settings = settings
        self._seam = seam
        self._slots = slots
        self._horizon_seconds = horizon_seconds
        self._runs: dict[Lease, Run] = {}
        self._unsettled: dict[Lease, Run] = {}
        self._checks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self._fatal: BaseException | None = None
        self._threads = seam.threads("holdfast-handler", slots.concurrency)
        self._keeper = LeaseKeeper(make_keepers_store, seam, settings, self._lost, self._die)
        self._settler = Settler(store, Backoff(seam, 0.1, 5.0), self._settled)
        self._executor = Executor(definitions, settings, self._threads)
        names = sorted(definitions)
        self._claimer = Claimer(
            store, seam, settings, slots, names, self.id, self._start, self._room, self._is_done
        )
        self._sweeper = Sweeper(store, seam, settings, names, slots.queues, self._claimer.wake)

    async def run(self) -> WorkerReport:
        """Work until told to stop, or until there is nothing to do if that was asked for.

        To be cancelled is to be told to stop: what runs is finished or released before this ends.
        """
        working = asyncio.create_task(self._run())
        canceled: asyncio.CancelledError | None = None
        while not working.done():
            try:
                await asyncio.wait({working})
            except asyncio.CancelledError as error:
                canceled = error
                self.stop()
        report = working.result()
        if canceled is not None:
            raise canceled
        return report

    async def _run(self) -> WorkerReport:
        events.log_boot(self.id, self._slots.concurrency, self._slots.queues)
        await self._keeper.start()
        try:
            listener = await self._store.listen(self._heard)
            try:
                await self._work()
            finally:
                if listener is not None:
                    await listener.close()
        finally:
            await self._keeper.stop()
            self._threads.close()
        if self._fatal is not None:
            raise self._fatal
        events.log_stop(self.id, self.report)
        return self.report

    def stop(self) -> None:
        """Claim no more and finish what runs; the second call hurries."""
        if self._stopping.is_set():
            self._hurrying.set()
        self._stopping.set()

    @asynccontextmanager
    async def signals(self) -> AsyncIterator[None]:
        """Let SIGTERM and SIGINT call `stop`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _on_signal(self, number: signal.Signals) -> None:
        hurry = self._stopping.is_set()
        events.log_signal(self.id, signal.Signals(number).name, hurry, len(self._runs))
        self.stop()

    async def _work(self) -> None:
        settling = asyncio.create_task(self._settler.run())
        sweeping = asyncio.create_task(self._sweeper.run())
        claiming = asyncio.create_task(self._claimer.run())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            parts = {settling, sweeping, claiming}
            done, _ = await asyncio.wait({*parts, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for part in done & parts:
                self._fatal = self._fatal or part.exception()
            await self._finish_all(claiming, settling)
        finally:
            for part in (settling, sweeping, claiming, stopping):
                part.cancel()
            await asyncio.gather(settling, sweeping, claiming, stopping, return_exceptions=True)

    async def _finish_all(self, claiming: asyncio.Task[None], settling: asyncio.Task[None]) -> None:
        """Let the handlers end within the grace time, then stop and release the others."""
        deadline = self._seam.monotonic() + self._settings.grace_seconds
        self._stopping.set()
        self._claimer.stop()
        self._slots.let_go()
        await asyncio.wait({claiming}, timeout=max(1.0, self._settings.grace_seconds))
        await self._handlers_end(deadline - self._seam.monotonic(), hurry=True)
        for run in list(self._runs.values()):
            run.tell_to_stop(Stop.SHUTDOWN)
        await self._handlers_end(STOP_HANDLERS_SECONDS, hurry=False)
        for run in list(self._runs.values()):
            # It did not listen: its process ends now, and what it may still write is fenced off.
            if run.lease not in self._unsettled:
                self._settle(run, Released())
            run.tell_to_stop(Stop.LOST)
        idle = asyncio.create_task(self._settler.wait_idle())
        await asyncio.wait(
            {idle, settling},
            timeout=max(STOP_HANDLERS_SECONDS, self._settings.grace_seconds),
            return_when=asyncio.FIRST_COMPLETED,
        )
        idle.cancel()

    async def _handlers_end(self, seconds: float, *, hurry: bool) -> None:
        """Wait until no handler runs any more, for so many seconds, or until told to hurry."""
        hurrying = asyncio.create_task(self._hurrying.wait())
        deadline = self._seam.monotonic() + seconds
        while tasks := {run.task for run in self._runs.values() if run.task is not None}:
            left = deadline - self._seam.monotonic()
            if left <= 0 or (hurry and self._hurrying.is_set()):
                break
            waited = {*tasks, hurrying} if hurry else tasks
            await asyncio.wait(waited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()

    async def _room(self) -> None:
        """Wait until a handler can start, and until the settler is not far behind."""
        await self._slots.wait_free()
        await self._settler.wait_room()

    def _start(self, jobs: Sequence[Claimed]) -> None:
        """Hold the leases of all before the first handler can block the loop, then run them."""
        events.log_claim(self.id, jobs)
        loop = asyncio.get_running_loop()
        now = self._seam.monotonic()
        runs = [Run(job, Context(job, self._store, self._resources), now) for job in jobs]
        for run in runs:
            self._keeper.hold(run.lease)
            self._slots.take(run.job.queue)
            self._runs[run.lease] = run
        for run in runs:
            if self._stopping.is_set():
                self._settle(run, Released())
                self._end(run)
            else:
                run.task = loop.create_task(self._perform(run))

    async def _perform(self, run: Run) -> None:
        """One job's line: run it, decide, hand the settlement over, make room for the next."""
        events.log_start(self.id, run.job)
        try:
            self._settle(run, await self._executor.execute(run))
            if run.thread is not None and not run.thread.done() and not self._stopping.is_set():
                # The slot stays taken as long as the thread does.
                await asyncio.wait([run.thread])
        except Exception as error:
            # Not the handler's error, but ours: no job may stay leased by a worker that lost it.
            self._die(error)
        finally:
            self._end(run)

    def _settle(self, run: Run, outcome: Outcome | None) -> None:
        if run.context.completed is not None:
            self._settle_completed(run, run.context.completed, outcome)
            return
        if outcome is None and run.stop is not Stop.LOST:
            self._tell_lost(run, None)
        if outcome is None or run.stop is Stop.LOST:
            self._keeper.drop(run.lease)
            return
        definition = self._definitions.get(run.job.name)
        retry = definition.retry if definition is not None else _NO_RETRY
        settlement = decide(run.job, outcome, retry, self._seam.random.random())
        run.ended_monotonic = self._seam.monotonic()
        self._unsettled[run.lease] = run
        self._settler.put(settlement)

    def _settle_completed(self, run: Run, settlement: Settlement, outcome: Outcome | None) -> None:
        """The handler's own transaction has settled the job; what came after can't change that."""
        run.ended_monotonic = self._seam.monotonic()
        self._keeper.drop(run.lease)
        self.report.count(settlement)
        events.log_settle(self.id, run.job, settlement, run.duration_ms)
        if isinstance(outcome, Failed):
            events.log_error_after_completing(self.id, run.job, outcome.code)

    def _end(self, run: Run) -> None:
        queue = run.job.queue
        self._slots.give_back(queue)
        del self._runs[run.lease]
        if queue in self._slots.caps or (self._horizon_seconds is not None and not self._runs):
            self._claimer.wake()

    def _settled(self, settlement: Settlement, lost: Lost | None) -> None:
        lease = Lease(settlement.job_id, settlement.fence)
        run = self._unsettled.pop(lease)
        self._keeper.drop(lease)
        if lost is not None:
            self._tell_lost(run, lost.state)
            return
        self.report.count(settlement)
        events.log_settle(self.id, run.job, settlement, run.duration_ms)

    def _lost(self, leases: Sequence[Lost]) -> None:
        """These leases are gone: stop their handlers, and write nothing for them."""
        for lost in leases:
            lease = Lease(lost.job_id, lost.fence)
            self._keeper.drop(lease)
            run = self._runs.get(lease)
            if run is None or run.stop is Stop.LOST or lease in self._unsettled:
                continue
            # A handler that is just committing its job's success learns from its own settle.
            if not run.context.is_completing:
                self._tell_lost(run, lost.state)
                run.tell_to_stop(Stop.LOST)

    def _tell_lost(self, run: Run, state: State | None) -> None:
        self.report.lost += 1
        events.log_lost(self.id, run.job, state)

    def _heard(self, wakeup: Wakeup) -> None:
        if wakeup.canceled is not None:
            held = [lease for lease in self._runs if lease.job_id == wakeup.canceled]
            if held:
                check = asyncio.get_running_loop().create_task(self._check(held))
                self._checks.add(check)
                check.add_done_callback(self._checks.discard)
        elif self._slots.queues is None or wakeup.queue in (None, *self._slots.queues):
            self._claimer.wake()

    async def _check(self, leases: Sequence[Lease]) -> None:
        """Somebody says that these were canceled: a hint, so the store is asked."""
        try:
            self._lost(await self._store.renew(leases, self._settings.lease_seconds))
        except StoreError:
            return  # the next renewal will tell

    def _die(self, error: BaseException) -> None:
        """A part that nothing works without has failed: stop, and end with its error."""
        self._fatal = self._fatal or error
        self._stopping.set()

    async def _is_done(self) -> bool:
        """Is there nothing left that runs, or becomes due within the horizon?"""
        if self._horizon_seconds is None or self._runs:
            return False
        await self._settler.wait_idle()
        return not await self._store.awaited(
            sorted(self._definitions), self._slots.queues, self._horizon_seconds
        )
