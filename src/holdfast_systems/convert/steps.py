"""The log lines of one attempt, in the words of this system.

A line has the fields event, job_id (which is the correlation id), status, attempt, duration_ms,
and gateway_status and error_code where there is one. The lines `reclaim`, `claim` and `shutdown`
are the engine's.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from holdfast import Context, JobError, Permanent, Retry

_logger = logging.getLogger("holdfast_systems.convert")


class Steps:
    def __init__(self, ctx: Context, retry: Retry) -> None:
        self._ctx = ctx
        self._retry = retry
        self._started = time.monotonic()

    def start(self) -> None:
        self._log(logging.INFO, "start", "processing")

    def gateway(self, status: int | None, failure: JobError | None, seconds: float) -> None:
        known = {"gateway_status": status, "duration_ms": _milliseconds(seconds)}
        if failure is None:
            self._log(logging.INFO, "gateway_ok", "processing", **known)
        else:
            word = "failed" if self._is_final(failure) else "queued"
            self._log(logging.WARNING, "gateway_error", word, **known, error_code=failure.code)

    def complete(self) -> None:
        self._log(logging.INFO, "complete", "complete")

    def failure(self, error: JobError) -> None:
        """A failure that is tried again is told by the engine's line `retry`."""
        if self._is_final(error):
            self._log(logging.ERROR, "failed", "failed", error_code=error.code)

    def _is_final(self, error: JobError) -> bool:
        allowed = self._retry.attempts_allowed(error.code, self._ctx.max_attempts)
        return isinstance(error, Permanent) or self._ctx.attempt >= allowed

    def _log(self, level: int, event: str, status: str, **fields: Any) -> None:
        told = {
            "job_id": self._ctx.job_id,
            "status": status,
            "attempt": self._ctx.attempt,
            "duration_ms": _milliseconds(time.monotonic() - self._started),
            **fields,
        }
        told = {name: value for name, value in told.items() if value is not None}
        _logger.log(level, event, extra={"event": event, "fields": told})


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 2)
