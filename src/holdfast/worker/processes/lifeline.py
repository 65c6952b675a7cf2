"""The lifeline: shows a warden that this process runs. The warden kills it if it does not."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from logging import WARNING
from types import ModuleType

from holdfast.domain.job import Claimed
from holdfast.observability import logs
from holdfast.runtime.seam import Process
from holdfast.worker.processes import warden
from holdfast.worker.processes.launch import ending
from holdfast.worker.setup import Setup

BEAT_SECONDS = 0.5
RESTART_SECONDS = 5.0
# However short a lease is: on a busy machine, no process runs all the time.
FROZEN_SECONDS_MIN = 5.0
LOCKED_SECONDS_MIN = 3.0
LOCKED_SECONDS_MAX = 5.0
NAMED_MAX = 10


class Lifeline:
    """Beats on the lease keeper's thread, which stops only when all threads do. `leased` returns
    the worker's jobs. `is_guarded` is done when the first warden has started, before the first
    handler can freeze the process."""

    def __init__(self, setup: Setup, leased: Callable[[], Sequence[Claimed]]) -> None:
        self._seam = setup.seam
        self._settings = setup.settings
        self._worker_id = setup.worker_id
        self._leased = leased
        self._claimed: deque[str] = deque(maxlen=NAMED_MAX)
        self._page: warden.Page | None = None
        self._warden: Process | None = None
        self._start_at = setup.seam.monotonic()
        self.is_guarded: Future[None] = Future()
        self.is_guarded.set_running_or_notify_cancel()  # so that no waiter can cancel it

    def claimed(self, jobs: Sequence[Claimed]) -> None:
        """Note the last jobs: if one freezes the process at once, no beat will name it."""
        page = self._page
        if page is not None:
            self._claimed.extend([_name(job) for job in jobs[-NAMED_MAX:]])
            with suppress(ValueError):  # closed: the keeper has just ended
                page.claimed(", ".join(self._claimed))

    async def run(self) -> None:
        _dump_tracebacks()
        try:
            descriptor = _shared_memory()
            self._page = page = warden.Page(descriptor)
        except (OSError, ValueError) as error:
            self._warn(f"could not be set up: {error}; this worker runs without one")
            self._set_guarded()
            return
        number = 0
        try:
            while True:
                number += 1
                page.beat(number, _named(self._leased()))
                if self._is_without_warden() and self._seam.monotonic() >= self._start_at:
                    await self._start_warden(descriptor)
                    self._set_guarded()
                await asyncio.sleep(BEAT_SECONDS)
        finally:
            self._set_guarded()
            self._page = None
            if self._warden is not None:
                self._warden.send_signal(signal.SIGKILL)
            page.close()
            os.close(descriptor)

    def _set_guarded(self) -> None:
        if not self.is_guarded.done():
            self.is_guarded.set_result(None)

    def _is_without_warden(self) -> bool:
        if self._warden is None:
            return True
        code = self._warden.returncode
        if code is not None:
            self._warden = None
            self._warn(f"{ending(code)}; starting another one")
        return code is not None

    async def _start_warden(self, descriptor: int) -> None:
        self._start_at = self._seam.monotonic() + RESTART_SECONDS
        lease_seconds = self._settings.lease_seconds
        locked_seconds = min(LOCKED_SECONDS_MAX, max(LOCKED_SECONDS_MIN, lease_seconds / 3))
        log_format, _ = logs.configuration() or ("text", 0)
        program = [sys.executable, "-I", "-S", _compiled(warden)]
        arguments = [descriptor, self._seam.process_id(), self._worker_id]
        arguments += [max(FROZEN_SECONDS_MIN, lease_seconds), locked_seconds, log_format]
        try:
            self._warden = await self._seam.start_process(
                [*program, *map(str, arguments)], pass_fds=[descriptor]
            )
        except OSError as error:
            self._warn(f"could not be started: {error}; trying again soon")

    def _warn(self, what: str) -> None:
        text = f"the warden of this worker {what}"
        logs.event(WARNING, "warden_lost", text, worker_id=self._worker_id)


def _dump_tracebacks() -> None:
    """Make SIGABRT dump the traceback of every thread, if there is a stderr."""
    with suppress(OSError, RuntimeError, ValueError, AttributeError):
        if not faulthandler.is_enabled():
            faulthandler.enable()


def _compiled(module: ModuleType) -> str:
    """The file with its bytecode, if it is up to date: compiling it would take 0.6 MB. Where Python
    may not write bytecode, an older one can lie beside the source."""
    source, compiled = str(module.__file__), module.__spec__ and module.__spec__.cached
    with suppress(OSError):
        if compiled and os.path.getmtime(compiled) >= os.path.getmtime(source):
            return compiled
    return source


def _name(job: Claimed) -> str:
    return f"{job.name} {job.id}"


def _named(jobs: Sequence[Claimed]) -> str:
    """The first jobs, and how many more there are."""
    named = ", ".join(map(_name, jobs[:NAMED_MAX]))
    return f"{named} and {len(jobs) - NAMED_MAX} more" if len(jobs) > NAMED_MAX else named


def _shared_memory() -> int:
    """An unnamed file that two processes can map."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("holdfast")
    else:
        import tempfile

        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, warden.PAGE_BYTES)
    return descriptor
