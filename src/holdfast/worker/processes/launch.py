"""Start worker processes, stop them, and reclaim their jobs when they die."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from logging import WARNING

import msgspec

from holdfast.domain.job import Reclaimed
from holdfast.observability import logs
from holdfast.observability.metrics import Child
from holdfast.runtime.seam import Process, Seam
from holdfast.worker.deadline import BLOCKED_CODE
from holdfast.worker.events import Events
from holdfast.worker.processes.origin import find_origin

ReclaimWorker = Callable[[str, str], Awaitable[Sequence[Reclaimed] | None]]


class Birth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a process passes to a worker process that it starts: its own id, the token of the
    worker's id, the title, what to import besides the app's module and on which path, the queues to
    serve if the options don't say, and the socket for metrics."""

    parent: int
    token: str
    title: str
    suspects_only: bool = False
    modules: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    metrics_socket: str | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start worker processes for an app: `holdfast worker` with these options."""

    app: str
    options: Sequence[str] = ()
    modules: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    metrics_socket: str | None = None

    async def start(self, seam: Seam, title: str, *, suspects_only: bool = False) -> WorkerProcess:
        birth = Birth(
            parent=os.getpid(),
            token=seam.token(),
            title=title,
            suspects_only=suspects_only,
            modules=self.modules,
            path=self.path,
            queues=self.queues,
            metrics_socket=self.metrics_socket,
        )
        program = [sys.executable, "-P", "-m", "holdfast.cli.main", "worker", self.app]
        options = [*self.options, "--birth", msgspec.json.encode(birth).decode()]
        process = await seam.start_process([*program, *options])
        return WorkerProcess(process, seam.identity(process.pid, birth.token))


def find_launch(app: object, functions: Iterable[object]) -> Launch | None:
    """How another process can import this app; None if it can't, or if the app is in a script,
    which might start a worker when it is imported."""
    origin = find_origin(app, functions)
    if origin is None or origin.script is not None:
        return None
    name = f"{origin.module}:{origin.name}"
    return Launch(name, modules=origin.modules, path=tuple(map(str, sys.path)))


class WorkerProcess:
    """A `holdfast worker` that this process started."""

    def __init__(self, process: Process, worker_id: str) -> None:
        self._process = process
        self._killed_late = False
        self.worker_id = worker_id

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        return await self._process.wait()

    def request_stop(self) -> None:
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    def kill_late(self) -> None:
        """Kill a process that did not stop in time."""
        if self._process.returncode is None:
            self._killed_late = True
            self._process.send_signal(signal.SIGKILL)

    def reason(self, code: int) -> str:
        """How it ended, as the end of a sentence."""
        return "did not stop in time and was killed" if self._killed_late else ending(code)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a worker process ended. `had_work` is None if unknown."""

    code: int
    reason: str
    died: bool
    had_work: bool | None


class ProcessGroup:
    """Worker processes that stop together. `reclaim` frees the jobs of one that died at once, and
    returns None if the database does not answer."""

    def __init__(self, seam: Seam, reclaim: ReclaimWorker, events: Events, kind: Child) -> None:
        self._seam = seam
        self._reclaim = reclaim
        self._events = events
        self._kind = kind
        self._processes: set[WorkerProcess] = set()
        self._stops = 0

    def __len__(self) -> int:
        return len(self._processes)

    @property
    def is_stopping(self) -> bool:
        return self._stops > 0

    def stop(self) -> None:
        """Stop all processes. The second call hurries them."""
        self._stops += 1
        for process in self._processes:
            process.request_stop()

    def kill_late(self) -> None:
        for process in self._processes:
            process.kill_late()

    async def run(
        self, launch: Launch, title: str, what: str, *, suspects_only: bool = False
    ) -> Ended:
        """Start a process and wait for its end."""
        try:
            process = await launch.start(self._seam, title, suspects_only=suspects_only)
        except OSError as error:
            reason = f"could not be started: {error}"
            logs.event(WARNING, "child_ended", f"{what} {reason}")
            return Ended(1, reason, died=True, had_work=False)
        self._processes.add(process)
        self._events.child_started(self._kind, process.worker_id, process.pid, what)
        # Requests that came during its start have not reached it.
        for _ in range(self._stops):
            process.request_stop()
        code = await process.wait()
        self._processes.discard(process)
        reason = process.reason(code)
        died = code != 0 and not (self._stops and stopped_well(code))
        self._events.child_ended(
            self._kind, process.worker_id, process.pid, f"{what} {reason}", code, died
        )
        if not died:
            return Ended(code, reason, died=False, had_work=None)
        freed = await self._reclaim(process.worker_id, reason)
        self._events.reclaimed(freed or ())
        # A process that exits because a handler hangs has already settled its jobs.
        had_work = code == BLOCKED_CODE or (None if freed is None else bool(freed))
        return Ended(code, reason, died=True, had_work=had_work)


def ending(code: int) -> str:
    """How a process with this exit code ended, as the end of a sentence."""
    if code >= 0:
        return f"exited with code {code}"
    if code == -signal.SIGABRT:
        return "was killed by SIGABRT: it aborted, or its warden killed it because it was frozen"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def stopped_well(code: int) -> bool:
    """Did it stop as requested? SIGTERM kills a process that has only just started, which has no
    jobs yet."""
    return code in (0, -signal.SIGTERM)
