"""The lifeline: says that this process lives, to a warden that ends it if it does not."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from logging import WARNING

from holdfast.domain.job import Claimed
from holdfast.observability import logs
from holdfast.runtime.seam import Process, Seam
from holdfast.settings import Settings
from holdfast.worker.processes import warden
from holdfast.worker.processes.launch import ending

BEAT_SECONDS = 0.5
RESTART_SECONDS = 5.0
# However short a lease is: a busy machine does not run everybody all the time.
FROZEN_SECONDS_MIN = 5.0
LOCKED_SECONDS_MIN = 3.0
LOCKED_SECONDS_MAX = 5.0
NAMED_MAX = 10


class Lifeline:
    """Beats on the lease keeper's thread, which stands still only when all threads do. `leased`
    answers the jobs that the worker has; `is_guarded` is done when the first warden was started,
    before the first handler can freeze the process."""

    def __init__(
        self,
        seam: Seam,
        settings: Settings,
        worker_id: str,
        leased: Callable[[], Sequence[Claimed]],
    ) -> None:
        self._seam = seam
        self._settings = settings
        self._worker_id = worker_id
        self._leased = leased
        self._claimed: deque[str] = deque(maxlen=NAMED_MAX)
        self._page: warden.Page | None = None
        self._warden: Process | None = None
        self._start_at = seam.monotonic()
        self.is_guarded: Future[None] = Future()
        self.is_guarded.set_running_or_notify_cancel()  # whoever waits no longer can't cancel it

    def claimed(self, jobs: Sequence[Claimed]) -> None:
        """Note some of them: if one freezes the process at once, no beat will tell of it."""
        page = self._page
        if page is not None:
            self._claimed.extend([_name(job) for job in jobs[-NAMED_MAX:]])
            with suppress(ValueError):  # closed, because the keeper has just ended
                page.claimed(", ".join(self._claimed))

    async def run(self) -> None:
        _dump_tracebacks()
        try:
            descriptor = _shared_memory()
            self._page = page = warden.Page(descriptor)
        except (OSError, ValueError) as error:
            self._tell(f"could not be set up: {error}; this worker runs without one")
            self._tell_guarded()
            return
        number = 0
        try:
            while True:
                number += 1
                page.beat(number, _named(self._leased()))
                if self._is_without_warden() and self._seam.monotonic() >= self._start_at:
                    await self._start_warden(descriptor)
                    self._tell_guarded()
                await asyncio.sleep(BEAT_SECONDS)
        finally:
            self._tell_guarded()
            self._page = None
            if self._warden is not None:
                self._warden.send_signal(signal.SIGKILL)
            page.close()
            os.close(descriptor)

    def _tell_guarded(self) -> None:
        if not self.is_guarded.done():
            self.is_guarded.set_result(None)

    def _is_without_warden(self) -> bool:
        if self._warden is None:
            return True
        code = self._warden.returncode
        if code is not None:
            self._warden = None
            self._tell(f"{ending(code)}; starting another one")
        return code is not None

    async def _start_warden(self, descriptor: int) -> None:
        self._start_at = self._seam.monotonic() + RESTART_SECONDS
        lease_seconds = self._settings.lease_seconds
        locked_seconds = min(LOCKED_SECONDS_MAX, max(LOCKED_SECONDS_MIN, lease_seconds / 3))
        log_format, _ = logs.configuration() or ("text", 0)
        program = [sys.executable, "-I", "-S", warden.__file__]
        told = [descriptor, self._seam.process_id(), self._worker_id]
        told += [max(FROZEN_SECONDS_MIN, lease_seconds), locked_seconds, log_format]
        try:
            self._warden = await self._seam.start_process(
                [*program, *map(str, told)], pass_fds=[descriptor]
            )
        except OSError as error:
            self._tell(f"could not be started: {error}; trying again soon")

    def _tell(self, what: str) -> None:
        logs.event(
            WARNING,
            "warden_lost",
            f"the warden of this worker {what}",
            worker_id=self._worker_id,
        )


def _dump_tracebacks() -> None:
    """Have SIGABRT write where each thread stands, as far as there is a stderr."""
    with suppress(OSError, RuntimeError, ValueError, AttributeError):
        if not faulthandler.is_enabled():
            faulthandler.enable()


def _name(job: Claimed) -> str:
    return f"{job.name} {job.id}"


def _named(jobs: Sequence[Claimed]) -> str:
    """The first of them, and how many there are."""
    named = ", ".join(map(_name, jobs[:NAMED_MAX]))
    return f"{named} and {len(jobs) - NAMED_MAX} more" if len(jobs) > NAMED_MAX else named


def _shared_memory() -> int:
    """A file without a name, for two processes to map."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("holdfast")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, warden.PAGE_BYTES)
    return descriptor
