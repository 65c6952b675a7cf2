"""The vacuumer: has the database cleared of what jobs leave behind as they end."""

from __future__ import annotations

import asyncio
from logging import WARNING

from holdfast.domain.errors import HoldfastError
from holdfast.observability import logs
from holdfast.stores.vacuums import Vacuums
from holdfast.worker.setup import Setup


class Vacuumer:
    """Every worker does this for all: there is no leader."""

    def __init__(self, store: Vacuums, setup: Setup) -> None:
        self._store = store
        self._random = setup.seam.random
        self._look_seconds = setup.settings.reclaim_seconds

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._look_seconds * self._random.uniform(0.7, 1))
            try:
                await self._store.vacuum()
            except HoldfastError as error:  # nothing depends on it
                logs.event(WARNING, "sweep_failed", str(error))
