"""Faults that tests switch on: calls that fail, lose their answer or wait, and locked rows."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from holdfast_systems.documents.salesforce.local.errors import ApiError
from holdfast_systems.documents.salesforce.local.limits import DAILY_REQUESTS, HOLD_SECONDS_MAX

MESSAGES = {
    "UNABLE_TO_LOCK_ROW": "unable to obtain exclusive access to this record",
    "SERVER_UNAVAILABLE": "Server too busy",
}


class Fault(msgspec.Struct, forbid_unknown_fields=True):
    """What happens to the next matching calls, or to as many writes of records as `rows`.

    With `after`, the call is performed and only its answer is lost. With `body`, in base64, it is
    performed and this is the answer. With `hold`, it waits until the faults are cleared; with
    `hold` and `after`, it is performed and only its answer waits.
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

    def matches(self, method: str, path: str) -> bool:
        applies = self.rows is None and self.times > 0
        return applies and self.method in ("", method) and self.path in path

    def error(self) -> ApiError:
        message = MESSAGES.get(self.code, "a fault that was switched on")
        return ApiError(self.code, message, status=self.status)


class Usage(msgspec.Struct):
    """How many calls were made today, and the limit."""

    used: int = 0
    limit: int = DAILY_REQUESTS

    def count(self) -> None:
        if self.used >= self.limit:
            raise ApiError("REQUEST_LIMIT_EXCEEDED", "TotalRequests Limit exceeded.", status=403)
        self.used += 1


class Faults:
    def __init__(self) -> None:
        self._faults: list[Fault] = []
        self._waiting = 0
        self._released = asyncio.Event()

    def add(self, fault: Fault) -> None:
        self._faults.append(fault)

    def clear(self) -> None:
        self._faults.clear()
        self._released.set()
        self._released = asyncio.Event()

    def show(self) -> dict[str, Any]:
        left = [msgspec.to_builtins(each) for each in self._faults]
        return {"faults": left, "waiting": self._waiting}

    def take(self, method: str, path: str) -> Fault | None:
        for fault in self._faults:
            if fault.matches(method, path):
                fault.times -= 1
                return fault
        return None

    async def before(self, fault: Fault | None) -> None:
        """Make the call wait or fail before it does anything."""
        if fault is None:
            return
        if fault.hold and not fault.after:
            await self._hold()
        await asyncio.sleep(fault.delay_seconds)
        if fault.fails and not fault.after:
            raise fault.error()

    async def after(self, fault: Fault | None) -> None:
        """Make the answer to a call wait."""
        if fault is not None and fault.hold and fault.after:
            await self._hold()

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
