"""The jobs that a worker has, from their claim to the acknowledgement of their settlement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from holdfast.context import Context
from holdfast.definition import Definition
from holdfast.domain.errors import StoreError
from holdfast.domain.job import Claimed, Lease, Lost, Settlement
from holdfast.domain.outcomes import Failed, Outcome, Released, decide
from holdfast.domain.retry import Retry
from holdfast.domain.states import State
from holdfast.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store
from holdfast.worker import events
from holdfast.worker.backoff import Backoff
from holdfast.worker.executor import Executor
from holdfast.worker.keeper import LeaseKeeper
from holdfast.worker.report import WorkerReport
from holdfast.worker.run import Run, Stop
from holdfast.worker.settler import Settler
from holdfast.worker.slots import Slots

_NO_RETRY = Retry.none()


class Runner:
    """Starts what was claimed, hands its end to the settler, and keeps its lease until then.

    `ended` is called when a slot is free again, `died` when a part fails that nothing works
    without.
    """

    def __init__(
        self,
        *,
        worker_id: str,
        store: Store,
        make_keepers_store: Callable[[], Store],
        definitions: Mapping[str, Definition],
        resources: Mapping[str, Any],
        settings: Settings,
        seam: Seam,
        slots: Slots,
        ended: Callable[[str], None],
        died: Callable[[BaseException], None],
    ) -> None:
        self.report = WorkerReport()
        self.keeper = LeaseKeeper(make_keepers_store, seam, settings, self.lost, died)
        self.settler = Settler(store, Backoff(seam, 0.1, 5.0), self._settled)
        self._worker_id = worker_id
        self._store = store
        self._definitions = definitions
        self._resources = resources
        self._settings = settings
        self._seam = seam
        self._slots = slots
        self._ended = ended
        self._died = died
        self._threads = seam.threads("holdfast-handler", slots.concurrency)
        self._executor = Executor(definitions, settings, self._threads)
        self._runs: set[Run] = set()
        self._checks: set[asyncio.Task[None]] = set()
        self._closing = False

    @property
    def running(self) -> int:
        return len(self._runs)

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """The handlers that run, as something to wait for."""
        return {run.task for run in self._runs if run.task is not None}

    async def room(self) -> None:
        """Wait until a handler can start, and until the settler is not far behind."""
        await self._slots.wait_free()
        await self.settler.wait_room()

    def start(self, jobs: Sequence[Claimed]) -> None:
        """Hold the leases of all before the first handler can block the loop, then run them."""
        events.log_claim(self._worker_id, jobs)
        loop = asyncio.get_running_loop()
        now = self._seam.monotonic()
        runs = [Run(job, self._context(job), now) for job in jobs]
        for run in runs:
            self.keeper.hold(run.lease)
            self._slots.take(run.job.queue)
        self._runs.update(runs)
        for run in runs:
            if self._closing:
                self._settle(run, Released())
                self._end(run)
            else:
                run.task = loop.create_task(self._perform(run))

    def _context(self, job: Claimed) -> Context:
        return Context(job, self._store, self._resources, self._settings.result_bytes_max)

    def close(self) -> None:
        """Start nothing more: what a claim that is under way still brings is released."""
        self._closing = True

    def stop_all(self) -> None:
        for run in list(self._runs):
            run.tell_to_stop(Stop.SHUTDOWN)

    def abandon_all(self) -> None:
        """Release the jobs of handlers that did not listen. The process ends now, and what they
        may still write is fenced off."""
        for run in list(self._runs):
            if run.settlement is None:
                self._settle(run, Released())
            run.tell_to_stop(Stop.LOST)

    def end_threads(self) -> None:
        self._threads.close()

    def lost(self, leases: Sequence[Lost]) -> None:
        """These leases are gone: stop their handlers, and write nothing for them."""
        gone = {Lease(lost.job_id, lost.fence): lost.state for lost in leases}
        for run in [run for run in self._runs if run.lease in gone]:
            self.keeper.drop(run.lease)
            # One that is being settled, by us or by its own transaction, learns from that.
            if run.stop is Stop.LOST or run.settlement or run.context.settles_itself:
                continue
            self._tell_lost(run, gone[run.lease])
            run.tell_to_stop(Stop.LOST)

    def check_canceled(self, job_id: UUID) -> None:
        """Somebody says that this job was canceled: a hint, so the store is asked."""
        held = [run.lease for run in self._runs if run.job.id == job_id]
        if held:
            check = asyncio.get_running_loop().create_task(self._check(held))
            self._checks.add(check)
            check.add_done_callback(self._checks.discard)

    async def _check(self, leases: Sequence[Lease]) -> None:
        try:
            self.lost(await self._store.renew(leases, self._settings.lease_seconds))
        except StoreError:
            return  # the next renewal will tell

    async def _perform(self, run: Run) -> None:
        """One job's line: run it, decide, hand the settlement over, make room for the next."""
        events.log_start(self._worker_id, run.job)
        try:
            self._settle(run, await self._executor.execute(run))
            if run.thread is not None and not run.thread.done() and not self._closing:
                # The slot stays taken as long as the thread does.
                await asyncio.wait([run.thread])
        except Exception as error:
            # Not the handler's error, but ours: no job may stay leased by a worker that lost it.
            self._died(error)
        finally:
            self._end(run)

    def _settle(self, run: Run, outcome: Outcome | None) -> None:
        run.ended_monotonic = self._seam.monotonic()
        if run.context.completed is not None:
            self._settle_completed(run, run.context.completed, outcome)
            return
        if outcome is None and run.stop is not Stop.LOST:
            self._tell_lost(run, None)
        if outcome is None or run.stop is Stop.LOST:
            self.keeper.drop(run.lease)
            return
        definition = self._definitions.get(run.job.name)
        retry = definition.retry if definition is not None else _NO_RETRY
        run.settlement = decide(run.job, outcome, retry, self._seam.random.random())
        self.settler.put(run, run.settlement)

    def _settle_completed(self, run: Run, settlement: Settlement, outcome: Outcome | None) -> None:
        """The handler's own transaction has settled the job; what came after can't change that."""
        if run.settlement is None:
            run.settlement = settlement
            self._settled(run, settlement, None)
        if isinstance(outcome, Failed):
            events.log_error_after_completing(self._worker_id, run.job, outcome.code)

    def _end(self, run: Run) -> None:
        self._runs.discard(run)
        self._slots.give_back(run.job.queue)
        self._ended(run.job.queue)

    def _settled(self, run: Run, settlement: Settlement, lost: Lost | None) -> None:
        self.keeper.drop(run.lease)
        if lost is not None:
            self._tell_lost(run, lost.state)
            return
        self.report.count(settlement)
        events.log_settle(self._worker_id, run.job, settlement, run.duration_ms)

    def _tell_lost(self, run: Run, state: State | None) -> None:
        self.report.lost += 1
        events.log_lost(self._worker_id, run.job, state)
