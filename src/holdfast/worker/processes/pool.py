"""The child processes of a worker: made when they are needed, reused, replaced when worn out."""

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
    """Make child processes possible, if there are jobs for them and the machine has processes."""
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


class Children:
    """As many as there are handlers to run at a time. Use it as a context manager."""

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

    async def __aenter__(self) -> Children:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End all; those that run a handler are killed."""
        for child in list(self._all):
            self._discard(child)
        await asyncio.gather(*self._closing)

    def kill(self) -> None:
        """Kill all; may be called from any thread."""
        for child in list(self._all):
            child.kill()

    async def perform(self, definition: Definition, run: Run) -> Outcome | None:
        """Run the job's handler in a child; None means that the lease is lost."""
        try:
            # One that was given back for a crash, perhaps: see _decide_crashed.
            child = await self._take(unused=run.job.releases > 0)
        except NotStarted as error:
            logs.event(WARNING, "executor_failed", error.told, job_id=run.job.id, name=run.job.name)
            return Failed("CHILD_FAILED", str(error))
        try:
            return await self._perform_in(child, definition, run)
        finally:
            self._put_back(child)

    async def _take(self, *, unused: bool) -> ChildProcess:
        """Take one that is idle, or start one; an unused one has run no job before."""
        if (idle := self._take_idle()) is not None:
            if not unused:
                return idle
            self._discard(idle)  # the new one takes its place
        async with self._starts:
            if not unused and (idle := self._take_idle()) is not None:
                return idle
            # Children that don't come to work are not started one after the other in a rush.
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
            return  # The worker ends, and has closed it already.
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
        # The worker ends and hands the job to others: the handler must be gone by then.
        run.told_to_stop = lambda run: child.kill() if run.settlement is not None else None
        deadline = None
        if definition.timeout_seconds is not None:
            now = self._seam.monotonic()
            deadline = run.set_deadline(definition.timeout_seconds, grace_seconds, now)
        try:
            hung = await self._ends(child, run, running)
        finally:
            run.told_to_stop = None
            if deadline is not None:
                deadline.cancel()
        if run.stop is Stop.LOST:
            return None
        if (ended := running.result()) is not None:
            return ended.outcome
        reason = await child.ending()
        if run.stop is Stop.SHUTDOWN:
            return Released()
        if hung:
            more = f" and did not stop within {grace_seconds:g} s more; its process was killed"
            return timed_out(definition, more)
        return _crashed(child, definition, reason, count_oom_kills() > oom_kills)

    async def _ends(
        self, child: ChildProcess, run: Run, running: asyncio.Task[Ended | None]
    ) -> bool:
        """Wait for the handler's end; answer whether it had to be killed for not stopping."""
        seconds: float | None = None
        told = hung = False
        while not running.done():
            try:
                await asyncio.wait([running], timeout=seconds)
                if seconds is not None and not running.done():
                    hung, seconds = True, None
                    child.kill()
            except asyncio.CancelledError:
                if run.stop is None or (told and run.stop is Stop.LOST):
                    child.kill()
                    raise
                told = True
                child.tell_to_stop(run.stop)
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
