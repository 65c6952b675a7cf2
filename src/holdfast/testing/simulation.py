"""Run the whole engine on one seeded event loop with virtual time.

Several "processes" share the loop. The seed decides which of them takes the next step, so a
schedule can be replayed. A process can be killed between any two steps, as by kill -9: none of its
code runs again, not even a `finally`. It can also be stopped and resumed, as by SIGSTOP and
SIGCONT. The store is real SQLite.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import sqlite3
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Generic, TypeVar

from holdfast.runtime.seam import Seam

T = TypeVar("T")

_START = datetime(2026, 1, 1, tzinfo=UTC)
_CLEANUPS_MAX = 100
_process: contextvars.ContextVar[str] = contextvars.ContextVar("simulated_process", default="")


class Deadlock(Exception):
    """Nothing is ready and nothing is scheduled: the processes wait for each other."""


class Simulation:
    """A machine that runs processes. Use it as a context manager."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.loop = _Loop(self)
        self.killed: set[str] = set()
        self.stopped: dict[str, list[asyncio.Handle]] = {}
        self._connections: list[sqlite3.Connection] = []

    def __enter__(self) -> Simulation:
        asyncio.set_event_loop(self.loop)
        return self

    def __exit__(self, *error: object) -> None:
        """End all processes; drop what killed ones did not clean up."""
        for connection in self._connections:
            connection.close()
        for task in self.loop.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            for _ in range(_CLEANUPS_MAX):
                # A cleanup that awaits "ignores" the close, so close it again at that await.
                with suppress(BaseException):
                    task.get_coro().close()
                    break
        self.loop.forget()
        asyncio.set_event_loop(None)
        self.loop.close()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main`, which can't be killed, to its end."""
        return self.loop.run_until_complete(main)

    def start(self, process: str, main: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Start a process; all tasks that it starts belong to it."""
        context = contextvars.copy_context()
        context.run(_process.set, process)
        return self.loop.create_task(main(), context=context)

    async def pass_time(self, seconds: float) -> None:
        """Wait in virtual time."""
        await asyncio.sleep(seconds)

    def kill(self, process: str) -> None:
        self.killed.add(process)
        self.stopped.pop(process, None)

    def stop(self, process: str) -> None:
        if process not in self.killed:
            self.stopped.setdefault(process, [])

    def resume(self, process: str) -> None:
        self.loop.add_ready(self.stopped.pop(process, []))

    def seam(self, process: str) -> SimulatedSeam:
        return SimulatedSeam(self, process)

    def opened(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        self._connections.append(connection)
        return connection


class SimulatedSeam(Seam):
    """The seam of one process of a simulation."""

    starts_processes = False

    def __init__(self, simulation: Simulation, process: str) -> None:
        self._simulation = simulation
        self._process = process
        self.random = Random(simulation.random.getrandbits(64))

    def now(self) -> datetime:
        return _START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return self._simulation.loop.time()

    def identity(self, process_id: int | None = None, token: str | None = None) -> str:
        return f"{self._process}:{token or self.token()}"

    def exit(self, code: int) -> None:
        self._simulation.kill(self._process)

    def signals_are_free(self) -> bool:
        return False

    def when_collected(self, owner: object, clean_up: Callable[[], None]) -> Callable[[], object]:
        """Do nothing: killed processes clean nothing up, and the seed can't time collections."""
        return lambda: None

    def thread(self, name: str, work: Callable[[list[T]], None]) -> _BatchThread[T]:
        return _BatchThread(self, work)

    def side_loop(self, name: str) -> _SideLoop:
        return _SideLoop(self._simulation.loop)

    def threads(self, name: str, count: int) -> _Threads:
        return _Threads(self)

    def connect_sqlite(self, path: str) -> sqlite3.Connection:
        return self._simulation.opened(super().connect_sqlite(path))

    def later(self, call: Callable[[], None]) -> None:
        """Call this after a delay such as a thread, a disk or a network causes."""
        delay = self.random.choice((0.0, 0.001, 0.02)) * self.random.random()
        self._simulation.loop.call_later(delay, call)


class _BatchThread(Generic[T]):
    def __init__(self, seam: SimulatedSeam, work: Callable[[list[T]], None]) -> None:
        self._seam = seam
        self._work = work
        self._items: list[T] = []

    def put(self, item: T) -> None:
        self._items.append(item)
        if len(self._items) == 1:
            self._seam.later(self._flush)

    def close(self, *, wait: bool = True) -> None:
        self._flush()

    def _flush(self) -> None:
        items, self._items = self._items, []
        if items:
            self._work(items)


class _SideLoop:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        future: Future[T] = Future()
        task = self._loop.create_task(work)
        task.add_done_callback(lambda done: _copy_outcome(done, future))
        return future

    def close(self, *, wait: bool = True) -> None:
        pass


class _Threads:
    def __init__(self, seam: SimulatedSeam) -> None:
        self._seam = seam

    def submit(self, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except Exception as error:
                future.set_exception(error)

        self._seam.later(run)
        return future

    def close(self) -> None:
        pass


def _copy_outcome(task: asyncio.Task[T], future: Future[T]) -> None:
    if task.cancelled():
        future.cancel()
    elif (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


class _Loop(asyncio.BaseEventLoop):
    """Takes one random step at a time; if nothing is ready, the clock jumps ahead."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation
        self._now = 0.0
        self.steps = 0
        # Kept to the end, because collecting a task of a killed process would run its `finally`.
        self.tasks: list[asyncio.Task[Any]] = []
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]
        self.set_exception_handler(lambda loop, context: None)

    def time(self) -> float:
        return self._now

    def add_ready(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], **options: Any
    ) -> asyncio.Task[T]:
        task = asyncio.Task(work, loop=loop, **options)
        self.tasks.append(task)
        return task

    def forget(self) -> None:
        self.tasks.clear()
        self._ready.clear()
        self._scheduled.clear()

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: object) -> None:
        pass

    def _run_once(self) -> None:
        if not self._ready:
            self._jump()
        self._move_due()
        if not self._ready:
            return
        place = self._simulation.random.randrange(len(self._ready))
        self._ready.rotate(-place)
        handle = self._ready.popleft()
        self._ready.rotate(place)
        if not handle.cancelled() and self._may_run(handle):
            self.steps += 1
            handle._run()

    def _may_run(self, handle: asyncio.Handle) -> bool:
        process = handle._context.get(_process, "")  # type: ignore[attr-defined]
        if process in self._simulation.stopped:
            self._simulation.stopped[process].append(handle)
            return False
        return process not in self._simulation.killed

    def _jump(self) -> None:
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)
        if not self._scheduled:
            raise Deadlock
        self._now = max(self._now, self._scheduled[0].when())

    def _move_due(self) -> None:
        while self._scheduled and self._scheduled[0].when() <= self._now:
            handle = heapq.heappop(self._scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
            self._ready.append(handle)
