"""The runner: owns a worker's jobs from their claim until their settlement is acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from holdfast.context import Context, Surroundings
from holdfast.domain import texts
from holdfast.domain.breakers import Strike
from holdfast.domain.errors import JobTimeout, LeaseLost, StoreError, WorkerHung
from holdfast.domain.job import Claimed, Lease, Lost, Settlement
from holdfast.domain.outcomes import (
    Counted,
    Failed,
    Outcome,
    Released,
    Succeeded,
    Unstarted,
    Verdict,
    decide,
    decide_parked,
    fail_unjudged,
    found_at_work,
)
from holdfast.domain.retry import Retry
from holdfast.domain.states import State
from holdfast.worker.classify import classify, timed_out
from holdfast.worker.events import Events
from holdfast.worker.executor import Executor
from holdfast.worker.lease_keeper import LeaseKeeper
from holdfast.worker.parker import Parker
from holdfast.worker.prefetch import Prefetch
from holdfast.worker.processes.lifeline import Lifeline
from holdfast.worker.report import WorkerReport, verb
from holdfast.worker.run import Run, Stop
from holdfast.worker.settler import Ending, Settler
from holdfast.worker.setup import Setup
from holdfast.worker.work import Work

_NO_RETRY = Retry.none()


class Runner:
    """Starts claimed jobs, hands their ends to the settler, and keeps their leases until then.

    `wake` is called when more jobs may be claimed, `died` when the worker can't continue.
    """

    def __init__(
        self,
        *,
        setup: Setup,
        events: Events,
        work: Work,
        keeper: LeaseKeeper,
        lifeline: Lifeline | None,
        prefetch: Prefetch,
        parker: Parker | None,
        wake: Callable[[], None],
        died: Callable[[BaseException], None],
    ) -> None:
        self.report = WorkerReport()
        self._store = store = setup.store
        self._settings = settings = setup.settings
        self._seam = seam = setup.seam
        self._slots = setup.slots
        self._until_empty = setup.horizon_seconds is not None
        self._events = events
        self._definitions = work.definitions
        loop = asyncio.get_running_loop()
        self._around = Surroundings(
            store, work.resources, settings.results, seam, loop, work.children, judge=self
        )
        self._keeper = keeper
        self._escorts = setup.escorts
        self._lifeline = lifeline
        self._prefetch = prefetch
        self._parker = parker
        self._wake = wake
        self._died = died
        self.settler = Settler(store, seam, self._settled, self._struck)
        self._threads = seam.threads("holdfast-handler", self._slots.concurrency)
        self._executor = Executor(work, settings, seam, self._threads, self._give_up)
        self._runs: set[Run] = set()
        self._giving_up: asyncio.TimerHandle | None = None
        self._checks: set[asyncio.Task[None]] = set()
        self._closing = False

    @property
    def in_hand(self) -> int:
        """How many jobs run or are prefetched, and given up ones whose handler has not returned."""
        return len(self._runs)

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """The running handlers, without those that are given up."""
        return {run.task for run in self._runs if run.task is not None and not run.given_up}

    async def room(self) -> None:
        """Wait until more jobs can be claimed and the settler is not far behind."""
        await self._prefetch.wait_room()
        await self.settler.wait_room()

    def start(self, jobs: Sequence[Claimed]) -> None:
        """Keep the leases of all jobs before the first handler can block the loop, then run those
        that there are slots for."""
        self._events.claimed(jobs)
        if self._lifeline is not None:
            self._lifeline.claimed(jobs)
        now = self._seam.monotonic()
        runs = [Run(job, Context(job, self._around), now, now) for job in jobs]
        self._keeper.keep(jobs)
        self._escorts.started(jobs)
        self._runs.update(runs)
        if self._closing:
            self.release_unstarted(runs)
            return
        for run in self._prefetch.add(runs):
            self._begin(run, now)

    def _begin(self, run: Run, now: float) -> None:
        run.started_monotonic = now
        run.task = asyncio.get_running_loop().create_task(self._perform(run))

    def release_unstarted(self, runs: Sequence[Run]) -> None:
        """Release jobs that were claimed and did not start."""
        for run in runs:
            self._runs.discard(run)
            self._settle(run, self.unstarted(run))

    def unstarted(self, run: Run) -> Unstarted:
        return Unstarted(self._seam.monotonic() - run.started_monotonic)

    def released_unstarted(self, endings: Sequence[Ending], *, are_written: bool) -> None:
        """The watchdog has taken these jobs from the blocked loop."""
        ours = [ending for ending in endings if not ending[0].is_lost]
        self._runs.difference_update(run for run, _ in endings)
        if are_written:
            self._settled(ours, [])
        else:
            for ending in ours:
                self.settler.put(*ending)

    def close(self) -> None:
        """Start nothing more. Release prefetched jobs, and those of a claim in progress."""
        self._closing = True
        self._prefetch.release_all()

    def stop_all(self) -> None:
        for run in list(self._runs):
            run.request_stop(Stop.SHUTDOWN)

    def release_all(self) -> set[asyncio.Task[Any]]:
        """Release the jobs of handlers that did not stop; the fence rejects what they still write.
        Return the tasks that are committing: their rows are locked, so a release would wait."""
        committing = set()
        for run in list(self._runs):
            if run.task is not None and run.is_committing:
                committing.add(run.task)
            elif run.settlement is None:
                self._settle(run, Released())
                run.request_stop(Stop.LOST)
        return committing

    def abandon_all(self) -> None:
        """Stop waiting for handlers: the process is exiting."""
        for run in list(self._runs):
            run.request_stop(Stop.LOST)
            run.context._give_up()
            if run.task is not None:
                # Otherwise `asyncio.run` waits for it, and the process never exits.
                asyncio.tasks._unregister_task(run.task)

    def close_threads(self) -> None:
        self._threads.close()

    def lost(self, leases: Sequence[Lost]) -> None:
        """Stop the handlers of lost leases, and write nothing for them."""
        gone = {Lease(lost.job_id, lost.fence): lost.state for lost in leases}
        for run in [run for run in self._runs if run.lease in gone]:
            self._keeper.drop_unsettled(run.job)
            # A run that is being settled, by us or by its own transaction, learns from that.
            if run.is_lost or run.settlement or run.context._settles_itself:
                continue
            self._report_lost(run, gone[run.lease])
            run.request_stop(Stop.LOST)

    def check_canceled(self, job_id: UUID) -> None:
        """Check whether this job was canceled: a wake-up is only a hint."""
        if leases := [run.lease for run in self._runs if run.job.id == job_id]:
            check = asyncio.get_running_loop().create_task(self._check(leases))
            self._checks.add(check)
            check.add_done_callback(self._checks.discard)

    async def _check(self, leases: Sequence[Lease]) -> None:
        with suppress(StoreError):  # the next renewal finds out
            self.lost(await self._store.renew(leases, self._settings.lease_seconds))

    async def _perform(self, run: Run) -> None:
        """One job's line: run it, decide, hand over the settlement, free the slot."""
        try:
            self._events.started(run)
            outcome = await self._executor.execute(run)
            if not run.given_up:
                self._settle(run, outcome)
        except BaseException as error:
            # Even a CancelledError: only the executor is canceled here.
            self._settle_unjudged(run, error)
        finally:
            self._end(run)

    def _settle_unjudged(self, run: Run, error: BaseException) -> None:
        """Fail a job whose error got past the executor or the retry policy, and ask neither again:
        no job may stay leased by a worker that has lost sight of it."""
        name = texts.type_name(error)
        self._events.unjudged(run.job, name)
        if run.settlement is not None or run.given_up:
            return
        if run.context._completed is not None:
            self._settle_completed(run, run.context._completed.settlement, None)
        elif run.is_lost:
            self._keeper.drop(run.job)
        else:
            self._put(run, fail_unjudged(run.job, name))

    def _give_up(self, run: Run, outcome: Outcome | None) -> None:
        """Settle the job of a handler that does not stop. Its slot stays taken until it returns. A
        worker without a slot left can only exit, to be restarted by its supervisor."""
        self._settle(run, outcome)
        self._events.hung(run, self._seam.monotonic() - run.started_monotonic)
        self._slots.hang()
        hung = self._slots.hung
        if hung == self._slots.concurrency and not self._closing:
            self._giving_up = asyncio.get_running_loop().call_later(
                self._settings.timeout_grace_seconds, self._died, WorkerHung(hung)
            )

    def unsettled(self) -> list[Run]:
        """The runs that are not settled yet. Safe from any thread."""
        runs = self._runs.copy()  # in one step
        return [run for run in runs if run.settlement is None and not run.given_up]

    def time_out(self, run: Run, text: str) -> Settlement:
        definition = self._definitions[run.job.name]
        if definition.timeout_seconds is None:
            return self.decide(run, Failed(JobTimeout.default_code, text))
        return self.decide(run, timed_out(definition, f"; it {text}"))

    def decide(self, run: Run, outcome: Outcome) -> Settlement:
        definition = self._definitions.get(run.job.name)
        retry = definition.retry if definition is not None else _NO_RETRY
        return decide(run.job, outcome, retry, self._seam.random.random())

    def judge(self, job: Claimed, error: BaseException) -> Verdict:
        """What an error that its handler has caught means for a job: see `Context.failing`."""
        run = next((run for run in self.unsettled() if run.job is job), None)
        outcome = None if run is None else classify(self._definitions[job.name], run, error)
        if run is None or outcome is None:
            raise LeaseLost(job.id, job.fence)
        return Verdict(outcome, self.decide(run, outcome), self._counted(run, outcome))

    async def strike(self, strike: Strike) -> bool:
        return await self.settler.count_now(strike)

    def _settle(self, run: Run, outcome: Outcome | None) -> None:
        run.ended_monotonic = self._seam.monotonic()
        own = run.context._completed
        if run.job.breaker is not None:
            self._learn(run, run.job.breaker, outcome if own is None else own.outcome)
        if own is not None:
            self._settle_completed(run, own.settlement, outcome)
            return
        if outcome is None and not run.is_lost:
            self._report_lost(run, None)
        if outcome is None or run.is_lost:
            self._keeper.drop_unsettled(run.job)
            return
        settlement, counted = self.decide(run, outcome), self._counted(run, outcome)
        if counted is not None and (found_open := run.context._found_open) is not None:
            # A block of the handler has counted it, and was rolled back.
            settlement, counted = counted.parked if found_open else settlement, None
        self._put(run, settlement, counted)

    def _put(self, run: Run, settlement: Settlement, counted: Counted | None = None) -> None:
        run.settlement = settlement
        run.counted = counted
        self.settler.put(run, settlement)

    def _counted(self, run: Run, outcome: Outcome) -> Counted | None:
        """What to write if the job's breaker counts this failure."""
        key = run.job.breaker
        if key is None or not isinstance(outcome, Failed) or not outcome.dependency_failed:
            return None
        definition = self._definitions[run.job.name]
        if definition.breaker is None:
            return None
        chance = self._seam.random.random()
        return Counted(
            definition.breaker.strike(key, outcome.code, outcome.text),
            decide_parked(run.job, outcome, definition.retry, chance, definition.breaker),
        )

    def _learn(self, run: Run, key: str, outcome: Outcome | None) -> None:
        """Note what the end of a job says about its breaker. A failure of another kind answers a
        probe, but is no success: it may have come before the job used the dependency."""
        succeeded = isinstance(outcome, Succeeded)
        if succeeded:
            self.settler.worked(key, run.ended_monotonic)
        found_working = succeeded or (outcome is not None and found_at_work(outcome))
        if run.job.probe and found_working and self._parker is not None:
            self._parker.close(key)

    def _settle_completed(self, run: Run, settlement: Settlement, outcome: Outcome | None) -> None:
        """The handler's own transaction settled the job. Nothing that follows can change that."""
        if run.settlement is None:
            run.settlement = settlement
            self._settled([(run, settlement)], [])
        if isinstance(outcome, Failed) and settlement.state is State.SUCCEEDED:
            self._events.failed_after_completing(run.job, outcome.code)

    def _end(self, run: Run) -> None:
        self._runs.discard(run)
        if run.given_up:
            self._slots.hung -= 1
            if self._giving_up is not None:
                self._giving_up.cancel()
                self._giving_up = None
        now = self._seam.monotonic()
        following = self._prefetch.follow(run, now - run.started_monotonic)
        if following is not None:
            self._begin(following, now)
        if run.job.queue in self._slots.caps or (self._until_empty and not self._runs):
            self._wake()

    def _struck(self, keys: Sequence[str], found_open: Sequence[bool]) -> None:
        if self._parker is not None:
            self._parker.struck(keys)
        if any(found_open):
            self._prefetch.release_all()  # many of them may have the same breaker

    def _settled(self, endings: Sequence[Ending], lost: Sequence[Lost]) -> None:
        found = {each.job_id: each.state for each in lost}
        for run, settlement in endings:
            if found and run.job.id in found:
                self._keeper.drop_unsettled(run.job)
                self._report_lost(run, found[run.job.id])
                continue
            self._keeper.drop(run.job)
            outcome = verb(settlement)
            self.report.count(outcome)
            self._events.settled(run, settlement, outcome)
            self._escorts.settled(run.job, settlement)
            if run.job.capped:
                self._wake()

    def _report_lost(self, run: Run, state: State | None) -> None:
        self.report.lost += 1
        self._events.lost(run, state)
        self._escorts.lost(run.job)
