"""The child processes of a worker: started on demand, reused, and replaced when worn out."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from logging import WARNING
from typing import Any, Final

from holdfast.context import CallLimits
from holdfast.domain.errors import ConfigurationError, ProcessCrashed, ProcessTimeout
from holdfast.domain.outcomes import Crashed, Failed, Outcome, Released
from holdfast.job_function import Definition
from holdfast.observability import logs
from holdfast.observability.metrics import Metrics
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.worker.classify import timed_out
from holdfast.worker.middleware import Middleware
from holdfast.worker.processes.memory import count_oom_kills
from holdfast.worker.processes.messages import AppBoot, Boot, Call, Ended, Returned
from holdfast.worker.processes.origin import find_origin, function_origin
from holdfast.worker.processes.process import ChildProcess, Kind, NotStarted
from holdfast.worker.run import Run, Stop

STARTS_AT_ONCE_MAX: Final = 4
HANDLERS: Final = Kind(runs_handlers=True)


def find_app(
    app: object,
    url: str,
    definitions: Mapping[str, Definition],
    middleware: Middleware,
    settings: Settings,
) -> AppBoot | None:
    """How child processes can import the app; None if it has no handlers for them."""
    functions = [each.function for each in definitions.values() if each.executor == "process"]
    if not functions:
        return None
    origin = find_origin(app, [*functions, *middleware.functions])
    if origin is None:
        raise ConfigurationError(
            'executor="process" needs a Holdfast object that is a global of a module or script,'
            " so that child processes can import it"
        )
    return AppBoot(origin, url, middleware.names, settings.log_errors)


class Children(AbstractAsyncContextManager["Children"]):
    """The child processes of a worker with so many slots: one for each running handler of `app`,
    and as many for functions. Use it as a context manager."""

    def __init__(
        self, app: AppBoot | None, slots: int, settings: Settings, seam: Seam, metrics: Metrics
    ) -> None:
        self._app = app
        self._slots = slots
        self._settings = settings
        self._seam = seam
        self._metrics = metrics
        self._all: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []  # the last used is last
        self._calls = asyncio.Semaphore(slots)
        self._closing: set[asyncio.Task[None]] = set()
        self._starts = asyncio.Semaphore(STARTS_AT_ONCE_MAX)
        self._trouble = Backoff(seam, 0.5, 5.0)
        self._not_before = 0.0
        self._is_closed = False

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all children, kill those that are busy, and start no more."""
        self._is_closed = True
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
            child = await self._take(HANDLERS, unused=run.job.releases > 0)
        except NotStarted as error:
            logs.event(
                WARNING, "executor_failed", error.log_text, job_id=run.job.id, name=run.job.name
            )
            return Failed("CHILD_FAILED", str(error))
        try:
            return await self._perform_in(child, definition, run)
        finally:
            self._put_back(child)

    async def call(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        keywords: Mapping[str, Any],
        limits: CallLimits,
    ) -> Any:
        """Run a function in a child; return what it returns, or raise what it raises."""
        from holdfast.worker.processes import calls  # with `pickle`, which few workers need

        origin = function_origin(function)
        data = calls.pack_arguments(origin.name, arguments, keywords)
        async with self._calls:
            try:
                if self._seam.starts_processes:
                    call = Call(origin, data, limits.memory_bytes_max)
                    returned = await self._call(call, limits)
                else:
                    returned = await self._call_in_thread(
                        partial(calls.answer, origin.name, function, data), limits
                    )
            except TimeoutError:
                text = f"{origin.name} took longer than {limits.timeout_seconds:g} s"
                raise ProcessTimeout(text) from None
        return calls.result_of(origin.name, returned)

    async def _call(self, call: Call, limits: CallLimits) -> Returned:
        kind = Kind(
            memory_bytes_max=limits.memory_bytes_max, clean_environment=limits.clean_environment
        )
        try:
            child = await self._take(kind)
        except NotStarted as error:
            raise ProcessCrashed(str(error), code="CHILD_FAILED") from error
        oom_kills = count_oom_kills()
        try:
            async with asyncio.timeout(limits.timeout_seconds):
                returned = await child.call(call)
            if returned is None:
                what, reason = f"the process that ran {call.origin.name}", await child.ending()
                code, text = _crash(child, call.memory_bytes_max, oom_kills)
                raise ProcessCrashed(f"{what} {reason}{text}", code=code)
            return returned
        finally:
            if child.is_busy:
                child.kill()
            self._put_back(child)

    async def _call_in_thread(self, call: Callable[[], Returned], limits: CallLimits) -> Returned:
        """For tests on a clock that children would not share."""
        thread = self._seam.threads("holdfast-call", 1)
        try:
            async with asyncio.timeout(limits.timeout_seconds):
                return await asyncio.wrap_future(thread.submit(call))
        finally:
            thread.close()

    async def _take(self, kind: Kind, *, unused: bool = False) -> ChildProcess:
        """Take an idle child, or start one. An unused child has run nothing before."""
        if (idle := self._take_idle(kind)) is not None:
            if not unused:
                return idle
            self._discard(idle)  # a new one takes its place
        async with self._starts:
            if not unused and (idle := self._take_idle(kind)) is not None:
                return idle
            # Don't start children in a rush if they fail to start.
            await asyncio.sleep(max(0.0, self._not_before - self._seam.monotonic()))
            try:
                child = await self._start(kind)
            except NotStarted:
                now = self._seam.monotonic()
                if now >= self._not_before:
                    self._not_before = now + self._trouble.next_seconds()
                raise
            self._trouble.reset()
            return child

    def _take_idle(self, kind: Kind) -> ChildProcess | None:
        for child in [each for each in reversed(self._idle) if each.kind == kind]:
            self._idle.remove(child)
            if child.is_alive and not child.has_hung_up:
                return child
            self._discard(child)
        return None

    async def _start(self, kind: Kind) -> ChildProcess:
        if self._is_closed:
            raise NotStarted("the worker has stopped")
        if self._idle and len(self._all) >= self._slots:
            self._discard(self._idle.pop(0))  # one of another kind makes room
        child = await ChildProcess.start(self._seam, kind)
        self._all.add(child)
        if self._metrics.counting:
            self._metrics.child_started("handler" if kind.runs_handlers else "function")
        try:
            await child.boot(self._boot(kind))
        except BaseException:
            self._discard(child)
            raise
        return child

    def _boot(self, kind: Kind) -> Boot:
        log_format, log_level = logs.configuration() or (None, 0)
        return Boot(
            app=self._app if kind.runs_handlers else None,
            path=[str(entry) for entry in sys.path],  # a program may have put a Path there
            log_format=log_format,
            log_level=log_level,
        )

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
            self._metrics.child_died("handler" if child.kind.runs_handlers else "function")
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
            run.told_in_child, run.traceback = True, ended.traceback
            return ended.outcome
        reason = await child.ending()
        if run.stop is Stop.SHUTDOWN:
            return Released()
        if hung:
            more = f" and did not stop within another {grace_seconds:g} s; its process was killed"
            return timed_out(definition, more)
        code, text = _crash(child, definition.memory_bytes_max, oom_kills)
        text = f"the process that ran the handler {reason}{text}"
        return Crashed(code, text, reused=child.jobs_done > 0)

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


def _crash(
    child: ChildProcess, memory_bytes_max: int | None, oom_kills_before: int
) -> tuple[str, str]:
    """The error code for a child that ended by itself, and more about it for the text."""
    if child.exit_code == -signal.SIGKILL:
        code = "OUT_OF_MEMORY" if count_oom_kills() > oom_kills_before else "CRASHED"
        return code, "; the kernel's out-of-memory killer does that"
    if child.exit_code == -signal.SIGABRT and memory_bytes_max is not None:
        return "OUT_OF_MEMORY", f", with memory_bytes_max at {memory_bytes_max:,} bytes"
    return "CRASHED", ""
