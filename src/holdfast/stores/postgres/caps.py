"""Claims that respect the caps of queues.

Every claim leaves out capped queues, unless it knows how many jobs may start in them. To find out,
it calls `lock_caps`, which locks their rows and then counts running jobs in a newer snapshot, which
includes what others claimed under these locks before. It skips queues that another claim has
locked. All of this is one statement, so that a worker that hangs holds no lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.runtime.seam import Seam
from holdfast.stores.postgres.connections import Connections
from holdfast.stores.postgres.rows import SQL
from holdfast.stores.protocol import Claim

LOOK_SECONDS = 1.0
BUSY_LOOK_SECONDS = 5.0  # while claims find jobs: a look would delay them


class Caps:
    """Run the statements that claim. Look up now and then whether there are caps."""

    def __init__(self, connections: Connections, seam: Seam) -> None:
        self._connections = connections
        self._seam = seam
        self._exist = False
        self._looked_at: float | None = None

    def look_again(self) -> None:
        """A cap has changed in this process."""
        self._looked_at = None

    async def claim(self, name: str, claim: Claim, **values: object) -> Sequence[Any]:
        values |= {
            "worker": claim.worker,
            "lease_seconds": claim.lease_seconds,
            "alone": claim.alone,
            "names": claim.names,
            "queues": claim.queues,
            "except_queues": claim.except_queues,
            "tenant": claim.tenant,
        }
        if self._look_is_due(LOOK_SECONDS if self._exist else BUSY_LOOK_SECONDS):
            await self._look()
        if not self._exist:
            rows = await self._connections.fetch(SQL[name], values)
            if rows:
                return rows
            if self._look_is_due(LOOK_SECONDS):
                await self._look()
            if not self._exist:
                return []
        return await self._connections.fetch(SQL[f"{name}_with_caps"], values)

    def _look_is_due(self, seconds: float) -> bool:
        return self._looked_at is None or self._seam.monotonic() >= self._looked_at + seconds

    async def _look(self) -> None:
        self._looked_at = self._seam.monotonic()
        self._exist = (await self._connections.fetch(SQL["caps"], {}))[0][0]
