"""The sweeper: the periodic upkeep that every worker does for all.

It looks for suspects, deletes old history, and warns of jobs that have no handler here. Each step
is bounded and idempotent, so there is no leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from logging import WARNING

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.limits import TIDY_ROWS_MAX
from holdfast.observability import logs
from holdfast.runtime.backoff import is_set_within
from holdfast.stores.protocol import Diagnosis, History, Suspects, capability
from holdfast.worker.refusals import logging_refusals
from holdfast.worker.setup import Setup

LOOK_FOR_UNKNOWN_SECONDS = 30.0
LOOK_SHARE = 20  # the look for unknown names may take 1/20 of the time
TIDY_SECONDS = 300.0


class Sweeper:
    """Warns of due jobs whose name is not `known`, unless that is None. `suspects` is called with
    the number of suspects that wait."""

    def __init__(
        self, setup: Setup, known: Sequence[str] | None, suspects: Callable[[int], None]
    ) -> None:
        self._suspects_store = capability(setup.store, Suspects)
        self._history = capability(setup.store, History)
        self._diagnosis = capability(setup.store, Diagnosis)
        self._seam = setup.seam
        self._sweep_seconds = setup.settings.reclaim_seconds
        self._names = setup.names
        self._known = known
        self._queues = setup.slots.queues
        self._suspects = suspects
        self._unknown: set[str] = set()
        self._look_for_unknown_at = self._tidy_at = setup.seam.monotonic()
        self._awake = asyncio.Event()

    def wake(self) -> None:
        """Look for suspects now."""
        self._awake.set()

    async def run(self) -> None:
        while True:
            self._awake.clear()
            now = self._seam.monotonic()
            try:
                await self._look_for_suspects()
                if now >= self._look_for_unknown_at:
                    await self._look_for_unknown()
                if now >= self._tidy_at and await self._tidy():
                    self._tidy_at = now + TIDY_SECONDS
            except StoreUnavailable as error:
                logs.event(WARNING, "sweep_failed", str(error))
            jitter = self._seam.random.uniform(0.7, 1)
            await is_set_within(self._awake, self._sweep_seconds * jitter)

    async def look_for_suspects(self) -> None:
        """Look now, for a caller that can't do anything about a database that is away."""
        try:
            await self._look_for_suspects()
        except StoreUnavailable as error:
            logs.event(WARNING, "sweep_failed", str(error))

    async def _look_for_suspects(self) -> None:
        if self._suspects_store is None:
            return
        with logging_refusals():
            if waiting := await self._suspects_store.suspects(self._names, self._queues):
                self._suspects(waiting)

    async def _tidy(self) -> bool:
        """Delete as much as fits between two sweeps; return False if more is left."""
        if self._history is None:
            return True
        until = self._seam.monotonic() + self._sweep_seconds / 4
        with logging_refusals():
            while await self._history.tidy(TIDY_ROWS_MAX) >= TIDY_ROWS_MAX:
                if self._seam.monotonic() >= until:
                    return False
        return True

    async def _look_for_unknown(self) -> None:
        """Its share of the time is bounded: it may step over every row that vacuum left behind."""
        if self._diagnosis is None or self._known is None:
            return
        began = self._seam.monotonic()
        try:
            with logging_refusals():
                for name in await self._diagnosis.unknown_names(self._known, self._queues):
                    if name not in self._unknown:
                        self._unknown.add(name)
                        text = "jobs of this name are waiting, but this worker has no handler"
                        logs.event(WARNING, "unknown_name", text, name=name)
        finally:
            now = self._seam.monotonic()
            rest_seconds = max(LOOK_FOR_UNKNOWN_SECONDS, LOOK_SHARE * (now - began))
            self._look_for_unknown_at = now + rest_seconds
