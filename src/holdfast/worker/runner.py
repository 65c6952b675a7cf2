"""The jobs that a worker has, from their claim to the acknowledgement of their settlement."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from holdfast.context import Context, Surroundings
from holdfast.domain import codec
from holdfast.domain.errors import JobTimeout, StoreError, WorkerHung
from holdfast.domain.job import Claimed, Lease, Lost, Settlement
from holdfast.domain.outcomes import (
    Failed,
    Outcome,
    Released,
    Succeeded,
    decide,
    decide_parked,
    fail_unjudged,
    found_at_work,
)
from holdfast.domain.retry import Retry
from holdfast.domain.states import State
from holdfast.job_function import Definition
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store
from holdfast.worker.classify import timed_out
from holdfast.worker.deadline import StopDeadline
from holdfast.worker.events import Events
from holdfast.worker.executor import Executor
from holdfast.worker.heartbeat import Heartbeat
from holdfast.worker.lease_keeper import Beside, LeaseKeeper
from holdfast.worker.processes.lifeline import Lifeline
from holdfast.worker.processes.pool import Children
from holdfast.worker.report import WorkerReport, verb
from holdfast.worker.run import Counted, Run, Stop
from holdfast.worker.settler import Ending, Settler
from holdfast.worker.slots import Slots
from holdfast.worker.watchdog import Watchdog

_NO_RETRY = Retry.none()


class Runner:
    """Starts what was claimed, hands its end to the settler, and keeps its lease until then.

    `ended` is called when a slot is free again, `has_room` when a queue with a cap may run another
    job, `died` when a part fails that nothing works without; `struck` with the keys of breakers
    against which failures were counted, `works` with that of one whose job was sent ahead and found
    it at work.
    """

    def __init__(
        self,
        *,
        events: Events,
        store: Store,
        make_keepers_store: Callable[[], Store],
        definitions: Mapping[str, Definition],
        resources: Mapping[str, Any],
        settings: Settings,
        seam: Seam,
        slots: Slots,
        children: Children | None,
        heartbeat: Heartbeat,
        deadline: StopDeadline,
        lifeline: Lifeline | None,
        beside: Sequence[Beside],
        ended: Callable[[str], None],
        has_room: Callable[[], None],
        struck: Callable[[Sequence[str]], None],
        works: Callable[[str], None],
        died: Callable[[BaseException], None],
    ) -> None:
        self.report = WorkerReport()
        beside = [Watchdog(self, seam, settings, deadline).run, *beside]
        self.keeper = LeaseKeeper(
            make_keepers_store, seam, settings, self.lost, died, beside, heartbeat, deadline
        )
        self._lifeline = lifeline
        self.settler = Settler(store, seam, self._settled, struck)
        self._events = events
        self._store = store
        self._definitions = definitions
        self._around = Surroundings(
            store, resources, settings.results, seam, asyncio.get_running_loop()
        )
        self._settings = settings
        self._seam = seam
        self._slots = slots
        self._ended = ended
        self._has_room = has_room
        self._works = works
        self._died = died
        self._threads = seam.threads("holdfast-handler", slots.concurrency)
        self._children = children
        self._executor = Executor(
            definitions, settings, seam, self._threads, children, self._give_up
        )
        self._runs: set[Run] = set()
        self._giving_up: asyncio.TimerHandle | None = None
        self._checks: set[asyncio.Task[None]] = set()
        self._closing = False

    @property
    def running(self) -> int:
        return len(self._runs)

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """The handlers that run and are worth waiting for."""
        return {run.task for run in self._runs if run.task is not None and not run.given_up}

    async def room(self) -> None:
        """Wait until a handler can start, and until the settler is not far behind."""
        await self._slots.wait_free()
        await self.settler.wait_room()

    def start(self, jobs: Sequence[Claimed]) -> None:
        """Hold the leases of all before the first handler can block the loop, then run them."""
        self._events.claimed(jobs)
        if self._lifeline is not None:
            self._lifeline.claimed(jobs)
        loop = asyncio.get_running_loop()
        now = self._seam.monotonic()
        runs = [Run(job, Context(job, self._around), now) for job in jobs]
        self.keeper.hold(jobs)
        self._slots.take([job.queue for job in jobs])
        self._runs.update(runs)
        for run in runs:
            if self._closing:
                self._settle(run, Released())
                self._end(run)
            else:
                run.task = loop.create_task(self._perform(run))

    def close(self) -> None:
        """Start nothing more: what a claim that is under way still brings is released."""
        self._closing = True

    def stop_all(self) -> None:
        for run in list(self._runs):
            run.tell_to_stop(Stop.SHUTDOWN)

    def release_all(self) -> set[asyncio.Task[Any]]:
        """Release the jobs of handlers that did not listen; what they may still write is fenced
        off. Answer those that are just committing: they hold their rows, and a release would wait
        for that."""
        committing = set()
        for run in list(self._runs):
            if run.task is not None and run.is_committing:
                committing.add(run.task)
            elif run.settlement is None:
                self._settle(run, Released())
                run.tell_to_stop(Stop.LOST)
        return committing

    def abandon_all(self) -> None:
        """Wait for no handler any longer: the process ends now."""
        for run in list(self._runs):
            run.tell_to_stop(Stop.LOST)
            run.context.give_up()
            if run.task is not None:
                # Or `asyncio.run` would wait for it, and the process never end.
                asyncio.tasks._unregister_task(run.task)

    def end_threads(self) -> None:
        self._threads.close()

    def lost(self, leases: Sequence[Lost]) -> None:
        """These leases are gone: stop their handlers, and write nothing for them."""
        gone = {Lease(lost.job_id, lost.fence): lost.state for lost in leases}
        for run in [run for run in self._runs if run.lease in gone]:
            self.keeper.leave(run.job)
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
        """Fail the job of an error that got past the executor and the retry policy, and ask neither
        again: no job may stay leased by a worker that has lost sight of it."""
        name = codec.type_name(error)
        self._events.unjudged(run.job, name)
        if run.settlement is not None or run.given_up:
            return
        if run.context.completed is not None:
            self._settle_completed(run, run.context.completed, None)
        elif run.is_lost:
            self.keeper.drop(run.job)
        else:
            self._put(run, fail_unjudged(run.job, name))

    def _give_up(self, run: Run, outcome: Outcome | None) -> None:
        """Settle the job of a handler that does not stop. Its slot stays taken as long as it runs;
        a worker that has no slot left can only end, and be started anew by its supervisor."""
        self._settle(run, outcome)
        seconds = self._seam.monotonic() - run.started_monotonic
        self._events.hung(run, seconds)
        self._slots.hang()
        hung = self._slots.hung
        if hung == self._slots.concurrency and not self._closing:
            self._giving_up = asyncio.get_running_loop().call_later(
                self._settings.timeout_grace_seconds, self._died, WorkerHung(hung)
            )

    def _recover(self) -> None:
        self._slots.recover()
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def unsettled(self) -> list[Run]:
        runs = self._runs.copy()  # in one step: this may be asked from any thread
        return [run for run in runs if run.settlement is None and not run.given_up]

    def settlements_under_way(self) -> list[Settlement]:
        return self.settler.under_way()

    def time_out(self, run: Run, text: str) -> Settlement:
        definition = self._definitions[run.job.name]
        if definition.timeout_seconds is None:
            return self._decide(run, Failed(JobTimeout.default_code, text))
        return self._decide(run, timed_out(definition, f"; it {text}"))

    def release(self, run: Run) -> Settlement:
        return self._decide(run, Released())

    def kill_children(self) -> None:
        if self._children is not None:
            self._children.kill()

    def _settle(self, run: Run, outcome: Outcome | None) -> None:
        run.ended_monotonic = self._seam.monotonic()
        if run.job.breaker is not None:
            self._learn(run, run.job.breaker, outcome)
        if run.context.completed is not None:
            self._settle_completed(run, run.context.completed, outcome)
            return
        if outcome is None and run.stop is not Stop.LOST:
            self._tell_lost(run, None)
        if outcome is None or run.stop is Stop.LOST:
            self.keeper.leave(run.job)
            return
        self._put(run, self._decide(run, outcome), self._counted(run, outcome))

    def _put(self, run: Run, settlement: Settlement, counted: Counted | None = None) -> None:
        run.settlement = settlement
        run.counted = counted
        self.settler.put(run, settlement)

    def _decide(self, run: Run, outcome: Outcome) -> Settlement:
        definition = self._definitions.get(run.job.name)
        retry = definition.retry if definition is not None else _NO_RETRY
        return decide(run.job, outcome, retry, self._seam.random.random())

    def _counted(self, run: Run, outcome: Outcome) -> Counted | None:
        """What to make of a failure if the job's breaker counts it."""
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
        """Take in what the end of a job tells of its breaker. A failure of another kind answers a
        probe, but is no success: it may have come before the job asked for anything."""
        succeeded = run.context.completed is not None or isinstance(outcome, Succeeded)
        if succeeded:
            self.settler.worked(key, run.ended_monotonic)
        if run.job.probe and (succeeded or (outcome is not None and found_at_work(outcome))):
            self._works(key)

    def _settle_completed(self, run: Run, settlement: Settlement, outcome: Outcome | None) -> None:
        """The handler's own transaction has settled the job; what came after can't change that."""
        if run.settlement is None:
            run.settlement = settlement
            self._settled([(run, settlement)], [])
        if isinstance(outcome, Failed):
            self._events.failed_after_completing(run.job, outcome.code)

    def _end(self, run: Run) -> None:
        self._runs.discard(run)
        if run.given_up:
            self._recover()
        self._slots.give_back(run.job.queue)
        self._ended(run.job.queue)

    def _settled(self, endings: Sequence[Ending], lost: Sequence[Lost]) -> None:
        found = {each.job_id: each.state for each in lost}
        for run, settlement in endings:
            if found and run.job.id in found:
                self.keeper.leave(run.job)
                self._tell_lost(run, found[run.job.id])
                continue
            self.keeper.drop(run.job)
            outcome = verb(settlement)
            self.report.count(outcome)
            self._events.settled(run, settlement, outcome)
            if run.job.capped:
                self._has_room()

    def _tell_lost(self, run: Run, state: State | None) -> None:
        self.report.lost += 1
        self._events.lost(run, state)
