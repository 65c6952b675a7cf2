"""A worker's probes for orchestrators: `/livez` and `/readyz` on its metrics port.

They run on the metrics thread, which no handler can block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from holdfast.domain.errors import HoldfastError
from holdfast.observability.metrics import CLAIMING, Metrics

CACHE_SECONDS: Final = 1.0  # between two questions to the database
ANSWER_SECONDS_MAX: Final = 2.0

Probe = Callable[[], Awaitable[str | None]]  # returns what is wrong


class Probes:
    """`workers` is how many workers must be claiming jobs here. The event loop that creates this
    object is the worker's. It counts as alive unless blocked for `blocked_seconds_max`."""

    def __init__(
        self,
        metrics: Metrics,
        ask_database: Callable[[], Awaitable[object]],
        clock: Callable[[], float],
        *,
        workers: int,
        blocked_seconds_max: float,
    ) -> None:
        self._metrics = metrics
        self._ask_database = ask_database
        self._clock = clock
        self._workers = workers
        self._blocked_seconds_max = blocked_seconds_max
        self._loop = asyncio.get_running_loop()
        self._asked_at: float | None = None  # a question that the loop has not answered yet
        self._database: tuple[float, bool] | None = None

    @property
    def by_path(self) -> Mapping[str, Probe]:
        return {"/livez": self.live, "/readyz": self.ready}

    async def live(self) -> str | None:
        asked_at = self._asked_at
        if asked_at is None:
            self._asked_at = self._clock()
            self._loop.call_soon_threadsafe(self._answer)
        elif (seconds := self._clock() - asked_at) > self._blocked_seconds_max:
            return f"the event loop has been blocked for {seconds:.0f} s"
        return None

    def _answer(self) -> None:
        self._asked_at = None

    async def ready(self) -> str | None:
        claiming = self._metrics.snapshot().gauges.get(CLAIMING.name, 0)
        if claiming < self._workers:
            return f"{claiming:g} of {self._workers} workers are claiming jobs"
        if not await self._database_answers():
            return "the database does not answer"
        return None

    async def _database_answers(self) -> bool:
        if self._database is None or self._clock() >= self._database[0] + CACHE_SECONDS:
            try:
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    await self._ask_database()
                answers = True
            except (HoldfastError, TimeoutError):
                answers = False
            self._database = (self._clock(), answers)
        return self._database[1]
