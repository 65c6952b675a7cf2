"""The child processes of a worker: started on demand, reused, and replaced when worn out."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from logging import WARNING
from typing import Final

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.outcomes import Crashed, Failed, Outcome, Released
from holdfast.job_function import Definition
from holdfast.observability import logs
from holdfast.observability.metrics import Metrics
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.worker.classify import timed_out
from holdfast.worker.processes.memory import count_oom_kills
from holdfast.worker.processes.messages import Boot, Ended
from holdfast.worker.processes.origin import find_origin
from holdfast.worker.processes.process import ChildProcess, NotStarted
from holdfast.worker.run import Run, Stop

STARTS_AT_ONCE_MAX: Final = 4


def make_children(
    app: object,
    url: str,
    definitions: Mapping[str, Definition],
    settings: Settings,
    seam: Seam,
    metrics: Metrics,
) -> AbstractAsyncContextManager[Children | None]:
    """Prepare child processes, if there are jobs for them and processes can be started."""
    functions = [each.function for each in definitions.values() if each.executor == "process"]
    if not functions or not seam.starts_processes:
        return nullcontext()
    origin = find_origin(app, functions)
    if origin is None:
        raise ConfigurationError(
            'executor="process" needs a Holdfast object that is a global of a module or script,'
            " so that child processes can import it"
        )
    log_format, log_level = logs.configuration() or (None, 0)
    path = [str(entry) for entry in sys.path]  # a program may have put a Path there
    boot = Boot(origin=origin, url=url, path=path, log_format=log_format, log_level=log_level)
    return Children(boot, settings, seam, metrics)


class Children(AbstractAsyncContextManager["Children"]):
    """Up to one child process per running handler. Use it as a context manager."""

    def __init__(self, boot: Boot, settings: Settings, seam: Seam, metrics: Metrics) -> None:
        self._boot = boot
        self._settings = settings
        self._seam = seam
        self._metrics = metrics
        self._all: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._starts = asyncio.Semaphore(STARTS_AT_ONCE_MAX)
        self._trouble = Backoff(seam, 0.5, 5.0)
        self._not_before = 0.0

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all children, and kill those that run a handler."""
        for child in list(self._all):
            self._discard(child)
        await asyncio.gather(*self._closing)

    def kill(self) -> None:
        """Kill all children. Call it from any thread."""
        for child in list(self._all):
            child.kill()

    async def perform(self, definition: Definition, run: Run) -> Outcome | None:
        """Run the handler in a child; None means that the lease is lost."""
        try:
            # It may have been released after a crash: see _decide_crashed.
            child = await self._take(unused=run.job.releases > 0)
        except NotStarted as error:
            logs.event(
                WARNING, "executor_failed", error.log_text, job_id=run.job.id, name=run.job.name
            )
            return Failed("CHILD_FAILED", str(error))
        try:
            return await self._perform_in(child, definition, run)
        finally:
            self._put_back(child)

    async def _take(self, *, unused: bool) -> ChildProcess:
        """Take an idle child, or start one. An unused child has run no job before."""
        if (idle := self._take_idle()) is not None:
            if not unused:
                return idle
            self._discard(idle)  # a new one takes its place
        async with self._starts:
            if not unused and (idle := self._take_idle()) is not None:
                return idle
            # Don't start children in a rush if they fail to start.
            await asyncio.sleep(max(0.0, self._not_before - self._seam.monotonic()))
            try:
                child = await self._start()
            except NotStarted:
                now = self._seam.monotonic()
                if now >= self._not_before:
                    self._not_before = now + self._trouble.next_seconds()
                raise
            self._trouble.reset()
            return child

    def _take_idle(self) -> ChildProcess | None:
        while self._idle:
            child = self._idle.pop()
            if child.is_alive:
                return child
            self._discard(child)
        return None

    async def _start(self) -> ChildProcess:
        child = await ChildProcess.start(self._seam)
        self._all.add(child)
        if self._metrics.counting:
            self._metrics.child_started("handler")
        try:
            await child.boot(self._boot)
        except BaseException:
            self._discard(child)
            raise
        return child

    def _put_back(self, child: ChildProcess) -> None:
        worn_out = (
            child.jobs_done >= self._settings.child_jobs_max
            or child.bytes_used > self._settings.child_bytes_max
        )
        if child.is_busy or child.is_spent or worn_out or not child.is_alive:
            self._discard(child)
        else:
            self._idle.append(child)

    def _discard(self, child: ChildProcess) -> None:
        if child not in self._all:
            return  # already closed, because the worker is stopping
        self._all.remove(child)
        if self._metrics.counting and not child.is_alive:
            self._metrics.child_died("handler")
        task = asyncio.get_running_loop().create_task(child.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _perform_in(
        self, child: ChildProcess, definition: Definition, run: Run
    ) -> Outcome | None:
        oom_kills = count_oom_kills()
        grace_seconds = self._settings.timeout_grace_seconds
        running = asyncio.create_task(child.perform(run, definition.memory_bytes_max))
        # A released job may start elsewhere: its handler must be gone by then.
        run.on_stop = lambda run: child.kill() if run.settlement is not None else None
        deadline = None
        if definition.timeout_seconds is not None:
            now = self._seam.monotonic()
            deadline = run.set_deadline(definition.timeout_seconds, grace_seconds, now)
        try:
            hung = await self._ends(child, run, running)
        finally:
            run.on_stop = None
            if deadline is not None:
                deadline.cancel()
        if run.is_lost:
            return None
        if (ended := running.result()) is not None:
            return ended.outcome
        reason = await child.ending()
        if run.stop is Stop.SHUTDOWN:
            return Released()
        if hung:
            more = f" and did not stop within another {grace_seconds:g} s; its process was killed"
            return timed_out(definition, more)
        return _crashed(child, definition, reason, count_oom_kills() > oom_kills)

    async def _ends(
        self, child: ChildProcess, run: Run, running: asyncio.Task[Ended | None]
    ) -> bool:
        """Wait for the handler's end; return whether it was killed because it did not stop."""
        seconds: float | None = None
        stopping = hung = False
        while not running.done():
            try:
                await asyncio.wait([running], timeout=seconds)
                if seconds is not None and not running.done():
                    hung, seconds = True, None
                    child.kill()
            except asyncio.CancelledError:
                if run.stop is None or (stopping and run.is_lost):
                    child.kill()
                    raise
                stopping = True
                child.stop_handler(run.stop)
                if run.stop is not Stop.SHUTDOWN:
                    seconds = self._settings.timeout_grace_seconds
        return hung


def _crashed(
    child: ChildProcess, definition: Definition, reason: str, killed_for_memory: bool
) -> Crashed:
    text = f"the process that ran the handler {reason}"
    code = "CRASHED"
    if child.exit_code == -signal.SIGKILL:
        text += "; the kernel's out-of-memory killer does that"
        code = "OUT_OF_MEMORY" if killed_for_memory else code
    elif child.exit_code == -signal.SIGABRT and definition.memory_bytes_max is not None:
        text += f", with memory_bytes_max at {definition.memory_bytes_max:,} bytes"
        code = "OUT_OF_MEMORY"
    return Crashed(code, text, reused=child.jobs_done > 0)
