"""The worker: claim -> run -> settle, from its start to a clean stop.

Boot, in order: keeper and warden, then wake-ups, settler, sweeper, parker and claimer side by side.
The stop goes the other way round, and the keeper ends last, when nothing is held any more. None of
it waits for a database that does not answer: it polls until it hears wake-ups, and heeds a signal
whatever it waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from logging import WARNING
from typing import Any

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import Reclaimed
from holdfast.domain.limits import STOP_SECONDS_MAX
from holdfast.job_function import Definition
from holdfast.observability import logs
from holdfast.observability.metrics import POOL, POOL_IN_USE, SLOTS, SLOTS_IN_USE, Metrics
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Breakers, Listening, Pooled, Store, capability
from holdfast.wakeups.protocol import Listener, Wakeup
from holdfast.worker.claimer import Claimer, SuspectClaimer
from holdfast.worker.events import Events
from holdfast.worker.heartbeat import Heartbeat
from holdfast.worker.lease_keeper import Beside
from holdfast.worker.parker import Parker
from holdfast.worker.processes.launch import Birth, Launch
from holdfast.worker.processes.lifeline import Lifeline
from holdfast.worker.processes.pool import Children
from holdfast.worker.quarantine import Quarantine
from holdfast.worker.reclaim import take_back
from holdfast.worker.reclaimer import Reclaimer
from holdfast.worker.report import WorkerReport
from holdfast.worker.runner import Runner
from holdfast.worker.slots import Slots
from holdfast.worker.stop import StopRequest, unless_set
from holdfast.worker.strays import Strays
from holdfast.worker.sweeper import Sweeper

STOP_HANDLERS_SECONDS = 2.0
SETTLE_SECONDS_MAX = 5.0
STRAYS_SECONDS = 3.0
LAST_SECONDS = 1.0
LISTEN_BACKOFF_SECONDS = 0.2, 10.0


class Worker:
    """With `horizon_seconds` it ends when nothing runs and nothing becomes due within them. One
    that owns its process, which does nothing else then, ends it in time when it is told to stop.

    `birth` is what its process was told by another one that started it as a worker; `find_launch`
    is asked how to start one itself, which reports its metrics to `metrics_socket`.
    """

    def __init__(
        self,
        *,
        birth: Birth | None,
        owns_process: bool,
        stop: StopRequest,
        find_launch: Callable[[], Launch | None],
        metrics_socket: str | None,
        store: Store,
        make_keepers_store: Callable[[], Store],
        definitions: Mapping[str, Definition],
        resources: Mapping[str, Any],
        settings: Settings,
        seam: Seam,
        metrics: Metrics,
        slots: Slots,
        children: Children | None,
        horizon_seconds: float | None,
    ) -> None:
        self.id = seam.identity(token=birth.token if birth else None)
        self._events = Events(self.id, metrics, seam)
        self._suspects_only = birth is not None and birth.suspects_only
        self._find_launch = find_launch
        self._metrics_socket = metrics_socket
        self._store = store
        self._names = tuple(sorted(definitions))
        self._settings = settings
        self._seam = seam
        self._slots = slots
        self._children = children
        self._horizon_seconds = horizon_seconds
        self._stop = stop
        self._stop.signaled = self._signaled
        self._stopping = stop.told
        self._hurrying = stop.told_twice
        self._stop_by: float | None = None
        self._fatal: BaseException | None = None
        self._lifeline = self._make_lifeline() if owns_process and seam.starts_processes else None
        self._runner = self._make_runner(make_keepers_store, definitions, resources)
        self._strays = Strays(store, seam, settings, self.id, self._runner.keeper.known)
        self._claimer = self._make_claimer()
        self._sweeper = self._make_sweeper()
        self._parker = self._make_parker()
        self._suspects = self._make_suspects()
        self._metrics = metrics

    def _make_runner(
        self,
        make_store: Callable[[], Store],
        definitions: Mapping[str, Definition],
        resources: Mapping[str, Any],
    ) -> Runner:
        return Runner(
            events=self._events,
            store=self._store,
            make_keepers_store=make_store,
            definitions=definitions,
            resources=resources,
            settings=self._settings,
            seam=self._seam,
            slots=self._slots,
            children=self._children,
            heartbeat=self._make_heartbeat(),
            deadline=self._stop.deadline,
            lifeline=self._lifeline,
            beside=self._beside(make_store),
            ended=self._ended,
            has_room=self._has_room,
            struck=self._struck,
            works=self._works,
            died=self._die,
        )

    def _make_heartbeat(self) -> Heartbeat:
        return Heartbeat(
            worker_id=self.id,
            slots=self._slots,
            names=self._names,
            suspects_only=self._suspects_only,
            settings=self._settings,
            seam=self._seam,
        )

    def _make_lifeline(self) -> Lifeline:
        return Lifeline(self._seam, self._settings, self.id, lambda: self._runner.keeper.leased)

    def _beside(self, make_store: Callable[[], Store]) -> list[Beside]:
        """What runs beside the lease keeper, and shares nothing with the handlers either."""
        beside: list[Beside] = []
        lifeline = self._lifeline
        if lifeline is not None:
            beside.append(lambda _: lifeline.run())
        # A process for suspects is a short-lived helper of a worker, which does that for it.
        if not self._suspects_only:
            reclaimer = Reclaimer(make_store, self._seam, self._settings, self._reclaimed)
            beside.append(lambda _: reclaimer.run())
        return beside

    def _make_claimer(self) -> Claimer:
        return (SuspectClaimer if self._suspects_only else Claimer)(
            self._store,
            self._seam,
            self._settings,
            self._slots,
            self._names,
            self.id,
            self._runner.start,
            self._runner.room,
            self._is_done,
            self._strays,
        )

    def _make_sweeper(self) -> Sweeper:
        return Sweeper(
            self._store,
            self._seam,
            self._settings,
            self._names,
            self._slots.queues,
            self._suspects_found,
        )

    def _make_parker(self) -> Parker | None:
        breakers = capability(self._store, Breakers)
        if breakers is None or self._suspects_only:
            return None
        probe_in = self._claimer.probe_in
        return Parker(breakers, self._seam, self._settings, self.id, probe_in)

    def _make_suspects(self) -> Quarantine:
        return Quarantine(
            find_launch=self._alone_launch,
            run_here=self._claimer.run_suspects,
            take_back=partial(take_back, self._store),
            events=self._events,
            look=self._sweeper.look_for_suspects,
            died=self._die,
            processes_max=self._settings.alone_processes,
            seam=self._seam,
        )

    async def run(self) -> WorkerReport:
        """Work until told to stop, or until there is nothing to do if that was asked for.

        To be canceled is to be told to stop: what runs is finished or released before this ends.
        """
        working = asyncio.create_task(self._run())
        canceled: asyncio.CancelledError | None = None
        while not working.done():
            try:
                await asyncio.wait({working})
            except asyncio.CancelledError as error:
                canceled = error
                self._stop.tell()
        report = working.result()
        if canceled is not None:
            raise canceled
        return report

    async def _run(self) -> WorkerReport:
        self._events.booted(self._slots.concurrency, self._slots.queues)
        self._runner.keeper.start()
        try:
            await unless_set(self._stopping, self._wait_ready())
            if not self._stopping.is_set():
                with self._metrics.measuring(self._measure):
                    await self._work()
        finally:
            await self._stop_keeper()
            self._runner.end_threads()
        if self._fatal is not None:
            raise self._fatal
        self._events.stopped(self._runner.report)
        return self._runner.report

    async def _wait_ready(self) -> None:
        """Wait for what guards the first job: renewals, and the warden."""
        await asyncio.wrap_future(self._runner.keeper.is_open)
        if self._lifeline is not None:
            await asyncio.wrap_future(self._lifeline.is_guarded)

    def _measure(self) -> dict[str, float]:
        measured: dict[str, float] = {
            SLOTS.name: self._slots.concurrency,
            SLOTS_IN_USE.name: self._slots.used,
        }
        if isinstance(self._store, Pooled):
            measured[POOL_IN_USE.name], measured[POOL.name] = self._store.pool_use
        return measured

    def _signaled(self, name: str, hurry: bool) -> None:
        self._events.signaled(name, hurry, self._runner.running)

    async def _work(self) -> None:
        listening = asyncio.create_task(self._listen())
        settling = asyncio.create_task(self._runner.settler.run())
        upkeep = [asyncio.create_task(part) for part in self._upkeep()]
        claiming = asyncio.create_task(self._claimer.run())
        stopping = asyncio.create_task(self._stopping.wait())
        parts = (listening, settling, *upkeep, claiming)
        try:
            done, _ = await asyncio.wait({*parts, stopping}, return_when=asyncio.FIRST_COMPLETED)
            for part in done & {*parts}:
                self._fatal = self._fatal or part.exception()
            await self._finish_all(claiming, settling, listening)
        finally:
            for part in (*parts, stopping):
                part.cancel()
            await asyncio.gather(*parts, stopping, return_exceptions=True)

    async def _listen(self) -> None:
        """Hear wake-ups as soon as the database lets us; until then, polling finds what is due."""
        ears = capability(self._store, Listening)
        listener = None if ears is None else await self._begin_to_hear(ears)
        try:
            await asyncio.Event().wait()
        finally:
            if listener is not None:
                await listener.close()

    async def _begin_to_hear(self, ears: Listening) -> Listener | None:
        trouble = Backoff(self._seam, *LISTEN_BACKOFF_SECONDS)
        while True:
            try:
                listener = await ears.listen(self._heard)
                break
            except StoreUnavailable as error:
                logs.event(WARNING, "listen_failed", str(error))
            await trouble.wait()
        self._claimer.wake()  # nobody told of what came before
        return listener

    def _upkeep(self) -> Iterator[Coroutine[Any, Any, None]]:
        if not self._suspects_only:
            yield self._sweeper.run()
        if self._parker is not None:
            yield self._parker.run()

    async def _finish_all(
        self,
        claiming: asyncio.Task[None],
        settling: asyncio.Task[None],
        listening: asyncio.Task[None],
    ) -> None:
        """Let the handlers end within the grace time, then stop and release the others."""
        deadline = self._stop.deadline.grace_until
        self._stopping.set()
        self._claimer.stop()
        self._runner.close()
        self._slots.let_go()
        self._suspects.stop()
        hurrying = asyncio.create_task(self._hurrying.wait())
        await asyncio.wait(
            {claiming, hurrying},
            timeout=max(1.0, deadline - self._seam.monotonic()),
            return_when=asyncio.FIRST_COMPLETED,
        )
        hurrying.cancel()
        await self._handlers_end(deadline - self._seam.monotonic(), hurry=True)
        self._stop_by = min(deadline, self._seam.monotonic()) + STOP_SECONDS_MAX
        self._runner.stop_all()
        self._suspects.stop()
        await self._handlers_end(STOP_HANDLERS_SECONDS, hurry=False)
        await self._end_parts(
            self._settle_rest(self._runner.release_all(), settling),
            self._end_claims(claiming),
            _end(listening),
        )
        self._runner.abandon_all()

    async def _end_claims(self, claiming: asyncio.Task[None]) -> None:
        """Cut off a claim that is still under way, and release what claims have left behind: if the
        database answers while there is still time to end the process well."""
        await _end(claiming)
        left_seconds = self._stop.deadline.grace_until - self._seam.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, left_seconds) + STRAYS_SECONDS):
                await self._strays.release_last()

    async def _end_parts(self, *endings: Coroutine[Any, Any, None]) -> None:
        """End side by side what has one deadline."""
        seconds = self._seconds_left()
        parts = {
            *map(asyncio.create_task, endings),
            # What a process has that was killed for being late is still to be taken back.
            asyncio.create_task(self._suspects.end(seconds - LAST_SECONDS)),
        }
        if self._children is not None:
            parts.add(asyncio.create_task(self._children.close()))
        done, late = await asyncio.wait(parts, timeout=seconds)
        for part in late:
            part.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for part in done:
            self._fatal = self._fatal or part.exception()

    async def _settle_rest(
        self, committing: set[asyncio.Task[Any]], settling: asyncio.Task[None]
    ) -> None:
        """Wait until every end is acknowledged, but for no settler that has failed."""

        async def settle() -> None:
            if committing:
                await asyncio.wait(committing)
            await self._runner.settler.wait_idle()

        settled = asyncio.create_task(settle())
        await asyncio.wait(
            {settled, settling},
            timeout=SETTLE_SECONDS_MAX,
            return_when=asyncio.FIRST_COMPLETED,
        )
        settled.cancel()

    async def _stop_keeper(self) -> None:
        """Let a renewal that is under way end, but not long after all else has."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(LAST_SECONDS, self._seconds_left())):
                await self._runner.keeper.stop()

    def _seconds_left(self) -> float:
        now = self._seam.monotonic()
        return STOP_SECONDS_MAX if self._stop_by is None else max(0.0, self._stop_by - now)

    async def _handlers_end(self, seconds: float, *, hurry: bool) -> None:
        """Wait until no handler runs any more, for so many seconds, or until told to hurry."""
        hurrying = asyncio.create_task(self._hurrying.wait())
        deadline = self._seam.monotonic() + seconds
        while tasks := self._runner.tasks | self._suspects.tasks:
            left = deadline - self._seam.monotonic()
            if left <= 0 or (hurry and self._hurrying.is_set()):
                break
            waited = {*tasks, hurrying} if hurry else tasks
            await asyncio.wait(waited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        hurrying.cancel()

    def _alone_launch(self) -> Launch | None:
        """How a process for suspects is started; None if they run in this one: where processes
        can't be started, or if it runs one job at a time anyway."""
        if self._slots.concurrency == 1 or not self._seam.starts_processes:
            return None
        launch = self._find_launch()
        if launch is None:
            return None
        launch = launch.reporting_to(self._metrics_socket)
        return launch if self._slots.queues is None else launch.with_queues(self._slots.queues)

    def _heard(self, wakeup: Wakeup) -> None:
        if wakeup.canceled is not None:
            self._runner.check_canceled(wakeup.canceled)
        elif self._slots.queues is None or wakeup.queue in (None, *self._slots.queues):
            self._claimer.wake(None if wakeup.queue in self._slots.caps else wakeup.job_id)

    def _reclaimed(self, jobs: Sequence[Reclaimed]) -> None:
        self._events.reclaimed(jobs)
        self._claimer.wake()
        if any(job.suspect for job in jobs):
            self._sweeper.wake()

    def _suspects_found(self, count: int) -> None:
        self._suspects.found(count)

    def _ended(self, queue: str) -> None:
        is_last = self._horizon_seconds is not None and not self._runner.running
        if queue in self._slots.caps or is_last:
            self._claimer.wake()

    def _has_room(self) -> None:
        self._claimer.wake()

    def _struck(self, keys: Sequence[str]) -> None:
        if self._parker is not None:
            self._parker.struck(keys)

    def _works(self, key: str) -> None:
        if self._parker is not None:
            self._parker.close(key)

    def _die(self, error: BaseException) -> None:
        """A part that nothing works without has failed: stop, and end with its error."""
        self._fatal = self._fatal or error
        self._stopping.set()

    async def _is_done(self) -> bool:
        """Is there nothing left that runs, or becomes due within the horizon?"""
        if self._suspects_only:
            return True
        if self._horizon_seconds is None or self._runner.running:
            return False
        await self._runner.settler.wait_idle()
        if self._parker is not None:
            await self._parker.wait_idle()
        if await self._store.awaited(self._names, self._slots.queues, self._horizon_seconds):
            await self._sweeper.look_for_suspects()
            return False
        return True


async def _end(part: asyncio.Task[None]) -> None:
    part.cancel()
    await asyncio.wait({part})
