"""What every worker does at intervals for all: take back what ran out, look for suspects, tidy up,
and say which jobs nobody here can run. Each step is bounded and idempotent: there is no leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from logging import WARNING

from holdfast.domain.errors import StoreUnavailable
from holdfast.domain.job import Reclaimed
from holdfast.domain.limits import RECLAIM_BATCH_MAX, TIDY_ROWS_MAX
from holdfast.maintenance.reclaiming import take_back_some
from holdfast.maintenance.refusals import telling_refusals
from holdfast.observability import logs
from holdfast.seam import Seam
from holdfast.settings import Settings
from holdfast.stores.protocol import Store

LOOK_FOR_UNKNOWN_SECONDS = 30.0
LOOK_SHARE = 20  # it may take one of so many parts of the time
TIDY_SECONDS = 300.0
# Whoever was cut off has to connect first, which a short lease makes no faster.
CONNECT_SECONDS = 2.0


class Sweeper:
    """`wake` is called when jobs are queued again, `suspects` with how many of them wait,
    `reclaimed` with what was taken back."""

    def __init__(
        self,
        store: Store,
        seam: Seam,
        settings: Settings,
        names: Sequence[str],
        queues: Sequence[str] | None,
        wake: Callable[[], None],
        suspects: Callable[[int], None],
        reclaimed: Callable[[Sequence[Reclaimed]], None],
    ) -> None:
        self._store = store
        self._seam = seam
        self._settings = settings
        self._names = names
        self._queues = queues
        self._wake = wake
        self._suspects = suspects
        self._reclaimed = reclaimed
        self._unknown: set[str] = set()
        self._looked_at = self._reclaim_at = self._look_for_unknown_at = seam.monotonic()

    async def run(self) -> None:
        tidy_at = self._seam.monotonic()
        self._look_at_delay()
        while True:
            now = self._seam.monotonic()
            try:
                if may_reclaim := await self._may_reclaim():
                    await self.reclaim()
                await self._look_for_suspects()
                # One that takes long makes us patient: it must not come before each reclaim.
                if may_reclaim and now >= self._look_for_unknown_at:
                    await self._look_for_unknown()
                if now >= tidy_at and await self._tidy():
                    tidy_at = now + TIDY_SECONDS
            except StoreUnavailable as error:
                logs.event(WARNING, "sweep_failed", str(error))
                self._let_others_renew()
            await self._pause()

    async def _pause(self) -> None:
        seconds = self._settings.reclaim_seconds * self._seam.random.uniform(0.7, 1)
        await asyncio.sleep(seconds)
        self._look_at_delay(seconds)

    async def _may_reclaim(self) -> bool:
        """Is the database at hand? One that was not kept the living from renewing, too: what ran
        out meanwhile is left to them for as long as connecting and one renewal may take."""
        await self._store.reclaim(0)
        self._look_at_delay()
        return self._seam.monotonic() >= self._reclaim_at

    def _look_at_delay(self, meant_seconds: float = 0.0) -> None:
        """Was it the database or the machine: what held us up may have held up the living, too."""
        now = self._seam.monotonic()
        late_seconds = now - self._looked_at - meant_seconds
        self._looked_at = now
        # Less can't have cost a lease that is renewed every third of its length.
        if late_seconds > self._settings.lease_seconds / 2:
            self._let_others_renew()

    def _let_others_renew(self) -> None:
        patience_seconds = max(self._settings.renewal_seconds, CONNECT_SECONDS)
        self._reclaim_at = self._seam.monotonic() + patience_seconds

    async def reclaim(self) -> None:
        while reclaimed := await take_back_some(self._store):
            self._reclaimed(reclaimed)
            self._look_at_delay()
            self._wake()
            if len(reclaimed) < RECLAIM_BATCH_MAX:
                return

    async def look_for_suspects(self) -> None:
        """Look now; whoever asks for it can do nothing about a database that is away."""
        try:
            await self._look_for_suspects()
        except StoreUnavailable as error:
            logs.event(WARNING, "sweep_failed", str(error))

    async def _look_for_suspects(self) -> None:
        with telling_refusals():
            if waiting := await self._store.suspects(self._names, self._queues):
                self._suspects(waiting)

    async def _tidy(self) -> bool:
        """Do what fits between two sweeps; False if more is left."""
        until = self._seam.monotonic() + self._settings.reclaim_seconds / 4
        with telling_refusals():
            while True:
                done = await self._store.tidy(TIDY_ROWS_MAX)
                self._look_at_delay()
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
        with telling_refusals():
            for name in await self._store.unknown_names(self._names, self._queues):
                if name not in self._unknown:
                    self._unknown.add(name)
                    logs.event(
                        WARNING,
                        "unknown_name",
                        "jobs of this name wait, but this worker has no handler for it",
                        name=name,
                    )
