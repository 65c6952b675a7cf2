"""Switches for tests: calls that fail, lose their answer or wait, and rows that are locked."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from holdfast_systems.documents.salesforce.local.errors import ApiError
from holdfast_systems.documents.salesforce.local.limits import (
    DAILY_REQUESTS,
    HOLD_SECONDS_MAX,
)

MESSAGES = {
    "UNABLE_TO_LOCK_ROW": "unable to obtain exclusive access to this record",
    "SERVER_UNAVAILABLE": "Server too busy",
}


class Fault(msgspec.Struct, forbid_unknown_fields=True):
    """What happens to the next calls that it fits; `rows` counts record writes instead.

    With `after`, a call is done and only its answer is lost. With `body`, in base64, it is done and
    this is its answer. With `hold` it waits until the faults are cleared, and goes on as if nothing
    had been.
    """

    times: int = 1
    status: int = 503
    code: str = "SERVER_UNAVAILABLE"
    method: str = ""
    path: str = ""
    after: bool = False
    hold: bool = False
    delay_seconds: float = 0.0
    rows: int | None = None
    body: bytes | None = None

    @property
    def fails(self) -> bool:
        return not self.hold and not self.delay_seconds and self.body is None

    def fits(self, method: str, path: str) -> bool:
        about_calls = self.rows is None and self.times > 0
        return about_calls and self.method in ("", method) and self.path in path

    def error(self) -> ApiError:
        message = MESSAGES.get(self.code, "a fault that was switched on")
        return ApiError(self.code, message, status=self.status)


class Usage(msgspec.Struct):
    """How many calls were made today, and how many may be."""

    used: int = 0
    limit: int = DAILY_REQUESTS

    def count(self) -> None:
        if self.used >= self.limit:
            message = "TotalRequests Limit exceeded."
            raise ApiError("REQUEST_LIMIT_EXCEEDED", message, status=403)
        self.used += 1


class Faults:
    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._waiting = 0
        self._released = asyncio.Event()

    def add(self, body: bytes) -> None:
        self._faults.append(msgspec.json.decode(body, type=Fault))

    def clear(self) -> None:
        self._faults.clear()
        self._released.set()
        self._released = asyncio.Event()

    def show(self) -> dict[str, Any]:
        left = [msgspec.to_builtins(each) for each in self._faults]
        return {"faults": left, "waiting": self._waiting}

    def take(self, method: str, path: str) -> Fault | None:
        for fault in self._faults:
            if fault.fits(method, path):
                fault.times -= 1
                return fault
        return None

    async def before(self, fault: Fault | None) -> None:
        """Let the call wait or fail before anything is done."""
        if fault is None:
            return
        if fault.hold:
            await self._hold()
        await asyncio.sleep(fault.delay_seconds)
        if fault.fails and not fault.after:
            raise fault.error()

    def before_row(self) -> None:
        for fault in self._faults:
            if fault.rows:
                fault.rows -= 1
                raise fault.error()

    async def _hold(self) -> None:
        released = self._released
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(released.wait(), HOLD_SECONDS_MAX)
        finally:
            self._waiting -= 1
