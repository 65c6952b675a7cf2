"""The log lines of one attempt, in this system's terms.

A line has the fields event, job_id (the correlation id), status, attempt and duration_ms, and
gateway_status and error_code if there is one. The engine logs `reclaim`, `claim` and `shutdown`.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from holdfast import Context, JobError

_logger = logging.getLogger("holdfast_systems.convert")


class Steps:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._started = time.monotonic()

    def start(self) -> None:
        self._log(logging.INFO, "start", "processing")

    def gateway(self, status: int | None, failure: JobError | None, seconds: float) -> None:
        known = {"gateway_status": status, "duration_ms": _milliseconds(seconds)}
        if failure is None:
            self._log(logging.INFO, "gateway_ok", "processing", **known)
        else:
            word = "failed" if self._ctx.judge(failure).state.ended else "queued"
            self._log(logging.WARNING, "gateway_error", word, **known, error_code=failure.code)

    def complete(self) -> None:
        self._log(logging.INFO, "complete", "complete")

    def failed(self, code: str | None) -> None:
        """Log the last failure. The engine logs the others, as `retry`."""
        self._log(logging.ERROR, "failed", "failed", error_code=code)

    def _log(self, level: int, event: str, status: str, **fields: Any) -> None:
        known = {
            "job_id": self._ctx.job_id,
            "status": status,
            "attempt": self._ctx.attempt,
            "duration_ms": _milliseconds(time.monotonic() - self._started),
            **fields,
        }
        known = {name: value for name, value in known.items() if value is not None}
        _logger.log(level, event, extra={"event": event, "fields": known})


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 2)
