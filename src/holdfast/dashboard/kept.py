"""What every page needs to know of a tenant, kept for some seconds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

from holdfast.api.callers import Caller
from holdfast.dashboard.limits import TENANTS_KEPT_MAX

T = TypeVar("T")


class _Kept(NamedTuple, Generic[T]):
    value: T
    until: datetime


class KeptByTenant(Generic[T]):
    """Reads for each tenant, and for those who see all, at most once in a number of seconds."""

    def __init__(self, read: Callable[[Caller], Awaitable[T]], seconds: float) -> None:
        self._read = read
        self._for = timedelta(seconds=seconds)
        self._kept: dict[str | None, _Kept[T]] = {}

    async def of(self, caller: Caller, now: datetime) -> T:
        kept = self._kept.get(caller.tenant)
        if kept is None or kept.until < now:
            value = await self._read(caller)
            if len(self._kept) >= TENANTS_KEPT_MAX:
                self._kept.clear()
            kept = self._kept[caller.tenant] = _Kept(value, now + self._for)
        return kept.value

    def forget(self) -> None:
        self._kept.clear()
