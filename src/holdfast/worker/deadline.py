"""When a stopping worker has to be gone."""

from __future__ import annotations

import threading
from contextlib import suppress
from logging import ERROR

from holdfast.domain.limits import STOP_SECONDS_MAX
from holdfast.observability import logs
from holdfast.runtime.seam import Seam

BLOCKED_CODE = 70  # the exit code "internal software error" of sysexits.h
LOOK_SECONDS = 0.5
LOG_SECONDS_MAX = 1.0
# How long handlers may take to stop after their grace time, if the loop is not blocked.
STOP_HANDLERS_SECONDS = 2.0


class StopDeadline:
    """The time limit of a stop. Use it from any thread.

    A process that is only a worker exits when its time is over, even if handlers, resources or
    generators are still cleaning up.
    """

    def __init__(self, seam: Seam, grace_seconds: float, *, ends_process: bool) -> None:
        self._seam = seam
        self._grace_seconds = grace_seconds
        self._ends_process = ends_process
        self._grace_until: float | None = None

    def start(self) -> None:
        """Start the countdown. The second call ends the grace time."""
        now = self._seam.monotonic()
        if self._grace_until is not None:
            self._grace_until = min(self._grace_until, now)
            return
        self._grace_until = now + self._grace_seconds
        if self._ends_process:
            with suppress(RuntimeError):  # no memory for another thread: stop without a limit
                self._seam.threads("holdfast-deadline", 1).submit(self._end)

    @property
    def grace_until(self) -> float:
        """When handlers have to stop (monotonic)."""
        if self._grace_until is None:
            return self._seam.monotonic() + self._grace_seconds
        return self._grace_until

    @property
    def is_overdue(self) -> bool:
        """Should all handlers have stopped by now?"""
        until = self._grace_until
        return until is not None and self._seam.monotonic() > until + STOP_HANDLERS_SECONDS

    def _end(self) -> None:
        pause = threading.Event()
        while self._seam.monotonic() < self.grace_until + STOP_SECONDS_MAX - LOG_SECONDS_MAX:
            pause.wait(LOOK_SECONDS)
        # On another thread, because the log itself may be what hangs.
        self._seam.threads("holdfast-last-words", 1).submit(self._log)
        pause.wait(LOG_SECONDS_MAX)
        self._seam.exit(BLOCKED_CODE)

    def _log(self) -> None:
        logs.event(ERROR, "stop_overdue", "the process did not stop in time and is exiting now")
