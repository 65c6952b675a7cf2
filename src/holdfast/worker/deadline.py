"""By when a worker that was told to stop has to be gone."""

from __future__ import annotations

import threading
from contextlib import suppress
from logging import ERROR

from holdfast.domain.limits import STOP_SECONDS_MAX
from holdfast.observability import logs
from holdfast.runtime.seam import Seam

BLOCKED_CODE = 70  # the exit code "internal software error" of sysexits.h
LOOK_SECONDS = 0.5
TELL_SECONDS_MAX = 1.0
# What handlers get to end by themselves when their grace is over, as long as the loop turns.
LISTEN_SECONDS = 2.0


class StopDeadline:
    """Told and asked on any thread.

    A process that is nothing but a worker ends when its time is over, whatever it still does:
    handlers, resources and generators may take as long as they like to clean up.
    """

    def __init__(self, seam: Seam, grace_seconds: float, *, ends_process: bool) -> None:
        self._seam = seam
        self._grace_seconds = grace_seconds
        self._ends_process = ends_process
        self._grace_until: float | None = None

    def tell(self) -> None:
        """It is to stop; the second call hurries."""
        now = self._seam.monotonic()
        if self._grace_until is not None:
            self._grace_until = min(self._grace_until, now)
            return
        self._grace_until = now + self._grace_seconds
        if self._ends_process:
            with suppress(RuntimeError):  # no room for another thread: then it stops as it can
                self._seam.threads("holdfast-deadline", 1).submit(self._end)

    @property
    def grace_until(self) -> float:
        """When handlers are told to stop (monotonic)."""
        if self._grace_until is None:
            return self._seam.monotonic() + self._grace_seconds
        return self._grace_until

    @property
    def is_overdue(self) -> bool:
        """Should all handlers have been stopped by now?"""
        until = self._grace_until
        return until is not None and self._seam.monotonic() > until + LISTEN_SECONDS

    def _end(self) -> None:
        pause = threading.Event()
        while self._seam.monotonic() < self.grace_until + STOP_SECONDS_MAX - TELL_SECONDS_MAX:
            pause.wait(LOOK_SECONDS)
        # What it hangs in may be the log itself.
        self._seam.threads("holdfast-last-words", 1).submit(self._tell)
        pause.wait(TELL_SECONDS_MAX)
        self._seam.exit(BLOCKED_CODE)

    def _tell(self) -> None:
        logs.event(ERROR, "stop_overdue", "the process did not stop in time and is exiting now")
