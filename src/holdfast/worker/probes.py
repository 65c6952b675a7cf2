"""A worker's probes for orchestrators: `/livez` and `/readyz` on its metrics port.

They run on the metrics thread, which no handler can block.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from holdfast.domain.errors import HoldfastError
from holdfast.domain.messengers import QUEUE_UNAVAILABLE
from holdfast.observability.metrics import CLAIMING, MESSENGERS_DOWN, Metrics

CACHE_SECONDS: Final = 1.0  # between two questions to the database
ANSWER_SECONDS_MAX: Final = 2.0


class Answer(NamedTuple):
    is_well: bool
    text: str


Probe = Callable[[], Awaitable[Answer]]
_WELL: Final = Answer(True, "ok")


class Probes:
    """`workers` is how many workers must be claiming jobs here. The event loop that creates this
    object is the worker's. It counts as alive unless blocked for `blocked_seconds_max`. With
    `messengers_required`, it is ready only if all messengers are live."""

    def __init__(
        self,
        metrics: Metrics,
        ask_database: Callable[[], Awaitable[object]],
        clock: Callable[[], float],
        *,
        workers: int,
        blocked_seconds_max: float,
        poll_seconds: float,
        messengers_required: bool,
    ) -> None:
        self._metrics = metrics
        self._ask_database = ask_database
        self._clock = clock
        self._workers = workers
        self._blocked_seconds_max = blocked_seconds_max
        self._fallback = f"polling every {poll_seconds:g} s"
        self._messengers_required = messengers_required
        self._loop = asyncio.get_running_loop()
        self._asked_at: float | None = None  # a question that the loop has not answered yet
        self._database: tuple[float, bool] | None = None

    @property
    def by_path(self) -> Mapping[str, Probe]:
        return {"/livez": self.live, "/readyz": self.ready}

    async def live(self) -> Answer:
        asked_at = self._asked_at
        if asked_at is None:
            self._asked_at = self._clock()
            self._loop.call_soon_threadsafe(self._answer)
        elif (seconds := self._clock() - asked_at) > self._blocked_seconds_max:
            return Answer(False, f"the event loop has been blocked for {seconds:.0f} s")
        return _WELL

    def _answer(self) -> None:
        self._asked_at = None

    async def ready(self) -> Answer:
        gauges = self._metrics.snapshot().gauges
        claiming = gauges.get(CLAIMING.name, 0)
        if claiming < self._workers:
            return Answer(False, f"{claiming:g} of {self._workers} workers are claiming jobs")
        if not await self._database_answers():
            return Answer(False, "the database does not answer")
        if not gauges.get(MESSENGERS_DOWN.name, 0):
            return _WELL
        if self._messengers_required:
            return Answer(False, f"{QUEUE_UNAVAILABLE}: a messenger is down; see holdfast doctor")
        return Answer(True, f"ok; a messenger is down, fallback: {self._fallback}")

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
