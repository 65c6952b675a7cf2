"""The log lines of this system: one for each step, with the fields of `FIELDS` and no others.

The handler logs `start`, `gateway_ok` and `gateway_error`. The engine logs when a job is claimed,
reclaimed and settled, and when a worker stops; `Translation` puts that in this system's terms.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from holdfast import Context, JobError

JOB: Final = "convert"
EVENTS: Final = (
    *("reclaim", "claim", "start", "gateway_ok", "gateway_error"),
    *("complete", "failed", "shutdown"),
)
FIELDS: Final = ("job_id", "status", "duration_ms", "attempt", "gateway_status", "error_code")
STATUSES: Final = {
    "queued": "queued",
    "running": "processing",
    "succeeded": "complete",
    "failed": "failed",
    "dead": "failed",
    "canceled": "canceled",
}
_ENDS: Final = {"complete": logging.INFO, "failed": logging.ERROR}
# Without these, the engine's filter adds them to what a handler logs.
_NO_OTHERS: Final = dict.fromkeys(("job_id", "job_name", "tenant", "attempt", "correlation_id"))

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
            word = STATUSES[self._ctx.judge(failure).state]
            self._log(logging.WARNING, "gateway_error", word, **known, error_code=failure.code)

    def _log(self, level: int, event: str, status: str, **fields: Any) -> None:
        known = {
            "job_id": self._ctx.job_id,
            "status": status,
            "attempt": self._ctx.attempt,
            "duration_ms": _milliseconds(time.monotonic() - self._started),
        }
        _log(level, event, known | fields)


class Translation(logging.Filter):
    """Replace the engine's events about conversions, so that each step is logged once.

    Add it to the logger `holdfast` of a process that runs conversions only.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        event: Any = record.msg
        fields = getattr(event, "fields", None)
        if fields is None:  # not an event
            return True
        if event.name == "shutdown":
            _log(record.levelno, "shutdown", {}, event.message)
            return False
        if event.name == "claim":  # a batch; each of its jobs is logged, too
            return False
        if fields.get("name") != JOB:
            return True
        return not _is_replaced(record.levelno, event.name, fields)


def _is_replaced(level: int, event: str, fields: Mapping[str, Any]) -> bool:
    status = STATUSES[fields.get("state", "running")]
    if event == "start":
        event = "claim"
    elif event == "settle" and status in _ENDS:
        level, event = _ENDS[status], status
    elif event != "reclaim":
        return False
    _log(level, event, {**fields, "status": status})
    return True


def _log(level: int, event: str, fields: Mapping[str, Any], message: str = "") -> None:
    known = {field: fields[field] for field in FIELDS if fields.get(field) is not None}
    _logger.log(level, message or event, extra={"event": event, "fields": known, **_NO_OTHERS})


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 2)
