"""Hold the jobs whose breakers are open, let them go when these close, and say when a job is to be
sent ahead. Every worker does it for all, in bounded steps: there is no leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from logging import INFO, WARNING

from holdfast.domain.breakers import Parking
from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.limits import PARK_ROWS_MAX
from holdfast.observability import logs
from holdfast.runtime.backoff import Backoff
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Breakers
from holdfast.worker.refusals import telling_refusals

LOOK_SECONDS = 1.0  # while a breaker is open, or jobs are held or let go


class Parker:
    """`probe_in` is called with the seconds until a job is to be sent ahead, or None."""

    def __init__(
        self,
        breakers: Breakers,
        seam: Seam,
        settings: Settings,
        worker_id: str,
        probe_in: Callable[[float | None], None],
    ) -> None:
        self._breakers = breakers
        self._random = seam.random
        self._settings = settings
        self._worker_id = worker_id
        self._probe_in = probe_in
        self._trouble = Backoff(seam, 0.1, 5.0)
        self._closing: set[str] = set()
        self._struck: set[str] = set()
        self._told: dict[str, datetime | None] = {}
        self._awake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def struck(self, keys: Iterable[str]) -> None:
        """Failures were counted against these breakers: look whether they have opened."""
        self._struck.update(keys)
        self._awake.set()

    def close(self, key: str) -> None:
        """A job that was sent ahead has found that what it depends on works again."""
        self._closing.add(key)
        self._idle.clear()
        self._awake.set()

    async def wait_idle(self) -> None:
        """Wait until every breaker that was to be closed is closed, and its jobs are let go."""
        await self._idle.wait()

    async def run(self) -> None:
        while True:
            self._awake.clear()
            try:
                with telling_refusals():
                    await self._close_all()
                parking = await self._park_all()
                await self._tell_opened(parking)
            except StoreUnavailable as error:
                logs.event(WARNING, "sweep_failed", str(error))
                await self._trouble.wait()
                continue
            self._trouble.reset()
            if not self._closing:
                self._idle.set()
            await self._rest(parking)

    async def _close_all(self) -> None:
        while self._closing:
            key = min(self._closing)
            if await self._breakers.close_breaker(key, by_hand=False):
                logs.event(
                    INFO,
                    "breaker_closed",
                    "a probe succeeded; the parked jobs follow",
                    worker_id=self._worker_id,
                    breaker=key,
                )
            self._closing.discard(key)

    async def _park_all(self) -> Parking:
        moved = 0
        step = Parking(0, None)
        with telling_refusals():
            while True:
                step = await self._breakers.park(PARK_ROWS_MAX)
                self._probe_in(step.probe_in_seconds)
                moved += step.moved
                if step.moved < PARK_ROWS_MAX:
                    break
        return Parking(moved, step.probe_in_seconds)

    async def _tell_opened(self, parking: Parking) -> None:
        """Tell of each breaker once that opened when failures of this worker were counted."""
        struck = self._struck.copy()
        if struck and parking.probe_in_seconds is not None:
            opened = {each.key: each for each in await self._breakers.breakers() if each.is_open}
            for key in sorted(struck & opened.keys()):
                breaker = opened[key]
                if self._told.get(key) == breaker.opened_at:
                    continue
                logs.event(
                    WARNING,
                    "breaker_opened",
                    f"its jobs wait and lose no attempt: {breaker.opened_because}",
                    worker_id=self._worker_id,
                    count=breaker.failures,
                    breaker=key,
                )
            self._told = {key: breaker.opened_at for key, breaker in opened.items()}
        self._struck -= struck

    async def _rest(self, parking: Parking) -> None:
        if parking.moved or parking.probe_in_seconds is not None:
            seconds = LOOK_SECONDS
        else:
            seconds = self._settings.reclaim_seconds * self._random.uniform(0.7, 1)
        try:
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        except TimeoutError:
            pass
