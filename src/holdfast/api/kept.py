"""Read a value once per period, however many requests need it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdfast.domain.scope import all_tenants

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Reading(Generic[V]):
    task: asyncio.Task[V]
    began_at: float


class Kept(Generic[V]):
    """The latest values, each kept for `seconds` from the start of its reading. Concurrent requests
    share a reading. A failed reading is not kept."""

    def __init__(self, monotonic: Callable[[], float], seconds: float, count_max: int) -> None:
        self._monotonic = monotonic
        self._seconds = seconds
        self._count_max = count_max
        self._readings: dict[Hashable, Reading[V]] = {}

    async def get(
        self, key: Hashable, read: Callable[[], Coroutine[Any, Any, V]]
    ) -> tuple[V, float]:
        """Return the value, and how many seconds ago its reading began."""
        now = self._monotonic()
        reading = self._readings.get(key)
        if reading is None or now - reading.began_at >= self._seconds:
            with all_tenants():  # requests of other tenants may need it, too
                reading = Reading(asyncio.create_task(read()), now)
            self._put(key, reading)
        if reading.task.done():
            return reading.task.result(), now - reading.began_at
        # Other requests may need it, even if this one is canceled.
        value = await asyncio.shield(reading.task)
        return value, self._monotonic() - reading.began_at

    def last(self, key: Hashable) -> V | None:
        """The last value, however old, if it is still here."""
        reading = self._readings.get(key)
        return None if reading is None or not reading.task.done() else reading.task.result()

    def _put(self, key: Hashable, reading: Reading[V]) -> None:
        self._readings.pop(key, None)
        self._readings[key] = reading
        if len(self._readings) > self._count_max:
            del self._readings[next(iter(self._readings))]

        def forget_failed(task: asyncio.Task[V]) -> None:
            is_failed = task.cancelled() or task.exception() is not None
            if is_failed and self._readings.get(key) is reading:
                del self._readings[key]

        reading.task.add_done_callback(forget_failed)
