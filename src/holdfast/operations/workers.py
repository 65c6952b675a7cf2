"""List the workers."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.workers import WorkerStatus
from holdfast.operations.desk import Desk
from holdfast.runtime.blocking import blocking
from holdfast.stores.protocol import WorkerPresence, require


class Workers:
    """`hf.workers`: list the workers."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._run_sync = desk.run_sync

    async def list(self) -> Sequence[WorkerStatus]:
        """Return the live workers, and those that were lost lately."""
        return await require(await self._desk.store(), WorkerPresence, "list its workers").workers()

    list_sync = blocking(list)
