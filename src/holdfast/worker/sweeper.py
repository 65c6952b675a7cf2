"""What every worker does at intervals for all: look for suspects, tidy up, and say which jobs
nobody here can run. Each step is bounded and idempotent: there is no leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from logging import WARNING

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.limits import TIDY_ROWS_MAX
from holdfast.observability import logs
from holdfast.runtime.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Diagnosis, History, Store, Suspects, capability
from holdfast.worker.refusals import telling_refusals

LOOK_FOR_UNKNOWN_SECONDS = 30.0
LOOK_SHARE = 20  # it may take one of so many parts of the time
TIDY_SECONDS = 300.0


class Sweeper:
    """`suspects` is called with how many of them wait."""

    def __init__(
        self,
        store: Store,
        seam: Seam,
        settings: Settings,
        names: Sequence[str],
        queues: Sequence[str] | None,
        suspects: Callable[[int], None],
    ) -> None:
        self._quarantine = capability(store, Suspects)
        self._history = capability(store, History)
        self._diagnosis = capability(store, Diagnosis)
        self._seam = seam
        self._settings = settings
        self._names = names
        self._queues = queues
        self._suspects = suspects
        self._unknown: set[str] = set()
        self._look_for_unknown_at = seam.monotonic()
        self._awake = asyncio.Event()

    def wake(self) -> None:
        """Look for suspects now."""
        self._awake.set()

    async def run(self) -> None:
        tidy_at = self._seam.monotonic()
        while True:
            self._awake.clear()
            now = self._seam.monotonic()
            try:
                await self._look_for_suspects()
                if now >= self._look_for_unknown_at:
                    await self._look_for_unknown()
                if now >= tidy_at and await self._tidy():
                    tidy_at = now + TIDY_SECONDS
            except StoreUnavailable as error:
                logs.event(WARNING, "sweep_failed", str(error))
            await self._pause()

    async def _pause(self) -> None:
        seconds = self._settings.reclaim_seconds * self._seam.random.uniform(0.7, 1)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._awake.wait()

    async def look_for_suspects(self) -> None:
        """Look now; whoever asks for it can do nothing about a database that is away."""
        try:
            await self._look_for_suspects()
        except StoreUnavailable as error:
            logs.event(WARNING, "sweep_failed", str(error))

    async def _look_for_suspects(self) -> None:
        if self._quarantine is None:
            return
        with telling_refusals():
            if waiting := await self._quarantine.suspects(self._names, self._queues):
                self._suspects(waiting)

    async def _tidy(self) -> bool:
        """Do what fits between two sweeps; False if more is left."""
        if self._history is None:
            return True
        until = self._seam.monotonic() + self._settings.reclaim_seconds / 4
        with telling_refusals():
            while True:
                done = await self._history.tidy(TIDY_ROWS_MAX)
                if done < TIDY_ROWS_MAX:
                    break
                if self._seam.monotonic() >= until:
                    return False
        return True

    async def _look_for_unknown(self) -> None:
        """Its share of the time is bounded: it may walk over all that vacuum could not clear."""
        began = self._seam.monotonic()
        try:
            await self._tell_unknown_names()
        finally:
            now = self._seam.monotonic()
            rest_seconds = max(LOOK_FOR_UNKNOWN_SECONDS, LOOK_SHARE * (now - began))
            self._look_for_unknown_at = now + rest_seconds

    async def _tell_unknown_names(self) -> None:
        if self._diagnosis is None:
            return
        with telling_refusals():
            for name in await self._diagnosis.unknown_names(self._names, self._queues):
                if name not in self._unknown:
                    self._unknown.add(name)
                    logs.event(
                        WARNING,
                        "unknown_name",
                        "jobs of this name wait, but this worker has no handler for it",
                        name=name,
                    )
