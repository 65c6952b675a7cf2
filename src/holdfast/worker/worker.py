"""The worker: claim -> run -> settle, from its start to a clean stop.

It starts the lease keeper, the warden and the reclaimer, then listener, settler, sweeper, parker,
the application's sweeps and claimer side by side. It stops in reverse order: the keeper is last,
when no lease is left. Nothing here waits for a database that doesn't answer: the worker polls until
it can listen, and reacts to a signal whatever it is doing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.domain.job import Lost, Reclaimed
from holdfast.domain.limits import STOP_SECONDS_MAX
from holdfast.observability import metrics
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Breakers, Pooled, Store, capability
from holdfast.stores.vacuums import Vacuums
from holdfast.wakeups.messengers import Messengers
from holdfast.wakeups.protocol import Wakeup
from holdfast.worker.claimer import Claimer
from holdfast.worker.deadline import STOP_HANDLERS_SECONDS
from holdfast.worker.events import Events
from holdfast.worker.lease_keeper import Beside, LeaseKeeper
from holdfast.worker.listen import listen
from holdfast.worker.parker import Parker
from holdfast.worker.prefetch import Prefetch
from holdfast.worker.processes.launch import Birth, Launch
from holdfast.worker.processes.lifeline import Lifeline
from holdfast.worker.quarantine import Quarantine
from holdfast.worker.reclaim import reclaim_worker
from holdfast.worker.reclaimer import Reclaimer
from holdfast.worker.report import WorkerReport
from holdfast.worker.runner import Runner
from holdfast.worker.setup import Setup
from holdfast.worker.slots import Slots
from holdfast.worker.stop import StopRequest, unless_set
from holdfast.worker.strays import Strays
from holdfast.worker.sweeper import Sweeper
from holdfast.worker.sweeps import Sweep, Sweeps
from holdfast.worker.vacuumer import Vacuumer
from holdfast.worker.watchdog import Watchdog
from holdfast.worker.work import Work

FIRST_LOOK_SECONDS_MAX = 5.0
SETTLE_SECONDS_MAX = 5.0
STRAYS_SECONDS = 3.0
LAST_SECONDS = 1.0

Part = asyncio.Task[Any]


class Worker:
    """With `horizon_seconds`, it ends when nothing runs and nothing becomes due within them. A
    worker that owns its process exits it in time when it has to stop.

    `birth` is what another process passed to start this one as a worker. `find_launch` returns how
    to start such a process, which reports its metrics to `metrics_socket`.
    """

    def __init__(
        self,
        *,
        birth: Birth | None,
        owns_process: bool,
        stop: StopRequest,
        find_launch: Callable[[], Launch | None],
        metrics_socket: str | None,
        database: str,
        store: Store,
        make_keepers_store: Callable[[], Store],
        work: Work,
        remote_names: Collection[str],
        sweeps: Sequence[Sweep],
        settings: Settings,
        seam: Seam,
        counted: metrics.Metrics,
        messengers: Messengers,
        slots: Slots,
        horizon_seconds: float | None,
    ) -> None:
        worker_id = seam.identity(token=birth.token if birth else None)
        is_alone = birth is not None and birth.suspects_only
        names = tuple(sorted(work.definitions))
        self._setup = setup = Setup(
            worker_id, store, names, slots, settings, seam, messengers, is_alone, horizon_seconds
        )
        self._find_launch = find_launch
        self._metrics_socket = metrics_socket
        self._store = store
        self._seam = seam
        self._slots = slots
        self._metrics = counted
        self._children = work.children
        self._database = database
        self._events = Events(worker_id, counted, seam, log_errors=settings.log_errors)
        self._stop = stop
        stop.signaled = self._signaled
        self._stop_by: float | None = None
        self._fatal: BaseException | None = None
        self._keeper = LeaseKeeper(make_keepers_store, setup, self._lost, self._die, stop.deadline)
        # A quarantine process is a short-lived helper of a worker that does this.
        self._reclaimer = (
            None if is_alone else Reclaimer(make_keepers_store, seam, settings, self._reclaimed)
        )
        guarded = owns_process and seam.starts_processes
        self._lifeline = Lifeline(setup, self._keeper.leased) if guarded else None
        self._parker = self._make_parker()
        self._prefetch = Prefetch(slots, seam, lambda runs: self._runner.release_unstarted(runs))
        self._runner = self._make_runner(work)
        self._strays = Strays(setup, self._keeper.known)
        self._claimer = self._make_claimer()
        known = (*names, *remote_names)
        self._sweeper = Sweeper(setup, known, lambda count: self._quarantine.found(count))
        self._sweeps = Sweeps(setup, sweeps, stop.requested)
        self._quarantine = self._make_quarantine()

    def _make_claimer(self) -> Claimer:
        return Claimer(
            self._setup,
            self._strays,
            self._prefetch,
            self._runner.start,
            self._runner.room,
            self._is_done,
        )

    def _make_parker(self) -> Parker | None:
        breakers = capability(self._store, Breakers)
        if breakers is None or self._setup.suspects_only:
            return None
        return Parker(breakers, self._setup, lambda seconds: self._claimer.probe_in(seconds))

    def _make_runner(self, work: Work) -> Runner:
        return Runner(
            setup=self._setup,
            events=self._events,
            work=work,
            keeper=self._keeper,
            lifeline=self._lifeline,
            prefetch=self._prefetch,
            parker=self._parker,
            wake=lambda: self._claimer.wake(),
            died=self._die,
        )

    def _make_quarantine(self) -> Quarantine:
        return Quarantine(
            find_launch=self._find_quarantine_launch,
            run_here=self._claimer.run_suspects,
            reclaim=partial(reclaim_worker, self._store),
            events=self._events,
            look=self._sweeper.look_for_suspects,
            died=self._die,
            processes_max=self._setup.settings.alone_processes,
            seam=self._seam,
        )

    def _beside(self) -> Iterator[Beside]:
        """What runs beside the lease keeper, and shares nothing with the handlers either."""
        yield Watchdog(
            self._runner, self._prefetch, self._children, self._setup, self._stop.deadline
        ).run
        if (lifeline := self._lifeline) is not None:
            yield lambda _: lifeline.run()
        if (reclaimer := self._reclaimer) is not None:
            yield lambda _: reclaimer.run()

    async def run(self) -> WorkerReport:
        """Work until a stop is requested, or until nothing is left to do if that was asked for.

        Canceling it requests a stop: running jobs are finished or released before this returns.
        """
        working = asyncio.create_task(self._run())
        canceled: asyncio.CancelledError | None = None
        while not working.done():
            try:
                await asyncio.wait({working})
            except asyncio.CancelledError as error:
                canceled = error
                self._stop.request()
        report = working.result()
        if canceled is not None:
            raise canceled
        return report

    async def _run(self) -> WorkerReport:
        self._events.worker_started(self._setup, self._database)
        self._keeper.start([*self._beside()])
        stopping = self._stop.requested
        try:
            await unless_set(stopping, self._wait_ready())
            if not stopping.is_set():
                with self._metrics.measuring(self._measure):
                    await self._work()
        finally:
            await self._stop_keeper()
            self._runner.close_threads()
        if self._fatal is not None:
            raise self._fatal
        self._events.stopped(self._runner.report)
        return self._runner.report

    async def _wait_ready(self) -> None:
        """Wait for what guards the first job: renewals, and the warden. Also let the reclaimer look
        once: workers that die soon after they start a job would never reclaim any otherwise."""
        await asyncio.wrap_future(self._keeper.is_open)
        if self._lifeline is not None:
            await asyncio.wrap_future(self._lifeline.is_guarded)
        if self._reclaimer is not None:
            looking = asyncio.wrap_future(self._reclaimer.has_looked)
            await asyncio.wait({looking}, timeout=FIRST_LOOK_SECONDS_MAX)

    def _measure(self) -> dict[str, float]:
        measured: dict[str, float] = {
            metrics.SLOTS.name: self._slots.concurrency,
            metrics.SLOTS_IN_USE.name: self._slots.used,
            metrics.MESSENGERS_DOWN.name: self._setup.messengers.down,
            metrics.CLAIMING.name: not (self._setup.suspects_only or self._stop.requested.is_set()),
        }
        if isinstance(self._store, Pooled):
            measured[metrics.POOL_IN_USE.name], measured[metrics.POOL.name] = self._store.pool_use
        return measured

    async def _work(self) -> None:
        listening = asyncio.create_task(
            listen(self._store, self._setup.messengers, self._heard, self._seam)
        )
        settling = asyncio.create_task(self._runner.settler.run())
        upkeep = [asyncio.create_task(part) for part in self._upkeep()]
        claiming = asyncio.create_task(self._claimer.run())
        stopping = asyncio.create_task(self._stop.requested.wait())
        parts = (listening, settling, *upkeep, claiming)
        try:
            done, _ = await asyncio.wait({*parts, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for part in done & {*parts}:
                self._fatal = self._fatal or part.exception()
            await self._finish_all(claiming, settling, upkeep, listening)
        finally:
            for part in (*parts, stopping):
                part.cancel()
            await asyncio.gather(*parts, stopping, return_exceptions=True)

    def _upkeep(self) -> Iterator[Coroutine[Any, Any, None]]:
        if not self._setup.suspects_only:
            yield self._sweeper.run()
            if (store := capability(self._store, Vacuums)) is not None:
                yield Vacuumer(store, self._setup).run()
        if self._parker is not None:
            yield self._parker.run()
        yield from self._sweeps.parts()

    async def _finish_all(
        self, claiming: Part, settling: Part, upkeep: Sequence[Part], listening: Part
    ) -> None:
        """Let handlers finish within the grace time, then stop them and release their jobs."""
        deadline = self._stop.deadline.grace_until
        self._stop.requested.set()
        self._claimer.stop()
        self._setup.escorts.detach()
        self._runner.close()
        self._slots.release_waiters()
        self._prefetch.release_waiters()
        self._quarantine.stop()
        hurrying = asyncio.create_task(self._stop.hurried.wait())
        await _wait_first({claiming, hurrying}, max(1.0, deadline - self._seam.monotonic()))
        await self._handlers_end(deadline - self._seam.monotonic(), hurrying)
        hurrying.cancel()
        self._stop_by = min(deadline, self._seam.monotonic()) + STOP_SECONDS_MAX
        self._runner.stop_all()
        self._quarantine.stop()
        await self._handlers_end(STOP_HANDLERS_SECONDS)
        await self._end_parts(
            self._settle_rest(self._runner.release_all(), settling, upkeep),
            self._end_claims(claiming),
            _end(listening),
        )
        self._runner.abandon_all()

    async def _handlers_end(self, seconds: float, hurrying: Part | None = None) -> None:
        """Wait until no handler runs, for these seconds at most, or until `hurrying` is done."""
        deadline = self._seam.monotonic() + seconds
        also = set() if hurrying is None else {hurrying}
        while tasks := self._runner.tasks | self._quarantine.tasks:
            left = deadline - self._seam.monotonic()
            if left <= 0 or any(task.done() for task in also):
                break
            await _wait_first(tasks | also, left)

    async def _end_claims(self, claiming: Part) -> None:
        """Cut off a claim in progress, and release the strays that claims left behind, if the
        database answers while there is time."""
        until = max(self._stop.deadline.grace_until, self._seam.monotonic()) + STRAYS_SECONDS
        await _end(claiming)
        with suppress(TimeoutError):
            async with asyncio.timeout(until - self._seam.monotonic()):
                await self._strays.release_last()

    async def _end_parts(self, *endings: Coroutine[Any, Any, None]) -> None:
        """End side by side what has one deadline."""
        seconds = self._seconds_left()
        parts = {
            *map(asyncio.create_task, endings),
            # Earlier, to reclaim the jobs of a process that was killed for being late.
            asyncio.create_task(self._quarantine.end(seconds - LAST_SECONDS)),
            asyncio.create_task(self._children.close()),
        }
        done, late = await asyncio.wait(parts, timeout=seconds)
        for part in late:
            part.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for part in done:
            self._fatal = self._fatal or part.exception()

    async def _settle_rest(
        self, committing: set[Part], settling: Part, upkeep: Sequence[Part]
    ) -> None:
        """Wait until every settlement is acknowledged, unless the settler has failed. Then end the
        upkeep, which closes the breaker of a probe that succeeded."""

        async def settle() -> None:
            if committing:
                await asyncio.wait(committing)
            await self._runner.settler.wait_idle()

        settled = asyncio.create_task(settle())
        await _wait_first({settled, settling}, SETTLE_SECONDS_MAX)
        settled.cancel()
        await asyncio.gather(*map(_end, upkeep))

    async def _stop_keeper(self) -> None:
        """Let a renewal in progress end, but don't wait long for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(LAST_SECONDS, self._seconds_left())):
                await self._keeper.stop()

    def _seconds_left(self) -> float:
        now = self._seam.monotonic()
        return STOP_SECONDS_MAX if self._stop_by is None else max(0.0, self._stop_by - now)

    def _find_quarantine_launch(self) -> Launch | None:
        """How to start a quarantine process; None if suspects run here, because processes can't be
        started, or because this one runs one job at a time anyway."""
        if self._slots.concurrency == 1 or not self._seam.starts_processes:
            return None
        launch = self._find_launch()
        queues = None if self._slots.queues is None else tuple(self._slots.queues)
        return launch and replace(launch, queues=queues, metrics_socket=self._metrics_socket)

    def _heard(self, wakeup: Wakeup) -> None:
        if wakeup.canceled is not None:
            self._runner.check_canceled(wakeup.canceled)
        elif self._slots.queues is None or wakeup.queue in (None, *self._slots.queues):
            self._claimer.wake(None if wakeup.queue in self._slots.caps else wakeup.job_id)
            self._sweeps.wake(wakeup.queue)

    def _signaled(self, name: str, hurry: bool) -> None:
        self._events.signaled(name, hurry, len(self._runner.tasks))

    def _lost(self, leases: Sequence[Lost]) -> None:
        self._runner.lost(leases)

    def _reclaimed(self, jobs: Sequence[Reclaimed]) -> None:
        self._events.reclaimed(jobs)
        self._claimer.wake()
        if any(job.suspect for job in jobs):
            self._sweeper.wake()

    def _die(self, error: BaseException) -> None:
        """A part that the worker can't do without has failed: stop, and raise its error."""
        self._fatal = self._fatal or error
        self._stop.requested.set()

    async def _is_done(self) -> bool:
        """Is nothing running, and nothing due within the horizon?"""
        horizon_seconds = self._setup.horizon_seconds
        if self._setup.suspects_only:
            return True
        if horizon_seconds is None or self._runner.in_hand:
            return False
        await self._runner.settler.wait_idle()
        if self._parker is not None:
            await self._parker.wait_idle()
        # First the sweeps, so that the look at the jobs finds those that they add.
        if await self._sweeps.are_due_within(horizon_seconds):
            return False
        if await self._store.awaited(self._setup.names, self._slots.queues, horizon_seconds):
            await self._sweeper.look_for_suspects()
            return False
        return True


async def _wait_first(parts: set[Part], seconds: float) -> None:
    await asyncio.wait(parts, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)


async def _end(part: Part) -> None:
    part.cancel()
    await asyncio.wait({part})
