"""The parker: parks the jobs of open breakers, unparks them when these close, and schedules probes.

Every worker does this for all, in bounded steps: there is no leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from logging import INFO, WARNING

from holdfast.domain.breakers import Parking
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.limits import PARK_ROWS_MAX
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff, is_set_within
from holdfast.stores.protocol import Breakers
from holdfast.worker.openings import Openings
from holdfast.worker.refusals import logging_refusals
from holdfast.worker.setup import Setup

LOOK_SECONDS = 1.0  # while a breaker is open, or jobs are being parked or unparked


class Parker:
    """`probe_in` is called with the seconds until the next probe, or None."""

    def __init__(
        self, breakers: Breakers, setup: Setup, probe_in: Callable[[float | None], None]
    ) -> None:
        self._breakers = breakers
        self._random = setup.seam.random
        self._settings = setup.settings
        self._worker_id = setup.worker_id
        self._probe_in = probe_in
        self._trouble = Backoff(setup.seam, 0.1, 5.0)
        self._closing: set[str] = set()
        self._openings = Openings(setup.worker_id)
        self._awake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def struck(self, keys: Iterable[str]) -> None:
        """Failures were counted against these breakers: check whether they have opened."""
        self._openings.struck(keys)
        self._awake.set()

    def close(self, key: str) -> None:
        """Close a breaker whose probe found the dependency working."""
        self._closing.add(key)
        self._idle.clear()
        self._awake.set()

    async def wait_idle(self) -> None:
        """Wait until every breaker that `close` got is closed, and its jobs are unparked."""
        await self._idle.wait()

    async def run(self) -> None:
        while True:
            self._awake.clear()
            try:
                with logging_refusals():
                    await self._close_all()
                parking = await self._park_all()
                await self._log_opened(parking)
            except StoreUnavailable as error:
                logs.event(WARNING, "sweep_failed", str(error))
                await self._trouble.wait()
                continue
            self._trouble.reset()
            if not self._closing:
                self._idle.set()
            await is_set_within(self._awake, self._rest_seconds(parking))

    async def _close_all(self) -> None:
        while self._closing:
            key = min(self._closing)
            if await self._breakers.close_breaker(key, by_hand=False):
                text = "a probe succeeded; the parked jobs follow"
                logs.event(INFO, "breaker_closed", text, worker_id=self._worker_id, breaker=key)
            self._closing.discard(key)

    async def _park_all(self) -> Parking:
        moved = 0
        step = Parking(0, None)
        with logging_refusals():
            while True:
                step = await self._breakers.park(PARK_ROWS_MAX)
                self._probe_in(step.probe_in_seconds)
                moved += step.moved
                if step.moved < PARK_ROWS_MAX:
                    break
        return Parking(moved, step.probe_in_seconds)

    async def _log_opened(self, parking: Parking) -> None:
        if parking.probe_in_seconds is not None:
            await self._openings.look(self._breakers)
        else:
            self._openings.forget()

    def _rest_seconds(self, parking: Parking) -> float:
        if parking.moved or parking.probe_in_seconds is not None:
            return LOOK_SECONDS
        return self._settings.reclaim_seconds * self._random.uniform(0.7, 1)
